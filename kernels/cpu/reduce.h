/* reduce.h: where an output element becomes final: chunk sums in index order, bias, epilogue, cast. */
#ifndef DK_KERNELS_CPU_REDUCE_H
#define DK_KERNELS_CPU_REDUCE_H

#include "kernels/cpu/micro.h"

/* Where finished rows go. */
struct dk_output {
    void *c;
    size_t c_row_elements;
    dk_dtype c_dtype;
    dk_epilogue epilogue;
    const float *bias; /* [n] or NULL */
    const struct dk_isa *isa;
};

/* C[row, column0 .. column0+columns) from `chunk_count` planes of fp32 sums: plane s at
 * sums + s * plane_stride. columns <= DK_PLAN_PANEL_N. Thread: any. */
void dk_reduce_row(const float *sums, uint32_t chunk_count, size_t plane_stride, uint64_t row,
                   uint64_t column0, uint32_t columns, const struct dk_output *output);

/* Exposed for its test: 1 / (1 + exp(-x)) within 4 units in the last place, subnormal results included;
 * same bits on every instruction set. values may be in place. */
void dk_sigmoid(float *values, size_t count);

#endif
