/* reduce.c: the fixed-order sum over chunks and the fused epilogue. */
#include "kernels/cpu/reduce.h"

#include <assert.h>
#include <string.h>

#include "kernels/cpu/exp.h"

void dk_sigmoid(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float x = values[i];
        float y = x < 0 ? x : -x; /* -|x|; NaN stays */
        float e = dk_exp_of_negative(y < -104.0f ? -104.0f : y);
        /* Below -104 the true value is under half the smallest subnormal. */
        e = y < -104.0f ? 0.0f : e;
        values[i] = (x < 0 ? e : 1.0f) / (1.0f + e);
    }
}

static void apply_epilogue(float *row, uint32_t columns, dk_epilogue epilogue)
{
    switch (epilogue) {
    case DK_EPILOGUE_RELU:
        for (uint32_t j = 0; j < columns; j++) {
            row[j] = row[j] <= 0 ? 0.0f : row[j]; /* NaN compares false and stays; -0 becomes +0 */
        }
        break;
    case DK_EPILOGUE_SIGMOID:
        dk_sigmoid(row, columns);
        break;
    default:
        break;
    }
}

void dk_reduce_row(const float *sums, uint32_t chunk_count, size_t plane_stride, uint64_t row,
                   uint64_t column0, uint32_t columns, const struct dk_output *output)
{
    assert(columns >= 1 && columns <= DK_PLAN_PANEL_N && chunk_count >= 1);
    float total[DK_PLAN_PANEL_N];
    memcpy(total, sums, columns * sizeof(float));
    for (uint32_t s = 1; s < chunk_count; s++) {
        const float *plane = sums + s * plane_stride;
        for (uint32_t j = 0; j < columns; j++) {
            total[j] += plane[j];
        }
    }
    if (output->bias) {
        for (uint32_t j = 0; j < columns; j++) {
            total[j] += output->bias[column0 + j];
        }
    }
    apply_epilogue(total, columns, output->epilogue);
    char *c = (char *)output->c + (row * output->c_row_elements + column0) * dk_dtype_bytes(output->c_dtype);
    output->isa->narrow(total, c, output->c_dtype, columns);
}
