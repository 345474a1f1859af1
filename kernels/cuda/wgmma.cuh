/* wgmma.cuh: decompose-K on the tensor cores' warpgroup instructions: the blocks of a cluster each take a
 * chunk of K through a ring of stages, then send their partials to the blocks that own them (st.async), which
 * add them up in chunk order and finish the elements. */
#ifndef DK_KERNELS_CUDA_WGMMA_CUH
#define DK_KERNELS_CUDA_WGMMA_CUH

#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/wgmma_args.h"
#include "kernels/cuda/wgmma_sm90.cuh"

namespace dk
{

__device__ __forceinline__ uint32_t divide_by_splits(uint32_t count, const dk_wgmma_args &args)
{
    return (count * args.splits_reciprocal) >> DK_WGMMA_RECIPROCAL_SHIFT;
}

/* A block's place and its shared memory: barriers, stages, inbox[slot][source rank]. Partials travel in
 * slots: four registers of a warp, 16 experts x 8 tokens. A block's slots, token group by token group and
 * warp by warp, are dealt to the ranks in turn, so that all ranks receive at the same pace. Rounds are four
 * slots of the owner; each has a barrier. */
template <int GROUPS, int TOKENS> struct wgmma_block {
    static constexpr uint32_t kExperts = GROUPS * 64, kWarps = GROUPS * 4, kUnits = TOKENS / 8;
    static constexpr uint32_t kWeightBytes = kExperts * 128, kStageBytes = (kExperts + TOKENS) * 128;
    static constexpr uint32_t kRoundSlots = 4;

    const dk_wgmma_args &args;
    const uint32_t shared; /* address */

    __device__ __forceinline__ wgmma_block(const dk_wgmma_args &arguments, uint32_t shared_memory)
        : args(arguments), shared(shared_memory)
    {
    }
    __device__ __forceinline__ uint32_t rank() const
    {
        return blockIdx.x;
    }
    __device__ __forceinline__ uint32_t expert0() const
    {
        return blockIdx.y * kExperts;
    }
    __device__ __forceinline__ uint32_t token0() const
    {
        return blockIdx.z * TOKENS;
    }
    __device__ __forceinline__ uint32_t rows() const
    {
        return min(args.m - token0(), static_cast<uint32_t>(TOKENS));
    }
    __device__ __forceinline__ uint32_t step0() const
    {
        return rank() * args.chunk_steps;
    }
    __device__ __forceinline__ uint32_t steps() const
    {
        return min(args.steps - step0(), args.chunk_steps);
    }
    __device__ __forceinline__ uint32_t full(uint32_t stage) const
    {
        return shared + stage * 8;
    }
    __device__ __forceinline__ uint32_t empty(uint32_t stage) const
    {
        return shared + (DK_WGMMA_MAX_STAGES + stage) * 8;
    }
    __device__ __forceinline__ uint32_t round(uint32_t index) const
    {
        return shared + (2 * DK_WGMMA_MAX_STAGES + index) * 8;
    }
    __device__ __forceinline__ uint32_t weights(uint32_t stage) const
    {
        return shared + DK_WGMMA_BARRIER_BYTES + stage * kStageBytes;
    }
    __device__ __forceinline__ uint32_t inbox(uint32_t slot, uint32_t source) const
    {
        return weights(args.stages) + (slot * args.splits + source) * DK_WGMMA_SLOT_BYTES;
    }
    /* Slots that fall to this rank: token groups without a row of A are left out. */
    __device__ __forceinline__ uint32_t owned_slots() const
    {
        const uint32_t sent = (rows() + 7) / 8 * kWarps;
        return sent > rank() ? divide_by_splits(sent - rank() + args.splits - 1, args) : 0;
    }
};

/* One thread feeds the ring. */
template <int GROUPS, int TOKENS> struct wgmma_producer {
    using block_type = wgmma_block<GROUPS, TOKENS>;
    const block_type &block;
    const CUtensorMap &w_map, &a_map;

    __device__ __forceinline__ void load_weights(uint32_t step, uint32_t stage) const
    {
        mbarrier_arrive_expect(block.full(stage), block_type::kStageBytes);
#pragma unroll
        for (int group = 0; group < GROUPS; ++group)
            load_box(block.weights(stage) + group * 64 * 128, &w_map,
                     (block.step0() + step) * DK_WGMMA_STEP_K, block.expert0() + group * 64,
                     block.full(stage));
    }
    __device__ __forceinline__ void load_tokens(uint32_t step, uint32_t stage) const
    {
        load_box(block.weights(stage) + block_type::kWeightBytes, &a_map,
                 (block.step0() + step) * DK_WGMMA_STEP_K, block.token0(), block.full(stage));
    }
    /* Stages asked for by start(). */
    __device__ __forceinline__ uint32_t ahead() const
    {
        const uint32_t wanted = block.args.is_dependent ? block.args.weights_ahead : DK_WGMMA_MAX_STAGES;
        return min(wanted, min(static_cast<uint32_t>(block.args.stages), block.steps()));
    }
    /* Before the block's barrier: what does not depend on the kernel before. */
    __device__ __forceinline__ void start() const
    {
#pragma unroll
        for (uint32_t i = 0; i < DK_WGMMA_MAX_STAGES; ++i)
            mbarrier_init(block.full(i), 1);
        mbarrier_init_fence();
        const uint32_t count = ahead();
#pragma unroll 1
        for (uint32_t i = 0; i < count; ++i) {
            load_weights(i, i);
            if (!block.args.is_dependent)
                load_tokens(i, i);
        }
    }
    __device__ __forceinline__ void finish() const
    {
        const uint32_t count = ahead(), stages = block.args.stages, steps = block.steps();
        if (block.args.is_dependent) {
            grid_dependency_wait();
#pragma unroll 1
            for (uint32_t i = 0; i < count; ++i)
                load_tokens(i, i);
        }
        uint32_t stage = count == stages ? 0 : count, parity = count == stages ? 0 : 1;
#pragma unroll 1
        for (uint32_t step = count; step < steps; ++step) {
            mbarrier_wait(block.empty(stage), parity); /* a fresh barrier passes at parity 1 */
            load_weights(step, stage);
            load_tokens(step, stage);
            if (++stage == stages) {
                stage = 0;
                parity ^= 1;
            }
        }
    }
};

/* The chunk's product of one warpgroup: 64 experts x TOKENS. */
template <int GROUPS, int TOKENS>
__device__ __forceinline__ void multiply_chunk(const wgmma_block<GROUPS, TOKENS> &block, uint32_t group,
                                               bool is_first, float (&d)[TOKENS / 2])
{
    const uint32_t steps = block.steps(), stages = block.args.stages;
    uint32_t stage = 0, parity = 0, last = 0;
#pragma unroll 1
    for (uint32_t step = 0; step < steps; ++step) {
        mbarrier_wait(block.full(stage), parity);
        const uint64_t w = wgmma_descriptor(block.weights(stage) + group * 64 * 128);
        const uint64_t a = wgmma_descriptor(block.weights(stage) + block.kWeightBytes);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < DK_WGMMA_STEP_K / 16; ++i)
            wgmma<TOKENS>::multiply(d, w + 2 * i, a + 2 * i);
        wgmma_commit();
        wgmma_wait<1>();
        if (is_first && step > 0)
            mbarrier_arrive(block.empty(last));
        last = stage;
        if (++stage == stages) {
            stage = 0;
            parity ^= 1;
        }
    }
    wgmma_wait<0>();
    wgmma_pin(d);
}

/* Each slot to its owner; one's own goes through shared memory as well, for the warps that add up. */
template <int GROUPS, int TOKENS>
__device__ __forceinline__ void send_slots(const wgmma_block<GROUPS, TOKENS> &block, uint32_t warp,
                                           uint32_t lane, const float (&d)[TOKENS / 2])
{
    using block_type = wgmma_block<GROUPS, TOKENS>;
    const uint32_t units = (block.rows() + 7) / 8, splits = block.args.splits, rank = block.rank();
    const uint32_t step_slots = divide_by_splits(block_type::kWarps, block.args);
    const uint32_t step_owner = block_type::kWarps - step_slots * splits;
    uint32_t slot = divide_by_splits(warp, block.args), owner = warp - slot * splits;
    /* Blocks of one expert tile are neighbours in the cluster. */
    const uint32_t first = block.args.column_tiles > 1 ? blockIdx.y % block.args.column_tiles * splits : 0;
#pragma unroll
    for (uint32_t unit = 0; unit < block_type::kUnits; ++unit) {
        if (unit >= units)
            break;
        const float4 value = make_float4(d[unit * 4], d[unit * 4 + 1], d[unit * 4 + 2], d[unit * 4 + 3]);
        const uint32_t to = block.inbox(slot, rank) + lane * 16;
        const uint32_t barrier = block.round(slot / block_type::kRoundSlots);
        if (owner != rank) {
            const uint32_t window = map_to_rank(block.shared, first + owner) - block.shared;
            store_async(window + to, value, window + barrier);
        } else {
            store_shared(to, value);
            __syncwarp();
            if (lane == 0)
                mbarrier_arrive(barrier);
        }
        slot += step_slots;
        owner += step_owner;
        if (owner >= splits) {
            owner -= splits;
            ++slot;
        }
    }
}

/* Barriers of the rounds, by one thread: one arrival with the bytes of the other ranks, one of each slot of
 * this rank. */
template <int GROUPS, int TOKENS>
__device__ __forceinline__ void init_rounds(const wgmma_block<GROUPS, TOKENS> &block)
{
    using block_type = wgmma_block<GROUPS, TOKENS>;
    uint32_t owned = block.owned_slots();
#pragma unroll 1
    for (uint32_t barrier = block.round(0); owned > 0; barrier += 8) {
        const uint32_t slots = min(owned, block_type::kRoundSlots);
        mbarrier_init(barrier, 1 + slots);
        mbarrier_init_fence();
        mbarrier_arrive_expect(barrier, slots * (block.args.splits - 1) * DK_WGMMA_SLOT_BYTES);
        owned -= slots;
    }
}

/* 128 threads: the sums of this block's slots over all ranks, in rank order. A thread takes VECTOR
 * neighbouring values; fewer slots than four are spread over all threads by a smaller one. */
template <int GROUPS, int TOKENS, int VECTOR, bool IS_LEAN>
__device__ __forceinline__ void add_slots(const wgmma_block<GROUPS, TOKENS> &block, uint32_t owned,
                                          uint32_t thread)
{
    using block_type = wgmma_block<GROUPS, TOKENS>;
    constexpr uint32_t kBatch = VECTOR == 4 ? 8 : 16; /* loads in flight */
    const dk_small_args args = {.c = block.args.c,
                                .bias = block.args.bias,
                                .c_stride = block.args.c_stride,
                                .floor = block.args.floor,
                                .is_sigmoid = block.args.is_sigmoid,
                                .is_c_bf16 = block.args.is_c_bf16};
    const uint32_t n = block.args.n, splits = block.args.splits, rows = block.rows();
    const uint32_t place = thread * VECTOR % 128, lane = place / 4,
                   part = place % 4; /* of the sending warp */
    for (uint32_t slot = thread * VECTOR / 128; slot < owned; slot += block_type::kRoundSlots) {
        const uint32_t index = slot * splits + block.rank(); /* as dealt */
        const uint32_t warp = index % block_type::kWarps, unit = index / block_type::kWarps;
        const uint32_t expert = block.expert0() + warp * 16 + lane / 4, token = unit * 8 + lane % 4 * 2;
        float bias[2] = {};
#pragma unroll
        for (int half = 0; half < 2; ++half)
            if (!IS_LEAN && expert + half * 8 < n)
                bias[half] = load_bias<IS_LEAN>(args, expert + half * 8);
        float sum[VECTOR] = {};
        mbarrier_wait(block.round(slot / block_type::kRoundSlots), 0);
#pragma unroll 1
        for (uint32_t source0 = 0; source0 < splits; source0 += kBatch) {
            float values[kBatch][VECTOR] = {};
#pragma unroll
            for (uint32_t i = 0; i < kBatch; ++i)
                if (source0 + i < splits)
                    load_shared(block.inbox(slot, source0 + i) + place * 4, values[i]);
#pragma unroll
            for (uint32_t i = 0; i < kBatch; ++i)
#pragma unroll
                for (int x = 0; x < VECTOR; ++x)
                    sum[x] += values[i][x];
        }
#pragma unroll
        for (int x = 0; x < VECTOR; ++x) {
            const uint32_t half = (part + x) / 2, row = token + (part + x) % 2, column = expert + half * 8;
            if (row < rows && column < n)
                store_element<IS_LEAN>(args, block.token0() + row, column, sum[x], half ? bias[1] : bias[0]);
        }
    }
}

/* grid (splits, column tiles, row tiles), cluster (splits, args.column_tiles), GROUPS warpgroups that
 * multiply and one that feeds them and adds up; dynamic shared memory of dk_wgmma_shared_bytes. GROUPS
 * experts of a block / 64     TOKENS   tokens of a block, a multiple of 8, at most 256 A row's sum depends on
 * k and the split alone. */
template <int GROUPS, int TOKENS, bool IS_LEAN>
__global__ void __launch_bounds__(GROUPS * 128 + 128, 1)
    wgmma_kernel(const __grid_constant__ dk_wgmma_args args, const __grid_constant__ CUtensorMap w_map,
                 const __grid_constant__ CUtensorMap a_map)
{
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    constexpr uint32_t kFeeders = GROUPS * 4; /* first warp of the other warpgroup */
    const wgmma_block<GROUPS, TOKENS> block(args, shared_address(shared_memory));
    const wgmma_producer<GROUPS, TOKENS> producer = {block, w_map, a_map};
    const uint32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const bool is_elected = elect_lane();
    if (warp == kFeeders) {
        if (is_elected)
            producer.start();
    } else if (warp == kFeeders + 1) {
        if (is_elected) {
#pragma unroll
            for (uint32_t i = 0; i < DK_WGMMA_MAX_STAGES; ++i)
                mbarrier_init(block.empty(i), GROUPS);
            mbarrier_init_fence();
        }
    } else if (warp == kFeeders + 2) {
        if (is_elected)
            init_rounds(block);
    } else if (warp == kFeeders + 3) {
        grid_dependency_trigger();
    }
    __syncthreads();
    cluster_arrive_relaxed(); /* waited for below, before the first store into a neighbour */
    if (warp < kFeeders) {
        float d[TOKENS / 2] = {};
        multiply_chunk(block, warp / 4, warp % 4 == 0 && is_elected, d);
        cluster_wait();
        send_slots(block, warp, lane, d);
    } else {
        if (warp == kFeeders && is_elected)
            producer.finish();
        __syncwarp();
        cluster_wait();
        /* A block that owns slots stays until all their parts are in, so no neighbour stores into memory that
         * was let go. */
        const uint32_t owned = block.owned_slots(), thread = threadIdx.x % 128;
        if (owned > 2)
            add_slots<GROUPS, TOKENS, 4, IS_LEAN>(block, owned, thread);
        else if (owned == 2)
            add_slots<GROUPS, TOKENS, 2, IS_LEAN>(block, owned, thread);
        else
            add_slots<GROUPS, TOKENS, 1, IS_LEAN>(block, owned, thread);
    }
}

} // namespace dk

#endif
