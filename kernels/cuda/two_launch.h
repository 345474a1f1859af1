/* two_launch.h: the article's form in two launches, partial GEMMs over S chunks and a fixed-order reduction:
 * any shape. */
#ifndef DK_KERNELS_CUDA_TWO_LAUNCH_H
#define DK_KERNELS_CUDA_TWO_LAUNCH_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DK_TWO_LAUNCH_TILE_M = 16, DK_TWO_LAUNCH_TILE_N = 64, DK_TWO_LAUNCH_TILE_K = 32 };

struct dk_two_launch_args {
    uint32_t m, n, k;
    uint32_t split_k, chunk_k; /* split_k * chunk_k >= k */
    const void *d_a;           /* [m, k] of a_dtype */
    size_t a_row_elements;
    dk_dtype a_dtype;
    const void *d_b; /* [n, k] of b_dtype, rows b_row_elements apart */
    size_t b_row_elements;
    dk_dtype b_dtype;
    float *d_partials;   /* [split_k, m, n] */
    const float *d_bias; /* [n] or NULL */
    void *d_c;           /* [m, n] of c_dtype */
    size_t c_row_elements;
    dk_dtype c_dtype;
    dk_epilogue epilogue;
    bool is_dependent; /* both launches may start while the kernel before them drains */
};

/* Enqueue both launches on `stream`; capturable; returns the launch error. Element pointers need the
 * alignment of their type only. Chunks are summed in index order: equal inputs give equal bits. Source:
 * decompose-K article, section on the two stages. */
cudaError_t dk_two_launch_prepare(void); /* loads the kernels, so that a capture does not have to */
cudaError_t dk_two_launch_enqueue(const struct dk_two_launch_args *args, cudaStream_t stream);
/* The second launch alone: finish partials that something else wrote. */
cudaError_t dk_two_launch_reduce(const struct dk_two_launch_args *args, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
