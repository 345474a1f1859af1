/* cluster.cu: the compiled cluster split-K kernels. */
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/variant.h"

#define DK_KERNEL(...) reinterpret_cast<const void *>(&__VA_ARGS__)
#define DK_CLUSTER(name, slots, groups, tiles, splits, steps, warps, tree, note)                             \
    {#name,                                                                                                  \
     DK_FAMILY_CLUSTER,                                                                                      \
     {{DK_KERNEL(dk::cluster_kernel<slots, groups, tiles, splits, steps, warps, (tree) == DK_TREE_LONG,      \
                                    (tree) == DK_TREE_CHAINED, false, false>),                               \
       DK_KERNEL(dk::cluster_kernel<slots, groups, tiles, splits, steps, warps, (tree) == DK_TREE_LONG,      \
                                    (tree) == DK_TREE_CHAINED, false, true>)},                               \
      {(tree) == DK_TREE_LONG                                                                                \
           ? nullptr                                                                                         \
           : DK_KERNEL(dk::cluster_kernel<slots, groups, tiles, splits, steps, warps, false,                 \
                                          (tree) == DK_TREE_CHAINED, true, false>),                          \
       (tree) == DK_TREE_LONG                                                                                \
           ? nullptr                                                                                         \
           : DK_KERNEL(dk::cluster_kernel<slots, groups, tiles, splits, steps, warps, false,                 \
                                          (tree) == DK_TREE_CHAINED, true, true>)}},                         \
     (tiles)*8 / (slots),                                                                                    \
     (groups)*16 / (slots),                                                                                  \
     splits,                                                                                                 \
     warps,                                                                                                  \
     (steps)*32 * (slots),                                                                                   \
     (tree) == DK_TREE_LONG,                                                                                 \
     true,                                                                                                   \
     (tree) == DK_TREE_LONG      ? DK_TREE_LONG + (splits)                                                   \
     : (tree) == DK_TREE_CHAINED ? DK_TREE_NONE                                                              \
                                 : DK_TREE_SHARED,                                                           \
     note,                                                                                                   \
     0},

extern "C" const struct dk_variant dk_cluster_variants[] = {
#include "kernels/cuda/variants.def"
};
extern "C" const uint32_t dk_cluster_variant_count =
    sizeof dk_cluster_variants / sizeof dk_cluster_variants[0];
