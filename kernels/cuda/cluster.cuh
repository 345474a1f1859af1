/* cluster.cuh: decompose-K inside one launch: the blocks of a cluster each take a chunk of K and send their
 * partials to the block that owns the row (st.async + mbarrier), which sums them in chunk order and finishes
 * the element.
 *
 * All but the long and chained kernels add a row's products up in one order, the tree of tree.cuh, whatever
 * their tile.
 */
#ifndef DK_KERNELS_CUDA_CLUSTER_CUH
#define DK_KERNELS_CUDA_CLUSTER_CUH

#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/ptx_sm90.cuh"
#include "kernels/cuda/tree.cuh"

namespace dk
{

/* Sum over the SLOTS K slots of a fragment and put it into shared memory: sums[(token) * stride + expert].
 * The mma's rows are (16 / SLOTS experts) x SLOTS slots and its columns (8 / SLOTS tokens) x SLOTS slots;
 * only equal slots belong together, and the lanes that hold them are found by xor. */
template <int SLOTS>
__device__ __forceinline__ void store_fragment(const float (&d)[4], uint32_t group, uint32_t quarter,
                                               float *sums, uint32_t stride, uint32_t token0,
                                               uint32_t expert0)
{
    if constexpr (SLOTS == 1) {
        float *p = sums + (token0 + 2 * quarter) * stride + expert0 + group;
        p[0] = d[0];
        p[stride] = d[1];
        p[8] = d[2];
        p[stride + 8] = d[3];
    } else {
        static_assert(SLOTS == 2, "1 or 2 slots");
        const float low = group % 2 ? d[1] : d[0], high = group % 2 ? d[3] : d[2];
        const float received = __shfl_xor_sync(0xffffffffu, group % 2 ? low : high, 4);
        const float sum =
            (group % 2 ? high : low) + received; /* even lanes keep the low expert, odd ones the high */
        sums[(token0 + quarter) * stride + expert0 + (group % 2) * 4 + group / 2] = sum;
    }
}

/* Blocks per SM asked of the compiler: without a number it saves registers by loading A piece after piece,
 * each at the full latency (T=8: 0.3 us); with one too high it spills. */
constexpr int min_blocks(int warps, int groups, int tiles, int steps, bool is_long)
{
    const int registers = 4 * steps * (2 * groups + tiles) + 4 * groups * tiles + 28;
    const int blocks = (registers > 104 ? 14 : 28) / warps;
    return blocks < 1 || is_long ? 1 : blocks;
}

/* grid (ceil(n / EXPERTS) * SPLITS, ceil(m / TOKENS)), cluster SPLITS along x, block of `warps` <= WARPS with
 * SPLITS * chunk_k >= k. A warp holds STEPS * SLOTS pieces of K at once; one pass unless IS_LONG.
 *   SLOTS   K slots among the mma's 8 row (and column) groups: 2 reads whole 128-byte lines
 *   GROUPS  mma row groups: EXPERTS = GROUPS * 16 / SLOTS
 *   TILES   mma column tiles: TOKENS = TILES * 8 / SLOTS
 *   IS_CHAINED  a warp's steps are neighbours along K and share accumulators: fewer sums, not the shared tree
 *
 * IS_EXACT: warps == WARPS, SPLITS * chunk_k == k == both strides, chunk_k == WARPS * STEPS * SLOTS * 32, n a
 * multiple of EXPERTS, m <= TOKENS: fewer checks. */
template <int SLOTS, int GROUPS, int TILES, int SPLITS, int STEPS, int WARPS, bool IS_LONG, bool IS_CHAINED,
          bool IS_EXACT, bool IS_LEAN>
__global__ void __launch_bounds__(WARPS * 32, min_blocks(WARPS, GROUPS, TILES, STEPS, IS_LONG))
    cluster_kernel(const __grid_constant__ dk_small_args args)
{
    constexpr int kPerGroup = 8 / SLOTS; /* experts (and tokens) in 8 slots */
    constexpr int kExperts = GROUPS * 16 / SLOTS, kTokens = TILES * kPerGroup;
    constexpr int kStride = kExperts + 4;
    /* Two slots make a unit of one step, one slot a unit of two steps. */
    constexpr int kSteps = SLOTS == 1 || IS_CHAINED ? 1 : STEPS, kUnits = WARPS * kSteps;
    constexpr int kChains = IS_CHAINED ? 1 : STEPS;
    constexpr uint32_t kWarpK = IS_CHAINED ? STEPS * kUnitK : kUnitK; /* before the next warp's K */
    static_assert(!IS_CHAINED || (SLOTS == 2 && SPLITS == kChunks / 2 && !IS_LONG), "see IS_CHAINED");
    static_assert(SLOTS == 2 || (SLOTS == 1 && STEPS == 2 && !IS_LONG), "a warp's step or two are units");
    static_assert(!IS_LONG || STEPS == 1, "the passes of a long kernel take the place of steps");
    constexpr int kOwned = (kTokens + SPLITS - 1) / SPLITS; /* tokens a rank can own */
    __shared__ __align__(16) float sums[kUnits][kTokens * kStride];
    __shared__ __align__(16) float inbox[kOwned][SPLITS][kExperts];
    __shared__ __align__(8) uint64_t barrier_word;
    const uint32_t thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const uint32_t threads = IS_EXACT ? WARPS * 32 : blockDim.x, warps = threads / 32;
    const uint32_t group = lane / 4, quarter = lane % 4;
    const uint32_t rank = blockIdx.x % SPLITS, expert0 = blockIdx.x / SPLITS * kExperts;
    const uint32_t chunk_k = IS_EXACT ? kUnits * kWarpK : args.chunk_k, pass_k = warps * kUnitK;
    /* Unit `step * warps + warp` of the chunk; with one slot its pieces are two steps of 32. */
    const uint32_t step_k = SLOTS == 1 ? kPieceK : IS_CHAINED ? kUnitK : pass_k;
    const uint32_t first_k = rank * chunk_k + warp * kWarpK + group % SLOTS * kPieceK + quarter * 8;
    const uint32_t end_k = IS_EXACT ? 0 : min(args.k, (rank + 1) * chunk_k);
    const uint32_t barrier = shared_address(&barrier_word);
    const uint32_t expert = expert0 + group / SLOTS;
    static_assert(32 % kExperts == 0, "each thread keeps to one column");
    constexpr uint32_t kExactK = SPLITS * kUnits * kWarpK;
    const uint32_t w_stride = IS_EXACT ? kExactK : args.w_stride,
                   a_stride = IS_EXACT ? kExactK : args.a_stride;
    const __nv_bfloat16 *w_row =
        static_cast<const __nv_bfloat16 *>(args.w) + static_cast<size_t>(expert) * w_stride;

    uint4 w[STEPS][GROUPS][2];
    const auto load_w = [&](uint32_t k0) {
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
#pragma unroll
            for (int g = 0; g < GROUPS; ++g)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const uint32_t k = k0 + s * step_k, ahead = (g * 2 + half) * kPerGroup;
                    w[s][g][half] = IS_EXACT || (k < end_k && expert + ahead < args.n)
                                        ? load_weights(w_row + static_cast<size_t>(ahead) * w_stride + k)
                                        : make_uint4(0, 0, 0, 0);
                }
    };
    load_w(first_k);
    grid_dependency_trigger();
    const uint32_t row0 = IS_EXACT ? 0 : blockIdx.y * kTokens,
                   m = IS_EXACT ? args.m : min(args.m - row0, kTokens);
    const uint32_t owned = m > rank ? (m - rank + SPLITS - 1) / SPLITS : 0;
    if (thread == 0) {
        mbarrier_init(barrier, 1);
        mbarrier_init_fence();
        if (owned > 0)
            mbarrier_arrive_expect(barrier, owned * SPLITS * kExperts * sizeof(float));
    }
    cluster_arrive_relaxed(); /* waited for below, before the first store into a neighbour */
    grid_dependency_wait();

    const __nv_bfloat16 *a_rows =
        static_cast<const __nv_bfloat16 *>(args.a) + static_cast<size_t>(row0) * a_stride;
    float d[kChains][GROUPS][TILES][4] = {};
    for (uint32_t k0 = first_k;;) {
        uint4 a[TILES][STEPS];
#pragma unroll
        for (int t = 0; t < TILES; ++t)
#pragma unroll
            for (int s = 0; s < STEPS; ++s) {
                const uint32_t token = t * kPerGroup + group / SLOTS, k = k0 + s * step_k;
                a[t][s] = token < m && (IS_EXACT || k < end_k)
                              ? load_activations(a_rows + static_cast<size_t>(token) * a_stride + k)
                              : make_uint4(0, 0, 0, 0);
            }
#pragma unroll
        for (int s = 0; s < STEPS; ++s)
#pragma unroll
            for (int g = 0; g < GROUPS; ++g)
#pragma unroll
                for (int t = 0; t < TILES; ++t) {
                    mma_m16n8k16(d[IS_CHAINED ? 0 : s][g][t], w[s][g][0].x, w[s][g][1].x, w[s][g][0].y,
                                 w[s][g][1].y, a[t][s].x, a[t][s].y);
                    mma_m16n8k16(d[IS_CHAINED ? 0 : s][g][t], w[s][g][0].z, w[s][g][1].z, w[s][g][0].w,
                                 w[s][g][1].w, a[t][s].z, a[t][s].w);
                }
        if constexpr (!IS_LONG)
            break;
        k0 += pass_k;
        if (k0 - first_k >= chunk_k) /* the same for all threads of the block: mma needs whole warps */
            break;
        load_w(k0);
    }
    /* All elements that a thread will finish are of one column: the block's threads are a multiple of
     * kExperts. */
    const uint32_t column = expert0 + thread % kExperts;
    const float bias =
        thread < owned * kExperts && (IS_EXACT || column < args.n) ? load_bias<IS_LEAN>(args, column) : 0.0f;
#pragma unroll
    for (int g = 0; g < GROUPS; ++g)
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
            if constexpr (SLOTS == 1)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    d[0][g][t][i] += d[1][g][t][i];
#pragma unroll
            for (int s = 0; s < kSteps; ++s)
                store_fragment<SLOTS>(d[s][g][t], group, quarter, sums[s * warps + warp], kStride,
                                      t * kPerGroup, g * 2 * kPerGroup);
        }
    __syncthreads();
    cluster_wait();
    /* One message per element: messages are the cost, so they carry the block's sum. */
    const uint32_t units = warps * kSteps;
    for (uint32_t i = thread; i < m * kExperts; i += threads) {
        const uint32_t token = i / kExperts, place = i % kExperts;
        const float *unit = &sums[0][token * kStride + place];
        float sum;
        if constexpr (IS_CHAINED) {
            sum = 0.0f;
#pragma unroll
            for (int x = 0; x < WARPS; ++x)
                sum += IS_EXACT || x < warps ? sums[x][token * kStride + place] : 0.0f;
        } else if constexpr (SPLITS == kChunks) {
            sum = sum_units<kUnits, IS_EXACT>(unit, kTokens * kStride, units);
        } else {
            static_assert(kUnits % 2 == 0, "two chunks a rank");
            const uint32_t half = IS_EXACT ? kUnits / 2 : (units + 1) / 2; /* odd in long kernels only */
            sum = sum_units<kUnits / 2, IS_EXACT>(unit, kTokens * kStride, half) +
                  sum_units<kUnits / 2, IS_EXACT>(unit + half * (kTokens * kStride), kTokens * kStride,
                                                  units - half);
        }
        const uint32_t owner = token % SPLITS;
        store_async(map_to_rank(shared_address(&inbox[token / SPLITS][rank][place]), owner), sum,
                    map_to_rank(barrier, owner));
    }
    /* A block that owns rows stays until all their parts are in, so no neighbour stores into memory that was
     * let go. */
    for (uint32_t i = thread; i < owned * kExperts; i += threads) {
        mbarrier_wait(barrier, 0);
        const uint32_t slot = i / kExperts;
        float sum = 0.0f;
        if constexpr (IS_CHAINED) {
#pragma unroll
            for (int x = 0; x < SPLITS; ++x)
                sum += inbox[slot][x][thread % kExperts];
        } else {
            sum = sum_ranks<SPLITS>(&inbox[slot][0][thread % kExperts], kExperts);
        }
        if (IS_EXACT || column < args.n)
            store_element<IS_LEAN>(args, row0 + slot * SPLITS + rank, column, sum, bias);
    }
}

} // namespace dk

#endif
