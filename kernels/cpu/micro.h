/* micro.h: what an instruction set provides: one micro-kernel and the width conversions around it. */
#ifndef DK_KERNELS_CPU_MICRO_H
#define DK_KERNELS_CPU_MICRO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/plan.h"

enum { DK_MICRO_ROWS = DK_PLAN_STRIP_ROWS }; /* most rows of one micro-kernel call */

/* How far ahead of its use packed B is asked for: weights that come from the third-level cache or memory need
 * 2 KiB or more, weights already near lose nothing up to 4 KiB. */
enum { DK_MICRO_AHEAD_BYTES = 4096 };

/* One strip: rows x width sums over k_count steps.
 * Packed B, [k_count] steps of `width` columns: fp32 and fp16 lie step by step; bf16 in pairs of steps,
 * column j of steps 2i and 2i+1 in the low and high half of 32-bit word i*width + j, so that one shift or one
 * mask widens it. Order of every sum (the contract that makes all instruction sets give the same bits): fused
 * multiply-adds in ascending k from +0 over DK_PLAN_INNER_K steps, that block's sum added to c in ascending
 * order; the first block replaces c unless `is_accumulating`. */
struct dk_micro {
    dk_dtype b_dtype;
    uint32_t width;  /* 16, 32 or 64 */
    uint32_t rows;   /* 1..DK_MICRO_ROWS */
    size_t k_count;  /* >= 1 */
    const float *a;  /* [rows, k_count], row stride a_stride */
    size_t a_stride; /* elements */
    const void *b;
    float *c; /* [rows, width], row stride c_stride */
    size_t c_stride;
    float *wide; /* not NULL: also receives B as fp32 [k_count, width]; 16-bit types only */
    bool is_accumulating;
};

struct dk_isa {
    const char *name;
    const char *variant_names[2]; /* by enum dk_plan_form: SPLIT, TILED */
    bool (*is_supported)(void);
    void (*micro)(const struct dk_micro *call);
    /* Exact widening of `count` elements at any alignment. */
    void (*widen)(const void *src, dk_dtype src_dtype, float *dst, size_t count);
    /* Rounding to nearest even; bits as dk_convert_from_float. `dst` at any alignment. */
    void (*narrow)(const float *src, void *dst, dk_dtype dst_dtype, size_t count);
};

/* Best supported set, or the one named; DK_BAD_VALUE for an unknown name, DK_UNAVAILABLE when this machine or
 * build lacks it. */
dk_status dk_isa_find(const char *name, const struct dk_isa **out, struct dk_error *error);

extern const struct dk_isa dk_isa_portable;
#ifdef DK_HAVE_X86_KERNELS
extern const struct dk_isa dk_isa_avx2, dk_isa_avx512;
#endif

#endif
