/* dot.cu: the compiled dot-product kernels. */
#include "kernels/cuda/dot.cuh"
#include "kernels/cuda/variant.h"

#define DK_DOT(name, rows, vectors, threads, note)                                                           \
    {#name,                                                                                                  \
     DK_FAMILY_DOT,                                                                                          \
     reinterpret_cast<const void *>(&dk::dot_kernel<rows, vectors, threads, false>),                         \
     reinterpret_cast<const void *>(&dk::dot_kernel<rows, vectors, threads, true>),                          \
     rows,                                                                                                   \
     1,                                                                                                      \
     1,                                                                                                      \
     (threads) / 32,                                                                                         \
     (vectors)*256,                                                                                          \
     false,                                                                                                  \
     false,                                                                                                  \
     0,                                                                                                      \
     note},

extern "C" const struct dk_variant dk_dot_variants[] = {
#include "kernels/cuda/variants.def"
};
extern "C" const uint32_t dk_dot_variant_count = sizeof dk_dot_variants / sizeof dk_dot_variants[0];
