/* small_args.h: what every single-launch kernel is given; shared by C and CUDA. */
#ifndef DK_KERNELS_CUDA_SMALL_ARGS_H
#define DK_KERNELS_CUDA_SMALL_ARGS_H

#include <stdint.h>

/* bf16 A and W, both row-major along k with 16-byte aligned rows; k is a multiple of 8. */
struct dk_small_args {
    const void *a;     /* [m, k] bf16, rows a_stride apart */
    const void *w;     /* [n, k] bf16, rows w_stride apart */
    const float *bias; /* [n] or NULL */
    void *c;           /* [m, n] fp32 or bf16, rows c_stride apart */
    uint32_t a_stride, w_stride, c_stride;
    uint32_t m, n, k;
    uint32_t chunk_k;  /* K of one block; all of it where nothing is split */
    uint16_t epilogue; /* dk_epilogue */
    uint16_t is_c_bf16;
};

#endif
