/* reduce.c: the fixed-order sum over chunks and the fused epilogue. */
#include "kernels/cpu/reduce.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* 2^exponent for -126 <= exponent <= 127. */
static inline float power_of_two(int32_t exponent)
{
    uint32_t bits = (uint32_t)(exponent + 127) << 23;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* exp(y) for -104 <= y <= 0 (NaN gives NaN): 2^n * exp(r), |r| <= ln2/2, by its series to r^7/7!
 * (remainder under 2^-26). Plain products and sums only, so that every compiler target rounds alike. */
static inline float exp_of_negative(float y)
{
    const float log2_e = 0x1.715476p+0f, ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
    const float round_magic = 0x1.8p+23f; /* adding it leaves the rounded integer in the low bits */
    float shifted = y * log2_e + round_magic;
    uint32_t shifted_bits;
    memcpy(&shifted_bits, &shifted, sizeof shifted_bits);
    int32_t n = (int32_t)(shifted_bits & 0x3ffu) - ((shifted_bits & 0x200u) ? 0x400 : 0);
    float whole = shifted - round_magic;
    float r = (y - whole * ln2_high) - whole * ln2_low;
    float series = 1.0f / 5040;
    series = series * r + 1.0f / 720;
    series = series * r + 1.0f / 120;
    series = series * r + 1.0f / 24;
    series = series * r + 1.0f / 6;
    series = series * r + 0.5f;
    float tail = series * r * r + r;
    /* Two factors: the product may be subnormal though neither factor is. */
    int32_t half = n / 2;
    half = half < -126 ? -126 : half; /* only a NaN's n can be out of range */
    int32_t rest = n - half;
    rest = rest < -126 ? -126 : rest > 127 ? 127 : rest;
    half = half > 127 ? 127 : half;
    return (1.0f + tail) * power_of_two(half) * power_of_two(rest);
}

void dk_sigmoid(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float x = values[i];
        float y = x < 0 ? x : -x; /* -|x|; NaN stays */
        float e = exp_of_negative(y < -104.0f ? -104.0f : y);
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
