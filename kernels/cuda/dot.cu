/* dot.cu: the compiled dot-product kernels. */
#include "kernels/cuda/dot.cuh"
#include "kernels/cuda/variant.h"

#define DK_KERNEL(...) reinterpret_cast<const void *>(&__VA_ARGS__)
#define DK_DOT(name, rows, vectors, threads, note)                                                           \
    {#name,                                                                                                  \
     DK_FAMILY_DOT,                                                                                          \
     {{DK_KERNEL(dk::dot_kernel<rows, vectors, threads, false, false>),                                      \
       DK_KERNEL(dk::dot_kernel<rows, vectors, threads, false, true>)},                                      \
      {DK_KERNEL(dk::dot_kernel<rows, vectors, threads, true, false>),                                       \
       DK_KERNEL(dk::dot_kernel<rows, vectors, threads, true, true>)}},                                      \
     rows,                                                                                                   \
     1,                                                                                                      \
     1,                                                                                                      \
     (threads) / 32,                                                                                         \
     (vectors)*256,                                                                                          \
     false,                                                                                                  \
     false,                                                                                                  \
     DK_TREE_NONE,                                                                                           \
     note,                                                                                                   \
     0},

extern "C" const struct dk_variant dk_dot_variants[] = {
#include "kernels/cuda/variants.def"
};
extern "C" const uint32_t dk_dot_variant_count = sizeof dk_dot_variants / sizeof dk_dot_variants[0];
