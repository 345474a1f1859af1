/* partial_mma.cuh: the first of the two launches on the tensor cores: bf16 or fp16 operands with 16-byte
 * aligned rows. */
#ifndef DK_KERNELS_CUDA_PARTIAL_MMA_CUH
#define DK_KERNELS_CUDA_PARTIAL_MMA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/ptx_sm90.cuh"

namespace dk
{

__device__ __forceinline__ void mma_of(float (&d)[4], const uint4 (&y)[2], const uint4 &x, __nv_bfloat16)
{
    mma_m16n8k16(d, y[0].x, y[1].x, y[0].y, y[1].y, x.x, x.y);
    mma_m16n8k16(d, y[0].z, y[1].z, y[0].w, y[1].w, x.z, x.w);
}
__device__ __forceinline__ void mma_of(float (&d)[4], const uint4 (&y)[2], const uint4 &x, __half)
{
    mma_m16n8k16_fp16(d, y[0].x, y[1].x, y[0].y, y[1].y, x.x, x.y);
    mma_m16n8k16_fp16(d, y[0].z, y[1].z, y[0].w, y[1].w, x.z, x.w);
}

constexpr int kPartialWarps = 4, kPartialColumns = kPartialWarps * 16;

/* grid (ceil(n / 64), S, ceil(m / (8 * TILES))); k, chunk_k and both strides multiples of 8. The rows of the
 * mma are B's, so that few rows of A waste little; a lane's 16 bytes are a fragment, straight from L2: K
 * order is free as long as both operands share it. An element's bits depend on k and chunk_k only, not on
 * TILES. */
template <typename T, int TILES>
__global__ void __launch_bounds__(kPartialWarps * 32)
    partial_mma(const T *a, size_t a_row_elements, const T *b, size_t b_row_elements, float *partials,
                uint32_t m, uint32_t n, uint32_t k, uint32_t chunk_k)
{
    constexpr int kStepK = 32, kUnroll = TILES >= 8 ? 1 : TILES >= 4 ? 2 : 4;
    const uint32_t lane = threadIdx.x % 32, group = lane / 4, quarter = lane % 4;
    const uint32_t column = blockIdx.x * kPartialColumns + threadIdx.x / 32 * 16 + group;
    const uint32_t row = blockIdx.z * (8 * TILES) + group;
    const uint32_t k_first = blockIdx.y * chunk_k, k_last = min(k, k_first + chunk_k);
    const T *b_row = b + column * b_row_elements, *a_row = a + row * a_row_elements;
    float d[TILES][4] = {};

    grid_dependency_wait(); /* A may be, and the partials still are, in use by the kernels before */
    for (uint32_t step = k_first; step < k_last; step += kStepK * kUnroll) {
        uint4 y[kUnroll][2], x[kUnroll][TILES];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const uint32_t at = step + quarter * 8 + u * kStepK;
#pragma unroll
            for (int half = 0; half < 2; ++half)
                y[u][half] = at < k_last && column + half * 8 < n
                                 ? load_activations(b_row + half * 8 * b_row_elements + at)
                                 : make_uint4(0, 0, 0, 0);
#pragma unroll
            for (int t = 0; t < TILES; ++t)
                x[u][t] = at < k_last && row + t * 8 < m
                              ? load_activations(a_row + t * 8 * a_row_elements + at)
                              : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
#pragma unroll
            for (int t = 0; t < TILES; ++t)
                mma_of(d[t], y[u], x[u][t], T());
    }
    grid_dependency_trigger();
    const uint32_t first_row = blockIdx.z * (8 * TILES) + quarter * 2;
    float *chunk = partials + static_cast<size_t>(blockIdx.y) * m * n;
#pragma unroll
    for (int t = 0; t < TILES; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t to_row = first_row + t * 8 + i % 2, to_column = column + i / 2 * 8;
            if (to_row < m && to_column < n)
                chunk[static_cast<size_t>(to_row) * n + to_column] = d[t][i];
        }
}

} // namespace dk

#endif
