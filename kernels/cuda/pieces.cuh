/* pieces.cuh: one expert a block and all of K in registers, on the tensor cores with the tree of tree.cuh:
 * the single-block form of what the cluster kernels compute, for one or two rows. */
#ifndef DK_KERNELS_CUDA_PIECES_CUH
#define DK_KERNELS_CUDA_PIECES_CUH

#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/ptx_sm90.cuh"
#include "kernels/cuda/tree.cuh"

namespace dk
{

/* grid n; block of `warps` <= WARPS with warps * STEPS * 256 >= k rounded up to whole units a chunk; m <=
 * ROWS. IS_EXACT: WARPS * STEPS * 256 == k == both strides, m == ROWS: nothing to check. A lane's 16 bytes
 * are one fragment: the mma's rows are 8 pieces of row 0 and 8 of row 1, its columns the same pieces of the
 * expert, and what is wanted lies on the diagonals. */
template <int ROWS, int STEPS, int WARPS, bool IS_EXACT, bool IS_LEAN>
__global__ void __launch_bounds__(WARPS * 32) pieces_kernel(const __grid_constant__ dk_small_args args)
{
    constexpr int kStepK = 256, kMaxUnits = chunk_units(WARPS * STEPS * kStepK);
    static_assert(ROWS == 1 || ROWS == 2, "16 rows of the mma");
    __shared__ __align__(16) float pieces[ROWS][WARPS * STEPS * 8];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t warps = IS_EXACT ? WARPS : blockDim.x / 32;
    const uint32_t slot = lane / 4, quarter = lane % 4;
    constexpr uint32_t kExactK = WARPS * STEPS * kStepK;
    const uint32_t w_stride = IS_EXACT ? kExactK : args.w_stride,
                   a_stride = IS_EXACT ? kExactK : args.a_stride;
    const __nv_bfloat16 *w_row =
        static_cast<const __nv_bfloat16 *>(args.w) + static_cast<size_t>(blockIdx.x) * w_stride;
    uint4 w[STEPS];
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
        const uint32_t k = (s * warps + warp) * kStepK + lane * 8;
        w[s] = IS_EXACT || k < args.k ? load_weights(w_row + k) : make_uint4(0, 0, 0, 0);
    }
    grid_dependency_trigger();
    grid_dependency_wait();
    uint4 a[2][STEPS] = {};
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const uint32_t k = (s * warps + warp) * kStepK + lane * 8;
            if (IS_EXACT || (k < args.k && (ROWS == 1 || r < args.m)))
                a[r][s] = load_activations(static_cast<const __nv_bfloat16 *>(args.a) +
                                           static_cast<size_t>(r) * a_stride + k);
        }
    const float bias = load_bias<IS_LEAN>(args, blockIdx.x);
    float d[STEPS][4] = {};
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
        mma_m16n8k16(d[s], a[0][s].x, a[1][s].x, a[0][s].y, a[1][s].y, w[s].x, w[s].y);
        mma_m16n8k16(d[s], a[0][s].z, a[1][s].z, a[0][s].w, a[1][s].w, w[s].z, w[s].w);
    }
    /* A NaN or infinity of one piece reaches off-diagonal sums only, which nobody reads: it stays in its row.
     */
    if (quarter == slot / 2) {
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
                pieces[r][(s * warps + warp) * 8 + slot] = slot % 2 ? d[s][2 * r + 1] : d[s][2 * r];
    }
    __syncthreads();
    if (warp > 0)
        return;
    /* 16 lanes a row, a chunk each. */
    const uint32_t row = ROWS == 1 ? 0 : lane / kChunks;
    const uint32_t units = chunk_units(IS_EXACT ? kExactK : args.k);
    const float2 *pairs = reinterpret_cast<const float2 *>(pieces[row]) + lane % kChunks * units;
    float even = 0.0f, odd = 0.0f;
#pragma unroll
    for (int i = 0; i < kMaxUnits; ++i) {
        const float2 pair = IS_EXACT || i < units ? pairs[i] : make_float2(0.0f, 0.0f);
        (i % 2 ? odd : even) += pair.x + pair.y;
    }
    float chunk = even + odd;
    chunk += __shfl_xor_sync(0xffffffffu, chunk, 1);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kChunks; i += 2)
        sum += __shfl_sync(0xffffffffu, chunk, i, kChunks);
    if (lane % kChunks == 0 && lane < ROWS * kChunks && (IS_EXACT || ROWS == 1 || row < args.m))
        store_element<IS_LEAN>(args, row, blockIdx.x, sum, bias);
}

} // namespace dk

#endif
