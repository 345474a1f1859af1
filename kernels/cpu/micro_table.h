/* micro_table.h: makes every specialisation of an including file's run_strip() and the table that picks one.
 * The includer defines, before this line:
 *   static inline __attribute__((always_inline)) void run_strip(const struct dk_micro *call, int rows,
 *                                                               int vecs, dk_dtype type, bool is_widening);
 * rows, vecs (units of 16 columns), type and is_widening are literals, so loops over them unroll. */
#ifndef DK_KERNELS_CPU_MICRO_TABLE_H
#define DK_KERNELS_CPU_MICRO_TABLE_H

#include "kernels/cpu/micro.h"

#define STRIP(type, vecs, rows, widening)                                                                    \
    static void strip_##type##_##vecs##_##rows##_##widening(const struct dk_micro *call)                     \
    {                                                                                                        \
        run_strip(call, rows, vecs, DK_##type, widening);                                                    \
    }
#define STRIP_ROWS(type, vecs, widening)                                                                     \
    STRIP(type, vecs, 1, widening)                                                                           \
    STRIP(type, vecs, 2, widening)                                                                           \
    STRIP(type, vecs, 3, widening)                                                                           \
    STRIP(type, vecs, 4, widening) STRIP(type, vecs, 5, widening) STRIP(type, vecs, 6, widening)
#define STRIP_WIDTHS(type, widening)                                                                         \
    STRIP_ROWS(type, 1, widening) STRIP_ROWS(type, 2, widening) STRIP_ROWS(type, 4, widening)

#define STRIP_NAME(type, vecs, rows, widening) strip_##type##_##vecs##_##rows##_##widening
#define STRIP_ROW_NAMES(type, vecs, widening)                                                                \
    {                                                                                                        \
        STRIP_NAME(type, vecs, 1, widening), STRIP_NAME(type, vecs, 2, widening),                            \
            STRIP_NAME(type, vecs, 3, widening), STRIP_NAME(type, vecs, 4, widening),                        \
            STRIP_NAME(type, vecs, 5, widening), STRIP_NAME(type, vecs, 6, widening)                         \
    }
#define STRIP_WIDTH_NAMES(type, widening)                                                                    \
    {                                                                                                        \
        STRIP_ROW_NAMES(type, 1, widening), STRIP_ROW_NAMES(type, 2, widening),                              \
            STRIP_ROW_NAMES(type, 4, widening)                                                               \
    }

STRIP_WIDTHS(FP32, false)
STRIP_WIDTHS(BF16, false)
STRIP_WIDTHS(FP16, false)
STRIP_WIDTHS(BF16, true)
STRIP_WIDTHS(FP16, true)

/* [source][width 16, 32, 64][rows - 1] */
static void (*const strips[5][3][DK_MICRO_ROWS])(const struct dk_micro *) = {
    STRIP_WIDTH_NAMES(FP32, false), STRIP_WIDTH_NAMES(BF16, false), STRIP_WIDTH_NAMES(FP16, false),
    STRIP_WIDTH_NAMES(BF16, true), STRIP_WIDTH_NAMES(FP16, true)};

_Static_assert(DK_FP32 == 0 && DK_BF16 == 1 && DK_FP16 == 2, "the table's first three rows are by dtype");

static void micro(const struct dk_micro *call)
{
    uint32_t source = call->b_dtype + (call->wide ? 2u : 0u);
    uint32_t width = call->width == 64 ? 2 : call->width == 32 ? 1 : 0;
    strips[source][width][call->rows - 1](call);
}

#endif
