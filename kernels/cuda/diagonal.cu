/* diagonal.cu: the compiled diagonal kernels. */
#include "kernels/cuda/diagonal.cuh"
#include "kernels/cuda/variant.h"

#define DK_KERNEL(...) reinterpret_cast<const void *>(&__VA_ARGS__)
#define DK_DIAGONAL(name, rows, steps, warps, note)                                                          \
    {#name,                                                                                                  \
     DK_FAMILY_DIAGONAL,                                                                                     \
     {{DK_KERNEL(dk::diagonal_kernel<rows, steps, warps, false, false>),                                     \
       DK_KERNEL(dk::diagonal_kernel<rows, steps, warps, false, true>)},                                     \
      {DK_KERNEL(dk::diagonal_kernel<rows, steps, warps, true, false>),                                      \
       DK_KERNEL(dk::diagonal_kernel<rows, steps, warps, true, true>)}},                                     \
     rows,                                                                                                   \
     2,                                                                                                      \
     1,                                                                                                      \
     warps,                                                                                                  \
     (steps)*256,                                                                                            \
     false,                                                                                                  \
     false,                                                                                                  \
     DK_TREE_NONE,                                                                                           \
     note,                                                                                                   \
     0},

extern "C" const struct dk_variant dk_diagonal_variants[] = {
#include "kernels/cuda/variants.def"
};
extern "C" const uint32_t dk_diagonal_variant_count =
    sizeof dk_diagonal_variants / sizeof dk_diagonal_variants[0];
