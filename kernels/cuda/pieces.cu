/* pieces.cu: the compiled single-block kernels of the shared tree. */
#include "kernels/cuda/pieces.cuh"
#include "kernels/cuda/variant.h"

#define DK_KERNEL(...) reinterpret_cast<const void *>(&__VA_ARGS__)
#define DK_PIECES(name, rows, steps, warps, note)                                                            \
    {#name,                                                                                                  \
     DK_FAMILY_PIECES,                                                                                       \
     {{DK_KERNEL(dk::pieces_kernel<rows, steps, warps, false, false>),                                       \
       DK_KERNEL(dk::pieces_kernel<rows, steps, warps, false, true>)},                                       \
      {DK_KERNEL(dk::pieces_kernel<rows, steps, warps, true, false>),                                        \
       DK_KERNEL(dk::pieces_kernel<rows, steps, warps, true, true>)}},                                       \
     rows,                                                                                                   \
     1,                                                                                                      \
     1,                                                                                                      \
     warps,                                                                                                  \
     (steps)*256,                                                                                            \
     false,                                                                                                  \
     false,                                                                                                  \
     DK_TREE_SHARED,                                                                                         \
     note,                                                                                                   \
     0},

extern "C" const struct dk_variant dk_pieces_variants[] = {
#include "kernels/cuda/variants.def"
};
extern "C" const uint32_t dk_pieces_variant_count = sizeof dk_pieces_variants / sizeof dk_pieces_variants[0];
