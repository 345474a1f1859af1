/* dot.cuh: one expert per block, the whole of K in registers, fp32 FMA: the fastest form for one or two rows.
 */
#ifndef DK_KERNELS_CUDA_DOT_CUH
#define DK_KERNELS_CUDA_DOT_CUH

#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/ptx_sm90.cuh"

namespace dk
{

/* grid n; block a multiple of 32 with VECTORS * 8 * blockDim >= k ; m <= ROWS.
 * IS_EXACT: THREADS * VECTORS * 8 == k == both strides, m == ROWS: nothing to check.
 * Weights are requested first, then the next kernel is let in, and only then does this one wait for the
 * kernel before it: with the trigger before the loads or at the end a chain of layers is a third slower. */
template <int ROWS, int VECTORS, int THREADS, bool IS_EXACT, bool IS_LEAN>
__global__ void __launch_bounds__(THREADS) dot_kernel(const __grid_constant__ dk_small_args args)
{
    constexpr int kWarps = THREADS / 32;
    __shared__ float sums[ROWS][kWarps + 1];
    const uint32_t thread = threadIdx.x, threads = IS_EXACT ? THREADS : blockDim.x, vector_count = args.k / 8;
    const uint32_t w_stride = IS_EXACT ? THREADS * VECTORS : args.w_stride / 8;
    const uint32_t a_stride = IS_EXACT ? THREADS * VECTORS : args.a_stride / 8;
    const uint4 *w = static_cast<const uint4 *>(args.w) + static_cast<size_t>(blockIdx.x) * w_stride;
    const uint4 *a = static_cast<const uint4 *>(args.a);
    uint4 wv[VECTORS];
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        const uint32_t i = thread + v * threads;
        wv[v] = IS_EXACT || i < vector_count ? load_weights(w + i) : make_uint4(0, 0, 0, 0);
    }
    grid_dependency_trigger();
    grid_dependency_wait();
    uint4 av[ROWS][VECTORS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
            const uint32_t i = thread + v * threads;
            /* A zero beyond k on both sides: 0 * 0, never 0 * infinity. */
            av[r][v] = IS_EXACT || (i < vector_count && (ROWS == 1 || r < args.m))
                           ? load_activations(a + static_cast<size_t>(r) * a_stride + i)
                           : make_uint4(0, 0, 0, 0);
        }
    const float bias = load_bias<IS_LEAN>(args, blockIdx.x);
    float sum[ROWS] = {};
#pragma unroll
    for (int v = 0; v < VECTORS; ++v)
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const uint32_t x[4] = {av[r][v].x, av[r][v].y, av[r][v].z, av[r][v].w};
            const uint32_t y[4] = {wv[v].x, wv[v].y, wv[v].z, wv[v].w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                sum[r] = fmaf(low_half(x[i]), low_half(y[i]), sum[r]);
                sum[r] = fmaf(high_half(x[i]), high_half(y[i]), sum[r]);
            }
        }
#pragma unroll
    for (int distance = 16; distance > 0; distance >>= 1)
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
            sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], distance);
    if (thread % 32 == 0)
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
            sums[r][thread / 32] = sum[r];
    __syncthreads();
    if (thread < ROWS && (IS_EXACT || ROWS == 1 || thread < args.m)) {
        const uint32_t warps = threads / 32;
        float even = 0.0f, odd = 0.0f;
#pragma unroll
        for (int i = 0; i < kWarps; i += 2) {
            if (IS_EXACT || i < warps)
                even += sums[thread][i];
            if (i + 1 < kWarps && (IS_EXACT || i + 1 < warps))
                odd += sums[thread][i + 1];
        }
        store_element<IS_LEAN>(args, thread, blockIdx.x, even + odd, bias);
    }
}

} // namespace dk

#endif
