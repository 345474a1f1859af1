/* diagonal.cuh: two experts per block on the tensor cores: the 16 rows of the mma are 2 experts x 8 K slots,
 * its 8 columns the same 8 K slots of one token, so the sums wanted lie on the diagonals. No cluster: for up
 * to four rows. */
#ifndef DK_KERNELS_CUDA_DIAGONAL_CUH
#define DK_KERNELS_CUDA_DIAGONAL_CUH

#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/ptx_sm90.cuh"

namespace dk
{

/* grid ceil(n / 2); block of `warps` <= WARPS with warps * STEPS * 256 >= k ; m <= ROWS.
 * IS_EXACT: warps * STEPS * 256 == k == both strides, n even, m == ROWS: nothing to check.
 * A lane's 16 bytes are one fragment: K order is free as long as W and A share it. Lanes of a warp read 512
 * contiguous bytes. */
template <int ROWS, int STEPS, int WARPS, bool IS_EXACT, bool IS_LEAN>
__global__ void __launch_bounds__(WARPS * 32) diagonal_kernel(const __grid_constant__ dk_small_args args)
{
    constexpr int kStepK = 256;
    /* Sums of (row, expert) by warp and slot; + 4 keeps rows out of one another's banks. */
    __shared__ float sums[ROWS * 2][WARPS * 8 + 4];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32,
                   warps = IS_EXACT ? WARPS : blockDim.x / 32;
    const uint32_t slot = lane / 4, quarter = lane % 4;
    const uint32_t first_k = warp * (STEPS * kStepK) + lane * 8;
    const uint32_t n0 = blockIdx.x * 2;
    /* An odd n repeats its last expert and does not store it twice. */
    const uint32_t n1 = IS_EXACT ? n0 + 1 : min(n0 + 1, args.n - 1);
    static_assert(WARPS % 2 == 0, "see exact_bias");
    constexpr uint32_t kExactK = WARPS * STEPS * kStepK;
    const uint32_t w_stride = IS_EXACT ? kExactK : args.w_stride,
                   a_stride = IS_EXACT ? kExactK : args.a_stride;
    const __nv_bfloat16 *w0 = static_cast<const __nv_bfloat16 *>(args.w) + static_cast<size_t>(n0) * w_stride;
    const __nv_bfloat16 *w1 = static_cast<const __nv_bfloat16 *>(args.w) + static_cast<size_t>(n1) * w_stride;
    uint4 w[STEPS][2];
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
        const uint32_t k = first_k + s * kStepK;
        const bool is_inside = IS_EXACT || k < args.k;
        w[s][0] = is_inside ? load_weights(w0 + k) : make_uint4(0, 0, 0, 0);
        w[s][1] = is_inside ? load_weights(w1 + k) : make_uint4(0, 0, 0, 0);
    }
    grid_dependency_trigger();
    grid_dependency_wait();
    uint4 a[ROWS][STEPS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const uint32_t k = first_k + s * kStepK;
            a[r][s] = IS_EXACT || (k < args.k && (ROWS == 1 || r < args.m))
                          ? load_activations(static_cast<const __nv_bfloat16 *>(args.a) +
                                             static_cast<size_t>(r) * a_stride + k)
                          : make_uint4(0, 0, 0, 0);
        }
    /* WARPS is even: all sums that a warp finishes are of one expert. */
    const float exact_bias = IS_EXACT ? load_bias<IS_LEAN>(args, n0 + warp % 2) : 0.0f;
    float d[ROWS][4] = {};
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            mma_m16n8k16(d[r], w[s][0].x, w[s][1].x, w[s][0].y, w[s][1].y, a[r][s].x, a[r][s].y);
            mma_m16n8k16(d[r], w[s][0].z, w[s][1].z, w[s][0].w, w[s][1].w, a[r][s].z, a[r][s].w);
        }
    /* A NaN or infinity of one slot reaches the off-diagonal sums only, which nobody reads: it stays in its
     * row. */
    if (quarter == slot / 2) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            sums[r * 2][warp * 8 + slot] = slot % 2 ? d[r][1] : d[r][0];
            sums[r * 2 + 1][warp * 8 + slot] = slot % 2 ? d[r][3] : d[r][2];
        }
    }
    __syncthreads();
    for (uint32_t i = warp; i < ROWS * 2; i += warps) {
        float sum = 0.0f;
#pragma unroll
        for (int p = 0; p < WARPS * 8; p += 32)
            sum += p + lane < warps * 8 ? sums[i][p + lane] : 0.0f;
#pragma unroll
        for (int distance = 16; distance > 0; distance >>= 1)
            sum += __shfl_xor_sync(0xffffffffu, sum, distance);
        const uint32_t row = i / 2, column = n0 + i % 2;
        if (lane == 0 && (IS_EXACT || (row < args.m && column < args.n)))
            store_element<IS_LEAN>(args, row, column, sum,
                                   IS_EXACT ? exact_bias : load_bias<IS_LEAN>(args, column));
    }
}

} // namespace dk

#endif
