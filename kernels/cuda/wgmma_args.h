/* wgmma_args.h: what the wgmma kernels are given beside their tensor maps, and how their shared memory is
 * laid out; shared by C and CUDA. */
#ifndef DK_KERNELS_CUDA_WGMMA_ARGS_H
#define DK_KERNELS_CUDA_WGMMA_ARGS_H

#include "kernels/cuda/small_args.h"

enum {
    DK_WGMMA_STEP_K = 64,   /* K of one stage: a row of 128 bytes */
    DK_WGMMA_BOX_ROWS = 64, /* weight rows of one tensor map box: a warpgroup's */
    DK_WGMMA_MAX_STAGES = 16,
    DK_WGMMA_MAX_ROUNDS = 64,
    DK_WGMMA_SLOT_BYTES = 512,    /* one warp's four registers: 16 experts x 8 tokens */
    DK_WGMMA_BARRIER_BYTES = 1024 /* full and empty barrier of each stage, one barrier of each round */
};

/* bf16 A and W as the tensor maps say; the first 48 bytes share a line of the constant cache, and a miss
 * before the first load is 0.1 us of 4. */
struct dk_wgmma_args {
    void *c; /* [m, n] fp32 or bf16, rows c_stride apart */
    uint32_t m, n, c_stride;
    float floor;                /* least value of C: 0 for ReLU, else -infinity */
    uint32_t steps;             /* of DK_WGMMA_STEP_K along K, rounded up */
    uint32_t chunk_steps;       /* of one block; the last may have fewer, none has none */
    uint32_t splits_reciprocal; /* dk_wgmma_reciprocal(splits) */
    uint8_t splits;             /* blocks along K; splits * column_tiles blocks are a cluster */
    uint8_t column_tiles;       /* neighbouring expert tiles in one cluster */
    uint8_t stages;             /* of the ring; stages + slots must fit in shared memory */
    uint8_t weights_ahead; /* stages whose weights are asked for before the kernel before is waited for */
    uint8_t is_dependent;
    uint8_t is_sigmoid, is_c_bf16;
    const float *bias; /* [n] or NULL */
};

/* Division of a count of slots by a count of blocks: exact below 2^12 for divisors up to 32. */
enum { DK_WGMMA_RECIPROCAL_SHIFT = 20 };
static inline uint32_t dk_wgmma_reciprocal(uint32_t splits)
{
    return ((1u << DK_WGMMA_RECIPROCAL_SHIFT) + splits - 1) / splits;
}

/* One stage: 64 of K of a block's experts and tokens. */
static inline uint32_t dk_wgmma_stage_bytes(uint32_t experts, uint32_t tokens)
{
    return (experts + tokens) * DK_WGMMA_STEP_K * 2;
}
/* Most slots of 16 experts x 8 tokens that one of `splits` blocks finishes. */
static inline uint32_t dk_wgmma_slots(uint32_t experts, uint32_t tokens, uint32_t splits)
{
    return (experts / 16 * (tokens / 8) + splits - 1) / splits;
}
static inline uint32_t dk_wgmma_shared_bytes(uint32_t experts, uint32_t tokens, uint32_t splits,
                                             uint32_t stages)
{
    return DK_WGMMA_BARRIER_BYTES + stages * dk_wgmma_stage_bytes(experts, tokens) +
           dk_wgmma_slots(experts, tokens, splits) * splits * DK_WGMMA_SLOT_BYTES;
}

#endif
