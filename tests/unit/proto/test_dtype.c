/* test_dtype.c: every 16-bit pattern both ways, and every rounding border against a search in binary64. */
#include "tests/unit/proto/cmocka_all.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "proto/dtype.h"

/* An independent description of a 16-bit format. */
struct format {
    dk_dtype dtype;
    int mantissa_bits, exponent_bits;
};
static const struct format formats[] = {{DK_BF16, 7, 8}, {DK_FP16, 10, 5}};

static double reference_value(const struct format *format, unsigned pattern)
{
    int bias = (1 << (format->exponent_bits - 1)) - 1;
    int exponent = (int)(pattern >> format->mantissa_bits) & ((1 << format->exponent_bits) - 1);
    int mantissa = (int)(pattern & ((1U << format->mantissa_bits) - 1));
    double sign = (pattern & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == (1 << format->exponent_bits) - 1) {
        return mantissa != 0 ? NAN : sign * INFINITY;
    }
    if (exponent == 0) {
        return sign * ldexp(mantissa, 1 - bias - format->mantissa_bits);
    }
    return sign * ldexp(mantissa + (1 << format->mantissa_bits), exponent - bias - format->mantissa_bits);
}

static uint16_t narrow_double(dk_dtype dtype, double value)
{
    return dtype == DK_BF16 ? dk_bf16_from_double(value) : dk_fp16_from_double(value);
}

static uint16_t narrow_float(dk_dtype dtype, float value)
{
    return dtype == DK_BF16 ? dk_bf16_from_float(value) : dk_fp16_from_float(value);
}

static float widen(dk_dtype dtype, uint16_t bits)
{
    return dtype == DK_BF16 ? dk_bf16_to_float(bits) : dk_fp16_to_float(bits);
}

static unsigned infinity_of(const struct format *format)
{
    return ((1U << format->exponent_bits) - 1) << format->mantissa_bits;
}

static void test_every_pattern_round_trips(void **state)
{
    (void)state;
    for (size_t f = 0; f < 2; f++) {
        const struct format *format = &formats[f];
        for (unsigned pattern = 0; pattern <= 0xFFFF; pattern++) {
            double expected = reference_value(format, pattern);
            float wide = widen(format->dtype, (uint16_t)pattern);
            if (isnan(expected)) {
                unsigned quiet = pattern | 1U << (format->mantissa_bits - 1);
                assert_true(isnan(wide));
                assert_int_equal(narrow_float(format->dtype, wide), quiet);
                assert_int_equal(narrow_double(format->dtype, (double)wide), quiet);
                continue;
            }
            assert_true((double)wide == expected && !signbit(wide) == !signbit(expected));
            assert_int_equal(narrow_float(format->dtype, wide), pattern);
            assert_int_equal(narrow_double(format->dtype, expected), pattern);
        }
    }
}

/* Between each pair of neighbours: the middle goes to the even one, the numbers just beside it do not. */
static void check_border(const struct format *format, unsigned pattern)
{
    double low = reference_value(format, pattern);
    unsigned above = pattern + 1;
    double high = above == infinity_of(format) ? low + (low - reference_value(format, pattern - 1))
                                               : reference_value(format, above);
    double middle = low + (high - low) / 2;
    unsigned even = pattern % 2 == 0 ? pattern : above;
    for (unsigned sign = 0; sign <= 0x8000; sign += 0x8000) {
        double s = sign != 0 ? -1.0 : 1.0;
        assert_int_equal(narrow_double(format->dtype, s * middle), even | sign);
        assert_int_equal(narrow_double(format->dtype, s * nextafter(middle, 0)), pattern | sign);
        assert_int_equal(narrow_double(format->dtype, s * nextafter(middle, INFINITY)), above | sign);
        float middle_float = (float)middle;
        if ((double)middle_float == middle) { /* not for the smallest bf16 subnormals */
            float s_float = (float)s;
            assert_int_equal(narrow_float(format->dtype, s_float * middle_float), even | sign);
            assert_int_equal(narrow_float(format->dtype, s_float * nextafterf(middle_float, 0)),
                             pattern | sign);
            assert_int_equal(narrow_float(format->dtype, s_float * nextafterf(middle_float, INFINITY)),
                             above | sign);
        }
    }
}

static void test_every_border_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (size_t f = 0; f < 2; f++) {
        for (unsigned pattern = 0; pattern < infinity_of(&formats[f]); pattern++) {
            check_border(&formats[f], pattern);
        }
    }
}

static void test_double_is_not_rounded_twice(void **state)
{
    (void)state;
    /* 1 + 2^-8 is the middle of two bf16 numbers; a hair above it fp32 rounds back to the middle. */
    double above = 1.0 + 0x1p-8 + 0x1p-40;
    assert_int_equal(dk_bf16_from_float((float)above), 0x3F80);
    assert_int_equal(dk_bf16_from_double(above), 0x3F81);
    assert_int_equal(dk_fp16_from_double(1.0 + 0x1p-11 + 0x1p-45), 0x3C01);
    /* Below everything: rounds to zero with its sign; half the smallest subnormal is a tie to zero. */
    assert_int_equal(dk_bf16_from_double(-DBL_TRUE_MIN), 0x8000);
    assert_int_equal(dk_fp16_from_double(0x1p-25), 0x0000);
    assert_int_equal(dk_fp16_from_double(nextafter(0x1p-25, 1)), 0x0001);
    assert_int_equal(dk_bf16_from_double(0x1p-134), 0x0000);
    assert_int_equal(dk_bf16_from_double(nextafter(0x1p-134, 1)), 0x0001);
    assert_int_equal(dk_bf16_from_double(DBL_MAX), 0x7F80);
    assert_int_equal(dk_fp16_from_double(-INFINITY), 0xFC00);
}

static void test_c28_bf16_and_fp16_bits_differ(void **state)
{
    (void)state;
    uint16_t bits;
    float value = 3.140625F;
    dk_convert_from_float(&value, &bits, DK_BF16, 1);
    assert_int_equal(bits, 0x4049);
    dk_convert_from_float(&value, &bits, DK_FP16, 1);
    assert_int_equal(bits, 0x4248);
    assert_true(dk_bf16_to_float(0x4049) == value && dk_fp16_to_float(0x4248) == value);
}

static void test_bulk_equals_scalar_for_every_length_and_alignment(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    static double doubles[COUNT];
    static unsigned char source[COUNT * 8 + 8];
    static unsigned char target[COUNT * 8 + 8];
    for (int i = 0; i < COUNT; i++) {
        doubles[i] = ldexp(1.0 + i * 0.001, i % 300 - 150) * (i % 2 == 0 ? 1 : -1);
    }
    for (size_t count = 0; count <= COUNT; count += count < 20 ? 1 : 241) {
        for (size_t shift = 0; shift < 3; shift++) {
            memcpy(source + shift, doubles, count * 8);
            for (size_t f = 0; f < 2; f++) {
                memset(target, 0xEE, sizeof target);
                dk_convert_from_double((const double *)(const void *)(source + shift), target + shift,
                                       formats[f].dtype, count);
                for (size_t i = 0; i < count; i++) {
                    uint16_t bits;
                    memcpy(&bits, target + shift + 2 * i, 2);
                    assert_int_equal(bits, narrow_double(formats[f].dtype, doubles[i]));
                }
                assert_int_equal(target[shift + 2 * count], 0xEE);
            }
        }
    }
}

/* Every 16-bit pattern, every middle between two and its neighbours, in blocks where normal and special
 * numbers stand side by side: the same bits as one by one. */
static void test_bulk_equals_scalar_for_every_kind_of_number(void **state)
{
    (void)state;
    enum { PATTERNS = 0x10000 };
    static uint16_t patterns[PATTERNS];
    static uint16_t narrow[PATTERNS];
    static float floats[PATTERNS];
    static double doubles[PATTERNS];
    for (size_t f = 0; f < 2; f++) {
        dk_dtype dtype = formats[f].dtype;
        for (unsigned i = 0; i < PATTERNS; i++) {
            patterns[i] = (uint16_t)(i * 40503U); /* odd: a permutation that mixes the kinds */
        }
        dk_convert_to_float(patterns, dtype, floats, PATTERNS);
        for (unsigned i = 0; i < PATTERNS; i++) {
            float expected = widen(dtype, patterns[i]);
            assert_memory_equal(&floats[i], &expected, sizeof expected);
        }
        for (int step = -2; step <= 2; step++) {
            for (unsigned i = 0; i < PATTERNS; i++) {
                uint32_t bits;
                memcpy(&bits, &floats[i], sizeof bits);
                /* The middle to the next pattern, and one fp32 step beside it. */
                bits += (dtype == DK_BF16 ? 0x8000U : 0x1000U) + (uint32_t)step;
                memcpy(&floats[i], &bits, sizeof bits);
                doubles[i] = (double)floats[i];
            }
            dk_convert_from_float(floats, narrow, dtype, PATTERNS);
            for (unsigned i = 0; i < PATTERNS; i++) {
                assert_int_equal(narrow[i], narrow_float(dtype, floats[i]));
            }
            dk_convert_from_double(doubles, narrow, dtype, PATTERNS);
            for (unsigned i = 0; i < PATTERNS; i++) {
                assert_int_equal(narrow[i], narrow_double(dtype, doubles[i]));
            }
            dk_convert_to_float(patterns, dtype, floats, PATTERNS);
        }
    }
    dk_convert_from_float(floats, doubles, DK_FP32, PATTERNS);
    assert_memory_equal(floats, doubles, sizeof floats);
}

static void test_conversion_in_place(void **state)
{
    (void)state;
    enum { COUNT = 700 };
    for (size_t f = 0; f < 2; f++) {
        static float values[COUNT];
        static float original[COUNT];
        for (int i = 0; i < COUNT; i++) {
            original[i] = values[i] = (float)i * 0.37F - 100;
        }
        dk_convert_from_float(values, values, formats[f].dtype, COUNT);
        for (int i = 0; i < COUNT; i++) {
            uint16_t bits;
            memcpy(&bits, (const char *)values + 2 * i, 2);
            assert_int_equal(bits, narrow_float(formats[f].dtype, original[i]));
        }
    }
}

static void test_int32_saturates_and_rounds_to_even(void **state)
{
    (void)state;
    static const double given[] = {2.5, 3.5, -2.5, 1e10, -1e10, NAN, 2147483647.0, -2147483648.0};
    static const int32_t expected[] = {2, 4, -2, INT32_MAX, INT32_MIN, 0, INT32_MAX, INT32_MIN};
    int32_t out[8];
    dk_convert_from_double(given, out, DK_INT32, 8);
    assert_memory_equal(out, expected, sizeof expected);
    float wide[8];
    for (int i = 0; i < 8; i++) {
        wide[i] = (float)given[i];
    }
    dk_convert_from_float(wide, out, DK_INT32, 8);
    assert_memory_equal(out, expected, sizeof expected);
    dk_convert_to_float(expected, DK_INT32, wide, 8);
    assert_true(wide[0] == 2.0F && wide[3] == 0x1p31F);
}

static void test_overflow_is_the_border_to_infinity(void **state)
{
    (void)state;
    static const struct {
        dk_dtype dtype;
        double largest; /* finite, halfway to the next power of two */
    } cases[] = {{DK_BF16, 0x1.FFp127}, {DK_FP16, 65520.0}, {DK_FP32, 0x1.FFFFFFp127}};
    for (size_t i = 0; i < 3; i++) {
        float wide;
        uint32_t bits[1];
        for (int s = -1; s <= 1; s += 2) {
            double border = s * cases[i].largest;
            assert_true(dk_dtype_overflows(cases[i].dtype, border));
            assert_false(dk_dtype_overflows(cases[i].dtype, nextafter(border, 0)));
            dk_convert_from_double(&border, bits, cases[i].dtype, 1);
            dk_convert_to_float(bits, cases[i].dtype, &wide, 1);
            assert_true(isinf(wide));
            border = nextafter(border, 0);
            dk_convert_from_double(&border, bits, cases[i].dtype, 1);
            dk_convert_to_float(bits, cases[i].dtype, &wide, 1);
            assert_true(isfinite(wide));
        }
    }
    assert_true(dk_dtype_overflows(DK_INT32, 2147483647.5));
    assert_false(dk_dtype_overflows(DK_INT32, -2147483648.5)); /* a tie, to the even -2147483648 */
}

static void test_names_in_each_dialect(void **state)
{
    (void)state;
    dk_dtype dtype = DK_FP16;
    assert_int_equal(dk_dtype_parse("bf16", 4, DK_DIALECT_NATIVE, &dtype), DK_OK);
    assert_int_equal(dtype, DK_BF16);
    assert_int_equal(dk_dtype_parse("F32", 3, DK_DIALECT_SAFETENSORS, &dtype), DK_OK);
    assert_int_equal(dtype, DK_FP32);
    static const char *const wrong[] = {"BF16", "bf1", "bf16 ", "", "float32", "FP32"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(dk_dtype_parse(wrong[i], strlen(wrong[i]), DK_DIALECT_NATIVE, &dtype), DK_BAD_DTYPE);
        assert_int_equal(dtype, DK_FP32); /* untouched */
    }
    for (unsigned i = 0; i < DK_DTYPE_COUNT; i++) {
        for (unsigned d = 0; d < 3; d++) {
            const char *name = dk_dtype_name((dk_dtype)i, (enum dk_dialect)d);
            assert_int_equal(dk_dtype_parse(name, strlen(name), (enum dk_dialect)d, &dtype), DK_OK);
            assert_int_equal(dtype, i);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pattern_round_trips),
        cmocka_unit_test(test_every_border_rounds_to_nearest_even),
        cmocka_unit_test(test_double_is_not_rounded_twice),
        cmocka_unit_test(test_c28_bf16_and_fp16_bits_differ),
        cmocka_unit_test(test_bulk_equals_scalar_for_every_length_and_alignment),
        cmocka_unit_test(test_bulk_equals_scalar_for_every_kind_of_number),
        cmocka_unit_test(test_conversion_in_place),
        cmocka_unit_test(test_int32_saturates_and_rounds_to_even),
        cmocka_unit_test(test_overflow_is_the_border_to_infinity),
        cmocka_unit_test(test_names_in_each_dialect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
