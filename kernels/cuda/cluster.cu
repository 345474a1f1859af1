/* cluster.cu: the compiled cluster split-K kernels. */
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/variant.h"

#define DK_KERNEL(...) reinterpret_cast<const void *>(&__VA_ARGS__)
#define DK_CLUSTER(name, slots, groups, tiles, splits, steps, warps, is_long, note)                          \
    {#name,                                                                                                  \
     DK_FAMILY_CLUSTER,                                                                                      \
     {{DK_KERNEL(dk::cluster_kernel<slots, groups, tiles, splits, steps, warps, is_long, false, false>),     \
       DK_KERNEL(dk::cluster_kernel<slots, groups, tiles, splits, steps, warps, is_long, false, true>)},     \
      {is_long                                                                                               \
           ? nullptr                                                                                         \
           : DK_KERNEL(dk::cluster_kernel<slots, groups, tiles, splits, steps, warps, false, true, false>),  \
       is_long                                                                                               \
           ? nullptr                                                                                         \
           : DK_KERNEL(dk::cluster_kernel<slots, groups, tiles, splits, steps, warps, false, true, true>)}}, \
     (tiles)*8 / (slots),                                                                                    \
     (groups)*16 / (slots),                                                                                  \
     splits,                                                                                                 \
     warps,                                                                                                  \
     (steps)*32 * (slots),                                                                                   \
     is_long,                                                                                                \
     true,                                                                                                   \
     (is_long) ? DK_TREE_LONG + (splits) : DK_TREE_SHARED,                                                   \
     note,                                                                                                   \
     0},

extern "C" const struct dk_variant dk_cluster_variants[] = {
#include "kernels/cuda/variants.def"
};
extern "C" const uint32_t dk_cluster_variant_count =
    sizeof dk_cluster_variants / sizeof dk_cluster_variants[0];
