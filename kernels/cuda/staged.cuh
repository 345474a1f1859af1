/* staged.cuh: the cluster form for 17 rows and more: W and A of a block lie in shared memory, so that each is
 * read from L2 once for a large tile, and the tensor cores follow the tree of tree.cuh all the same. */
#ifndef DK_KERNELS_CUDA_STAGED_CUH
#define DK_KERNELS_CUDA_STAGED_CUH

#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/ptx_sm90.cuh"
#include "kernels/cuda/tree.cuh"

namespace dk
{

/* The parts of a block's shared memory, as offsets in bytes. */
template <int TOKENS, int EXPERTS, int UNITS> struct StagedLayout {
    static constexpr int kPairs = (TOKENS / 2 + kChunks - 1) / kChunks; /* of tokens, that a rank owns */
    /* 64 bytes beyond the data: the 16-byte reads of two neighbouring rows then miss no bank. */
    static constexpr int kRowBytes = UNITS * kUnitK * 2 + 64;
    static constexpr int kA = EXPERTS * kRowBytes;
    static constexpr int kExchange = kA + TOKENS * kRowBytes;
    static constexpr int kInbox = kExchange + TOKENS * EXPERTS * 4;
    static constexpr int kBarriers = kInbox + kPairs * kChunks * EXPERTS * 8;
    static constexpr int kBytes = kBarriers + (UNITS + 1) * 8;
};

__device__ __forceinline__ uint4 load_bytes(const unsigned char *from)
{
    return *reinterpret_cast<const uint4 *>(from);
}

/* grid (ceil(n / EXPERTS) * 16, ceil(m / TOKENS)), cluster 16 along x, block of 256; chunk_k whole units, at
 * most UNITS. Warps 0..3 take the even units of a quarter of the tile each, warps 4..7 the odd ones.
 * IS_EXACT: 16 * UNITS * 64 == k == both strides, n a multiple of EXPERTS, m <= TOKENS. */
template <int TOKENS, int EXPERTS, int UNITS, bool IS_EXACT, bool IS_LEAN>
__global__ void __launch_bounds__(256, StagedLayout<TOKENS, EXPERTS, UNITS>::kBytes <= 113 * 1024 ? 2 : 1)
    staged_kernel(const __grid_constant__ dk_small_args args)
{
    using Layout = StagedLayout<TOKENS, EXPERTS, UNITS>;
    constexpr int kThreads = 256, kRowBytes = Layout::kRowBytes, kPairs = Layout::kPairs;
    constexpr int kGroups = EXPERTS / 32, kTiles = TOKENS / 16, kKeep = kTiles / 2;
    static_assert(kGroups >= 1 && kKeep >= 1, "a warp has 16 experts and 16 tokens at least");
    constexpr uint32_t kExactK = kChunks * UNITS * kUnitK;
    extern __shared__ __align__(16) unsigned char staged_memory[];
    const uint32_t memory = shared_address(staged_memory), inbox_barrier = memory + Layout::kBarriers;
    const auto unit_barrier = [&](uint32_t unit) { return inbox_barrier + 8 + unit * 8; };
    const uint32_t thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const uint32_t group = lane / 4, quarter = lane % 4;
    const uint32_t rank = blockIdx.x % kChunks, expert0 = blockIdx.x / kChunks * EXPERTS;
    const uint32_t row0 = IS_EXACT ? 0 : blockIdx.y * TOKENS,
                   m = IS_EXACT ? args.m : min(args.m - row0, TOKENS);
    const uint32_t w_stride = IS_EXACT ? kExactK : args.w_stride,
                   a_stride = IS_EXACT ? kExactK : args.a_stride;
    const uint32_t units = IS_EXACT ? UNITS : chunk_units(args.k);
    const uint32_t chunk_k = units * kUnitK, first_k = rank * chunk_k;

    /* 8 threads copy 128 contiguous bytes: a row's part of a unit. Rows beyond n or m stay as they are: what
     * is computed from them is not stored. */
    const uint32_t copy_row = thread / 8, copy_k = thread % 8 * 8;
    const __nv_bfloat16 *w_from = static_cast<const __nv_bfloat16 *>(args.w) +
                                  static_cast<size_t>(expert0 + copy_row) * w_stride + first_k + copy_k;
    const __nv_bfloat16 *a_from = static_cast<const __nv_bfloat16 *>(args.a) +
                                  static_cast<size_t>(row0 + copy_row) * a_stride + first_k + copy_k;
    const uint32_t copy_to = memory + copy_row * kRowBytes + copy_k * 2;
    const auto copy_w = [&](uint32_t unit) {
        const bool is_inside = IS_EXACT || first_k + unit * kUnitK + copy_k < args.k;
#pragma unroll
        for (int r = 0; r < EXPERTS; r += kThreads / 8)
            if (IS_EXACT || expert0 + copy_row + r < args.n)
                copy_async(copy_to + r * kRowBytes + unit * kUnitK * 2,
                           w_from + (is_inside ? static_cast<size_t>(r) * w_stride + unit * kUnitK : 0),
                           is_inside);
    };
    const auto copy_a = [&](uint32_t unit) {
        const bool is_inside = IS_EXACT || first_k + unit * kUnitK + copy_k < args.k;
#pragma unroll
        for (int r = 0; r < TOKENS; r += kThreads / 8)
            if (copy_row + r < m)
                copy_async(copy_to + Layout::kA + r * kRowBytes + unit * kUnitK * 2,
                           a_from + (is_inside ? static_cast<size_t>(r) * a_stride + unit * kUnitK : 0),
                           is_inside);
        copy_async_arrive(unit_barrier(unit));
    };
    copy_w(0);
    const uint32_t pairs = (m + 1) / 2, owned = pairs > rank ? (pairs - rank + kChunks - 1) / kChunks : 0;
    if (thread == 0) {
        for (uint32_t u = 0; u < units; ++u)
            mbarrier_init(unit_barrier(u), kThreads);
        mbarrier_init(inbox_barrier, 1);
        mbarrier_init_fence();
        if (owned > 0)
            mbarrier_arrive_expect(inbox_barrier, owned * kChunks * EXPERTS * 8);
    }
    __syncthreads();
    cluster_arrive_relaxed(); /* waited for below, before the first store into a neighbour */
    /* W and A in turns keep the tensor cores fed from the start; in a dependent launch A is not there yet. */
    if (args.is_dependent) {
#pragma unroll
        for (uint32_t u = 1; u < units; ++u)
            copy_w(u);
        grid_dependency_trigger();
        grid_dependency_wait();
#pragma unroll
        for (uint32_t u = 0; u < units; ++u)
            copy_a(u);
    } else {
        copy_a(0);
#pragma unroll
        for (uint32_t u = 1; u < units; ++u) {
            copy_w(u);
            copy_a(u);
        }
    }

    const uint32_t quadrant = warp % 4, parity = warp / 4;
    const uint32_t expert = quadrant % 2 * (EXPERTS / 2), token = quadrant / 2 * (TOKENS / 2);
    const unsigned char *w_at = staged_memory + (expert + group) * kRowBytes + quarter * 16;
    const unsigned char *a_at = staged_memory + Layout::kA + (token + group) * kRowBytes + quarter * 16;
    float sum[kGroups][kTiles][4] = {};
#pragma unroll
    for (uint32_t i = 0; i < (UNITS + 1) / 2; ++i) {
        const uint32_t unit = 2 * i + parity;
        if (unit >= units)
            break;
        mbarrier_wait(unit_barrier(unit), 0);
        float d[2][kGroups][kTiles][4] = {};
#pragma unroll
        for (int piece = 0; piece < 2; ++piece) {
            const uint32_t at = unit * kUnitK * 2 + piece * kPieceK * 2;
            uint4 w[kGroups][2], a[kTiles];
#pragma unroll
            for (int g = 0; g < kGroups; ++g)
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    w[g][half] = load_bytes(w_at + at + (g * 16 + half * 8) * kRowBytes);
#pragma unroll
            for (int t = 0; t < kTiles; ++t)
                a[t] = load_bytes(a_at + at + t * 8 * kRowBytes);
#pragma unroll
            for (int g = 0; g < kGroups; ++g)
#pragma unroll
                for (int t = 0; t < kTiles; ++t)
                    mma_m16n8k16(d[piece][g][t], w[g][0].x, w[g][1].x, w[g][0].y, w[g][1].y, a[t].x, a[t].y);
#pragma unroll
            for (int g = 0; g < kGroups; ++g)
#pragma unroll
                for (int t = 0; t < kTiles; ++t)
                    mma_m16n8k16(d[piece][g][t], w[g][0].z, w[g][1].z, w[g][0].w, w[g][1].w, a[t].z, a[t].w);
        }
#pragma unroll
        for (int g = 0; g < kGroups; ++g)
#pragma unroll
            for (int t = 0; t < kTiles; ++t)
#pragma unroll
                for (int i4 = 0; i4 < 4; ++i4)
                    sum[g][t][i4] += d[0][g][t][i4] + d[1][g][t][i4];
    }

    /* Even and odd units meet: each of two warps finishes half of their tile. */
    float4 *exchange = reinterpret_cast<float4 *>(staged_memory + Layout::kExchange);
    constexpr int kHalf = kGroups * kKeep;
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
#pragma unroll
        for (int t = 0; t < kKeep; ++t) {
            const float *mine = sum[g][t], *others = sum[g][kKeep + t]; /* of parity 0 */
            exchange[((parity * 4 + quadrant) * kHalf + g * kKeep + t) * 32 + lane] =
                make_float4(parity == 0 ? others[0] : mine[0], parity == 0 ? others[1] : mine[1],
                            parity == 0 ? others[2] : mine[2], parity == 0 ? others[3] : mine[3]);
        }
    named_barrier(1 + quadrant, 64);
    cluster_wait();
    const uint32_t inbox = memory + Layout::kInbox;
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
#pragma unroll
        for (int t = 0; t < kKeep; ++t) {
            const float4 other =
                exchange[(((1 - parity) * 4 + quadrant) * kHalf + g * kKeep + t) * 32 + lane];
            float mine[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                mine[i] = parity == 0 ? sum[g][t][i] : sum[g][kKeep + t][i];
            const uint32_t pair = (token + (parity * kKeep + t) * 8) / 2 + quarter, owner = pair % kChunks;
            if (pair < pairs) {
                const uint32_t to = map_to_rank(
                    inbox + ((pair / kChunks * kChunks + rank) * EXPERTS + expert + g * 16 + group) * 8,
                    owner);
                const uint32_t barrier = map_to_rank(inbox_barrier, owner);
                store_async_pair(to, mine[0] + other.x, mine[1] + other.y, barrier);
                store_async_pair(to + 8 * 8, mine[2] + other.z, mine[3] + other.w, barrier);
            }
        }
    const float *parts = reinterpret_cast<const float *>(staged_memory + Layout::kInbox);
    for (uint32_t i = thread; i < owned * EXPERTS; i += kThreads) {
        const uint32_t slot = i / EXPERTS, place = i % EXPERTS, column = expert0 + place;
        const float bias = IS_EXACT || column < args.n ? load_bias<IS_LEAN>(args, column) : 0.0f;
        mbarrier_wait(inbox_barrier, 0);
        const float *part = parts + (slot * kChunks * EXPERTS + place) * 2;
        const float first = sum_ranks<kChunks>(part, EXPERTS * 2),
                    second = sum_ranks<kChunks>(part + 1, EXPERTS * 2);
        const uint32_t row = (slot * kChunks + rank) * 2;
        if (IS_EXACT || column < args.n) {
            store_element<IS_LEAN>(args, row0 + row, column, first, bias);
            if (row + 1 < m)
                store_element<IS_LEAN>(args, row0 + row + 1, column, second, bias);
        }
    }
    static_assert(kPairs * kChunks * 2 >= TOKENS, "every token has an owner");
}

} // namespace dk

#endif
