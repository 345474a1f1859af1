/* staged.cu: the compiled kernels that stage their operands in shared memory. */
#include "kernels/cuda/staged.cuh"
#include "kernels/cuda/variant.h"

#define DK_KERNEL(...) reinterpret_cast<const void *>(&__VA_ARGS__)
#define DK_STAGED(name, tokens, experts, units, note)                                                        \
    {#name,                                                                                                  \
     DK_FAMILY_STAGED,                                                                                       \
     {{DK_KERNEL(dk::staged_kernel<tokens, experts, units, false, false>),                                   \
       DK_KERNEL(dk::staged_kernel<tokens, experts, units, false, true>)},                                   \
      {DK_KERNEL(dk::staged_kernel<tokens, experts, units, true, false>),                                    \
       DK_KERNEL(dk::staged_kernel<tokens, experts, units, true, true>)}},                                   \
     tokens,                                                                                                 \
     experts,                                                                                                \
     dk::kChunks,                                                                                            \
     8,                                                                                                      \
     (units)*dk::kUnitK / 8,                                                                                 \
     false,                                                                                                  \
     true,                                                                                                   \
     DK_TREE_SHARED,                                                                                         \
     note,                                                                                                   \
     dk::StagedLayout<tokens, experts, units>::kBytes},

extern "C" const struct dk_variant dk_staged_variants[] = {
#include "kernels/cuda/variants.def"
};
extern "C" const uint32_t dk_staged_variant_count = sizeof dk_staged_variants / sizeof dk_staged_variants[0];
