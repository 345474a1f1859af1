/* small_args.h: what every single-launch kernel is given; shared by C and CUDA. */
#ifndef DK_KERNELS_CUDA_SMALL_ARGS_H
#define DK_KERNELS_CUDA_SMALL_ARGS_H

#include <stdint.h>

/* bf16 A and W, both row-major along k with 16-byte aligned rows; k is a multiple of 8. */
struct dk_small_args {
    /* The first 48 bytes share a line of the constant cache, and a miss is 0.1 us of 2.5: what the fastest
     * kernels read. */
    const void *a;     /* [m, k] bf16, rows a_stride apart */
    const void *w;     /* [n, k] bf16, rows w_stride apart */
    void *c;           /* [m, n] fp32 or bf16, rows c_stride apart */
    const float *bias; /* [n] or NULL */
    uint32_t m, c_stride;
    float floor; /* least value of C: 0 for ReLU, else -infinity */
    uint32_t n;
    uint32_t k, a_stride, w_stride;
    uint32_t chunk_k; /* K of one block; all of it where nothing is split */
    uint32_t is_sigmoid, is_c_bf16;
    uint32_t is_dependent; /* launched so: A may be read after the wait only */
};

#endif
