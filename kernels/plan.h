/* plan.h: how a product is cut: chunk length, split count and tiles from the shape alone. Pure. */
#ifndef DK_KERNELS_PLAN_H
#define DK_KERNELS_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "decomposek.h"

enum {
    DK_PLAN_CHUNK_K = 448,  /* K per chunk for ordinary K; a multiple of DK_PLAN_INNER_K */
    DK_PLAN_INNER_K = 32,   /* longest run of fused multiply-adds before a sum is set aside (CPU) */
    DK_PLAN_MAX_SPLIT = 64, /* above K = 64 * 448 chunks grow instead */
    DK_PLAN_PANEL_N = 64,   /* columns of one packed panel (CPU) */
    DK_PLAN_STRIP_ROWS = 6, /* most rows of one micro-kernel call (CPU) */
    DK_PLAN_ROW_BLOCK = 48, /* most rows of a task, whole strips (CPU) */
    DK_PLAN_MAX_GROUP = 4,  /* panels of one task (CPU) */
    DK_PLAN_WORKSPACE_CAP_BYTES = 32 << 20 /* a split plan never asks for more (CPU) */
};

/* How the CPU backend walks a product; the bits of the result are the same for SPLIT and TILED. */
enum dk_plan_form {
    DK_PLAN_SPLIT, /* chunk x tile tasks, partials in the workspace, the last arriver of a tile reduces it */
    DK_PLAN_TILED, /* tile tasks that walk the chunks in order and keep the sums in cache; no workspace */
    DK_PLAN_BLAS   /* one sgemm on fp32 copies */
};

/* K per chunk: a function of K alone, so that the summation tree of a row never depends on m, on the thread
 * count or on the instruction set. Tiny K gets tiny chunks: they keep the error bound provable (README.md).
 * k >= 1. */
uint32_t dk_plan_chunk_k(uint64_t k);
/* ceil(k / chunk_k). */
uint32_t dk_plan_split_k(uint64_t k, uint32_t chunk_k);
/* Most roundings that one product's contribution can meet on its way into C (bias and epilogue excluded):
 * the error is at most depth * 2^-24 * sum|a*b| to first order. */
uint64_t dk_plan_depth(uint64_t k, uint32_t chunk_k);
/* The contract's allowance in the same unit: 2 * (ceil(chunk_k/16) + split_k). */
uint64_t dk_plan_allowance(uint32_t chunk_k, uint32_t split_k);

/* Columns of packed panel `panel`: 64, or what is left of n rounded up to 16, 32 or 64; and of all panels. */
uint32_t dk_plan_panel_width(uint64_t n, uint64_t panel);
uint64_t dk_plan_padded_n(uint64_t n);

/* The CPU plan of one bucket; everything but `variant` is set. n, k >= 1; thread_count >= 1. */
void dk_plan_make_cpu(uint64_t n, uint64_t k, uint32_t bucket_rows, uint32_t thread_count,
                      struct dk_plan *out);
/* Bytes of one split workspace: fp32 [S, rows, n padded] and one arrival counter per tile. SIZE_MAX when the
 * size overflows. */
size_t dk_plan_split_workspace_bytes(uint64_t n, uint32_t split_k, uint32_t rows);
/* Same for the partials alone; the counters follow. */
size_t dk_plan_partials_bytes(uint64_t n, uint32_t split_k, uint32_t rows);
/* What every backend's plan must satisfy: S chunks cover k, tiles are not empty, a name, at least
 * `bucket_rows` rows. */
bool dk_plan_is_valid(const struct dk_plan *plan, uint64_t n, uint64_t k);

static inline uint64_t dk_ceil_div(uint64_t value, uint64_t divisor)
{
    return (value + divisor - 1) / divisor;
}
static inline uint64_t dk_round_up(uint64_t value, uint64_t multiple)
{
    return dk_ceil_div(value, multiple) * multiple;
}

#endif
