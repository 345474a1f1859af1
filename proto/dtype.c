/* dtype.c: element types by name, and conversions that round once, to nearest, ties to even. */
#include "proto/dtype.h"

#include <assert.h>
#include <math.h>
#include <string.h>

struct dtype_row {
    size_t bytes;
    const char *names[3]; /* by enum dk_dialect */
};

static const struct dtype_row dtype_rows[DK_DTYPE_COUNT] = {
#define DK_DTYPE_ROW(name, bytes, native, oip, st) [DK_##name] = {bytes, {native, oip, st}},
    DK_DTYPE_MAP(DK_DTYPE_ROW)
#undef DK_DTYPE_ROW
};

size_t dk_dtype_bytes(dk_dtype dtype)
{
    assert((unsigned)dtype < DK_DTYPE_COUNT);
    return dtype_rows[dtype].bytes;
}

const char *dk_dtype_name(dk_dtype dtype, enum dk_dialect dialect)
{
    assert((unsigned)dtype < DK_DTYPE_COUNT);
    return dtype_rows[dtype].names[dialect];
}

dk_status dk_dtype_parse(const char *text, size_t length, enum dk_dialect dialect, dk_dtype *out)
{
    for (unsigned i = 0; i < DK_DTYPE_COUNT; i++) {
        const char *name = dtype_rows[i].names[dialect];
        if (strlen(name) == length && memcmp(name, text, length) == 0) {
            *out = (dk_dtype)i;
            return DK_OK;
        }
    }
    return DK_BAD_DTYPE;
}

static inline uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint16_t bf16_of_bits(uint32_t bits)
{
    uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40U;
    bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
    return (uint16_t)(is_nan ? quiet : rounded);
}

static inline uint16_t fp16_of_bits(uint32_t bits)
{
    uint32_t magnitude = bits & 0x7FFFFFFFU;
    /* Normal results: move the exponent bias from 127 to 15; a carry out of the mantissa is right as it is.
     */
    uint32_t normal = (magnitude - (112U << 23) + 0xFFFU + ((magnitude >> 13) & 1U)) >> 13;
    /* Subnormal results: 0.5 has an ulp of 2^-24, the fp16 subnormal step, so the addition does the rounding.
     */
    uint32_t small_input = magnitude < (113U << 23) ? magnitude : 0;
    uint32_t subnormal = float_bits(float_of_bits(small_input) + 0.5F) - float_bits(0.5F);
    uint32_t quiet = 0x7E00U | ((magnitude >> 13) & 0x3FFU);
    uint32_t result = magnitude < (113U << 23) ? subnormal : normal;
    result = magnitude >= 0x477FF000U ? 0x7C00U : result; /* 65520 and above round to infinity */
    result = magnitude > 0x7F800000U ? quiet : result;
    return (uint16_t)(result | ((bits >> 16) & 0x8000U));
}

/* Round to odd: keeps "inexact" in the last bit, so that a second rounding to a type with at least two bits
 * less (bf16, fp16) gives what one rounding from binary64 would. */
static inline uint32_t odd_bits_of_double(double value)
{
    float nearest = (float)value;
    double back = (double)nearest;
    uint32_t bits = float_bits(nearest);
    bits -= fabs(back) > fabs(value) ? 1U : 0U;
    return bits | (back != value ? 1U : 0U);
}

static inline uint32_t float_bits_of_fp16(uint16_t half)
{
    uint32_t shifted = (uint32_t)(half & 0x7FFFU) << 13;
    uint32_t exponent = shifted & 0x0F800000U;
    uint32_t normal = shifted + (112U << 23);
    uint32_t special = shifted + (224U << 23);
    /* Subnormals: place the mantissa under an implicit one, then subtract that one; no subnormal operand. */
    uint32_t subnormal = float_bits(float_of_bits((shifted & 0x007FFFFFU) + (113U << 23)) - 0x1p-14F);
    uint32_t result = exponent == 0 ? subnormal : normal;
    result = exponent == 0x0F800000U ? special : result;
    return result | ((uint32_t)(half & 0x8000U) << 16);
}

uint16_t dk_bf16_from_float(float value)
{
    return bf16_of_bits(float_bits(value));
}

uint16_t dk_fp16_from_float(float value)
{
    return fp16_of_bits(float_bits(value));
}

uint16_t dk_bf16_from_double(double value)
{
    return bf16_of_bits(odd_bits_of_double(value));
}

uint16_t dk_fp16_from_double(double value)
{
    return fp16_of_bits(odd_bits_of_double(value));
}

float dk_bf16_to_float(uint16_t bits)
{
    return float_of_bits((uint32_t)bits << 16);
}

float dk_fp16_to_float(uint16_t bits)
{
    return float_of_bits(float_bits_of_fp16(bits));
}

/* NaN becomes 0; out of range saturates. */
static int32_t int32_of_double(double value)
{
    double nearest = nearbyint(value);
    if (isnan(value)) {
        return 0;
    }
    if (nearest >= 2147483648.0) {
        return INT32_MAX;
    }
    return nearest < -2147483648.0 ? INT32_MIN : (int32_t)nearest;
}

/* Blocks. Every loop below works on local arrays of a block: it vectorises whatever the alignment of the
 * caller's buffers, and a block is read before it is written (conversion in place). Numbers that are normal
 * before and after take a few integer operations without a branch; the others (zero, subnormal, overflow,
 * NaN) only set a flag and are done again one by one: 19 ns a number became 2 for random data. */
enum { BLOCK = 256 };

union narrow_block {
    uint16_t half[BLOCK];
    uint32_t word[BLOCK];
    int32_t integer[BLOCK];
};

/* Field widths of a 16-bit type; always constants after inlining. */
struct half_format {
    unsigned mantissa_bits;
    unsigned bias;
    uint16_t (*from_double)(double value); /* for what is special */
};
static const struct half_format bf16_format = {7, 127, dk_bf16_from_double};
static const struct half_format fp16_format = {10, 15, dk_fp16_from_double};

/* Top bit set when the exponent field does not give a normal number. */
static inline uint64_t special_double(uint64_t bits, unsigned bias)
{
    uint64_t field = bits >> 52 & 0x7FF;
    return (field - (1023 - bias + 1)) | (1023 + bias - field);
}

static inline __attribute__((always_inline)) void
narrow_doubles(const uint64_t *in, uint16_t *out, size_t length, const struct half_format *format)
{
    uint64_t lanes[BLOCK];
    uint64_t special = 0;
    const unsigned shift = 52 - format->mantissa_bits;
    const uint64_t rebias = (uint64_t)(1023 - format->bias) << 52;
    const uint64_t below_half = (UINT64_C(1) << (shift - 1)) - 1;
    for (size_t i = 0; i < length; i++) {
        uint64_t magnitude = in[i] & INT64_MAX;
        special |= special_double(in[i], format->bias);
        lanes[i] = (magnitude - rebias + below_half + (magnitude >> shift & 1)) >> shift | in[i] >> 63 << 15;
    }
    for (size_t i = 0; i < length; i++) {
        out[i] = (uint16_t)lanes[i];
    }
    for (size_t i = 0; special >> 63 != 0 && i < length; i++) {
        if (special_double(in[i], format->bias) >> 63 != 0) {
            double value;
            memcpy(&value, &in[i], sizeof value);
            out[i] = format->from_double(value);
        }
    }
}

/* Top bit set when a magnitude (below 2^31) is not in [lowest, highest]. */
static inline uint32_t out_of_range(uint32_t bits, uint32_t lowest, uint32_t highest)
{
    return (bits - lowest) | (highest - bits);
}

static void narrow_floats_to_fp16(const uint32_t *in, uint16_t *out, size_t length)
{
    /* What rounds to a normal fp16: 2^-14 .. just below 65520. */
    const uint32_t lowest = 113U << 23;
    const uint32_t highest = 0x477FEFFFU;
    uint32_t special = 0;
    for (size_t i = 0; i < length; i++) {
        uint32_t magnitude = in[i] & INT32_MAX;
        special |= out_of_range(magnitude, lowest, highest);
        out[i] =
            (uint16_t)((magnitude - (112U << 23) + 0xFFFU + (magnitude >> 13 & 1)) >> 13 | in[i] >> 31 << 15);
    }
    for (size_t i = 0; special >> 31 != 0 && i < length; i++) {
        if (out_of_range(in[i] & INT32_MAX, lowest, highest) >> 31 != 0) {
            out[i] = fp16_of_bits(in[i]);
        }
    }
}

static void widen_fp16(const uint16_t *in, uint32_t *out, size_t length)
{
    uint32_t special = 0;
    for (size_t i = 0; i < length; i++) {
        uint32_t magnitude = in[i] & 0x7FFFU;
        special |= out_of_range(magnitude, 0x0400, 0x7BFF);
        out[i] = ((magnitude << 13) + (112U << 23)) | (in[i] & 0x8000U) << 16;
    }
    for (size_t i = 0; special >> 31 != 0 && i < length; i++) {
        if (out_of_range(in[i] & 0x7FFFU, 0x0400, 0x7BFF) >> 31 != 0) {
            out[i] = float_bits_of_fp16(in[i]);
        }
    }
}

void dk_convert_to_float(const void *src, dk_dtype src_dtype, float *dst, size_t count)
{
    assert((unsigned)src_dtype < DK_DTYPE_COUNT);
    size_t item = dtype_rows[src_dtype].bytes;
    for (size_t start = 0; start < count; start += BLOCK) {
        size_t length = count - start < BLOCK ? count - start : BLOCK;
        union narrow_block in;
        uint32_t out[BLOCK];
        memcpy(&in, (const char *)src + start * item, length * item);
        switch (src_dtype) {
        case DK_BF16:
            for (size_t i = 0; i < length; i++) {
                out[i] = (uint32_t)in.half[i] << 16;
            }
            break;
        case DK_FP16:
            widen_fp16(in.half, out, length);
            break;
        case DK_INT32:
            for (size_t i = 0; i < length; i++) {
                out[i] = float_bits((float)in.integer[i]);
            }
            break;
        default:
            memcpy(out, in.word, length * sizeof out[0]);
            break;
        }
        memcpy((char *)dst + start * sizeof(float), out, length * sizeof out[0]);
    }
}

void dk_convert_from_float(const float *src, void *dst, dk_dtype dst_dtype, size_t count)
{
    assert((unsigned)dst_dtype < DK_DTYPE_COUNT);
    size_t item = dtype_rows[dst_dtype].bytes;
    for (size_t start = 0; start < count; start += BLOCK) {
        size_t length = count - start < BLOCK ? count - start : BLOCK;
        uint32_t in[BLOCK];
        union narrow_block out;
        memcpy(in, (const char *)src + start * sizeof(float), length * sizeof in[0]);
        switch (dst_dtype) {
        case DK_BF16:
            for (size_t i = 0; i < length; i++) {
                out.half[i] = bf16_of_bits(in[i]);
            }
            break;
        case DK_FP16:
            narrow_floats_to_fp16(in, out.half, length);
            break;
        case DK_INT32:
            for (size_t i = 0; i < length; i++) {
                out.integer[i] = int32_of_double((double)float_of_bits(in[i]));
            }
            break;
        default:
            memcpy(out.word, in, length * sizeof in[0]);
            break;
        }
        memcpy((char *)dst + start * item, &out, length * item);
    }
}

void dk_convert_from_double(const double *src, void *dst, dk_dtype dst_dtype, size_t count)
{
    assert((unsigned)dst_dtype < DK_DTYPE_COUNT);
    size_t item = dtype_rows[dst_dtype].bytes;
    for (size_t start = 0; start < count; start += BLOCK) {
        size_t length = count - start < BLOCK ? count - start : BLOCK;
        union {
            double value[BLOCK];
            uint64_t bits[BLOCK];
        } in;
        union narrow_block out;
        memcpy(&in, (const char *)src + start * sizeof(double), length * sizeof in.bits[0]);
        switch (dst_dtype) {
        case DK_BF16:
            narrow_doubles(in.bits, out.half, length, &bf16_format);
            break;
        case DK_FP16:
            narrow_doubles(in.bits, out.half, length, &fp16_format);
            break;
        case DK_INT32:
            for (size_t i = 0; i < length; i++) {
                out.integer[i] = int32_of_double(in.value[i]);
            }
            break;
        default:
            for (size_t i = 0; i < length; i++) {
                out.word[i] = float_bits((float)in.value[i]);
            }
            break;
        }
        memcpy((char *)dst + start * item, &out, length * item);
    }
}

bool dk_dtype_overflows(dk_dtype dtype, double value)
{
    /* Half an ulp above the largest finite value: the tie goes to the even neighbour, which is infinity. */
    switch (dtype) {
    case DK_BF16:
        return fabs(value) >= 0x1.FFp127;
    case DK_FP16:
        return fabs(value) >= 65520.0;
    case DK_INT32:
        return value >= 2147483647.5 || value < -2147483648.5;
    default:
        return fabs(value) >= 0x1.FFFFFFp127;
    }
}
