/* test_json_writer.c: numbers that read back to the same bits in as few digits as there are, escaped strings,
 * and tensors in pieces of any size. */
#include "tests/unit/proto/cmocka_all.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_reader.h"
#include "proto/json_writer.h"

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static const char *write_float(float value)
{
    static char text[DK_JSON_NUMBER_BYTES + 1];
    memset(text, '#', sizeof text);
    size_t length = dk_json_write_float(text, value);
    assert_in_range(length, 1, DK_JSON_NUMBER_BYTES - 1);
    assert_int_equal(text[DK_JSON_NUMBER_BYTES], '#');
    text[length] = '\0';
    return text;
}

static void test_known_floats(void **state)
{
    (void)state;
    static const struct {
        float value;
        const char *text;
    } cases[] = {
        {0.0F, "0"},
        {-0.0F, "-0"},
        {1.0F, "1"},
        {-0.5F, "-0.5"},
        {0.1F, "0.1"},
        {1e-20F, "1e-20"},
        {3.0F, "3"},
        {10.0F, "10"},
        {120.0F, "120"},
        {16777216.0F, "16777216"},
        {123456.789F, "123456.79"},
        {3.4028235e38F, "3.4028235e38"},
        {1.17549435e-38F, "1.1754944e-38"},
        {1e-45F, "1e-45"},
        {0.00001F, "0.00001"},
        {0.000001F, "1e-6"},
        {1e14F, "100000000000000"},
        {1e15F, "1e15"},
        {3.140625F, "3.140625"},
        {0.3125F, "0.3125"},
        {33554432.0F, "33554432"},
        {8388608.5F, "8388608"},
        {9.5367431640625e-07F, "9.536743e-7"},
        {1.0F / 3, "0.33333334"},
        {NAN, "null"},
        {-NAN, "null"},
        {INFINITY, "null"},
        {-INFINITY, "null"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(write_float(cases[i].value), cases[i].text);
    }
}

/* Significant digits of a number's text. */
static size_t digit_count(const char *text)
{
    size_t count = 0;
    size_t zeros = 0;
    for (; *text != '\0' && *text != 'e'; text++) {
        if (*text >= '0' && *text <= '9' && (count > 0 || *text != '0')) {
            count++;
            zeros = *text == '0' ? zeros + 1 : 0;
        }
    }
    return count - zeros;
}

static void check_reads_back(float value)
{
    const char *text = write_float(value);
    double read;
    assert_true(dk_json_parse_number(text, strlen(text), &read));
    /* By both routes a client may take: binary64 and then fp32, or fp32 at once. */
    if ((float)read != value || strtof(text, NULL) != value || signbit(value) != signbit((float)read)) {
        fail_msg("%.9g was written as %s", (double)value, text);
    }
}

static void check_shortest_and_closest(float value)
{
    char reference[64];
    const char *text = write_float(value);
    int digits = 0;
    do {
        (void)snprintf(reference, sizeof reference, "%.*e", digits++, (double)value);
    } while (strtof(reference, NULL) != value);
    double error = fabs(strtod(text, NULL) - (double)value);
    double reference_error = fabs(strtod(reference, NULL) - (double)value);
    if (digit_count(text) > (size_t)digits ||
        (digit_count(text) == (size_t)digits && error > reference_error * (1 + 1e-9))) {
        fail_msg("%.9g was written as %s, but %s is as good", (double)value, text, reference);
    }
}

static void test_random_floats_read_back_and_are_shortest(void **state)
{
    (void)state;
    uint32_t bits = 12345;
    for (int i = 0; i < 1000000; i++) {
        bits = bits * 1664525U + 1013904223U;
        float value = float_of_bits(bits);
        if (isfinite(value)) {
            check_reads_back(value);
            if (i % 16 == 0) {
                check_shortest_and_closest(value);
            }
        }
    }
}

/* Powers of two (where the gap below is half the gap above), their neighbours, and all bf16 values. */
static void test_special_floats_read_back_and_are_shortest(void **state)
{
    (void)state;
    for (uint32_t pattern = 0; pattern < 0x7F80; pattern++) {
        for (int step = -1; step <= 1; step++) {
            uint32_t bits = (pattern << 16) + (uint32_t)step;
            if (bits < 0x7F800000) {
                check_reads_back(float_of_bits(bits));
                check_reads_back(float_of_bits(bits | 0x80000000));
                check_shortest_and_closest(float_of_bits(bits));
            }
        }
    }
    for (uint32_t bits = 1; bits < 3000; bits++) {
        check_reads_back(float_of_bits(bits));
        check_shortest_and_closest(float_of_bits(bits));
    }
    for (int power = -40; power <= 38; power++) {
        char text[16];
        (void)snprintf(text, sizeof text, "1e%d", power);
        check_shortest_and_closest(strtof(text, NULL));
    }
}

static const char *double_text(double value)
{
    static struct dk_json_text text;
    dk_json_text_free(&text);
    dk_json_text_double(&text, value);
    assert_false(text.failed);
    assert_true(text.length < DK_JSON_NUMBER_BYTES);
    return text.data;
}

static void test_doubles(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0.0, "0"},
        {-0.0, "-0"},
        {1.0, "1"},
        {0.1, "0.1"},
        {0.30000000000000004, "0.30000000000000004"},
        {1e15, "1e15"},
        {123456789012345.0, "123456789012345"},
        {9007199254740992.0, "9.007199254740992e15"},
        {5e-324, "5e-324"},
        {DBL_MAX, "1.7976931348623157e308"},
        {NAN, "null"},
        {-INFINITY, "null"},
        {1.5e-7, "1.5e-7"},
        {-2.5, "-2.5"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(double_text(cases[i].value), cases[i].text);
    }
    uint64_t bits = 1;
    for (int i = 0; i < 100000; i++) {
        bits = bits * 6364136223846793005U + 1442695040888963407U;
        double value;
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value)) {
            assert_true(strtod(double_text(value), NULL) == value);
        }
    }
    (void)double_text(0);
}

static void test_integers(void **state)
{
    (void)state;
    struct dk_json_text text = {0};
    dk_json_text_u64(&text, 0);
    dk_json_text_raw(&text, " ");
    dk_json_text_u64(&text, UINT64_MAX);
    dk_json_text_raw(&text, " ");
    dk_json_text_i64(&text, INT64_MIN);
    dk_json_text_raw(&text, " ");
    dk_json_text_i64(&text, 42);
    assert_string_equal(text.data, "0 18446744073709551615 -9223372036854775808 42");
    dk_json_text_free(&text);
    assert_null(text.data);
}

static void test_strings_are_escaped_and_valid_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *given;
        size_t length;
        const char *text;
    } cases[] = {
        {"", 0, "\"\""},
        {"plain", 5, "\"plain\""},
        {"a\"b\\c/", 6, "\"a\\\"b\\\\c/\""},
        {"\b\f\n\r\t", 5, "\"\\b\\f\\n\\r\\t\""},
        {"\0\x01\x1F\x7F", 4, "\"\\u0000\\u0001\\u001f\x7F\""},
        {"\xC3\xA9\xF0\x9F\x98\x80", 6, "\"\xC3\xA9\xF0\x9F\x98\x80\""},
        {"a\xFF\xC3", 3, "\"a\xEF\xBF\xBD\xEF\xBF\xBD\""},
        {"\xED\xA0\x80", 3, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dk_json_text text = {0};
        dk_json_text_string(&text, cases[i].given, cases[i].length);
        assert_string_equal(text.data, cases[i].text);
        dk_json_text_free(&text);
    }
}

/* The whole text of a tensor, written in pieces of `size` bytes at most. */
static void write_tensor(struct dk_json_tensor_writer *writer, size_t size, char *out, size_t capacity)
{
    size_t length = 0;
    for (;;) {
        char *piece = malloc(size);
        assert_non_null(piece);
        size_t written = dk_json_tensor_writer_next(writer, piece, size);
        assert_true(written <= size && length + written < capacity);
        memcpy(out + length, piece, written);
        free(piece);
        length += written;
        if (written == 0) {
            break;
        }
    }
    out[length] = '\0';
    assert_int_equal(dk_json_tensor_writer_next(writer, out + length, 2 * DK_JSON_NUMBER_BYTES), 0);
}

static void test_tensor_forms(void **state)
{
    (void)state;
    static const float values[6] = {1, -0.5F, 3e-9F, NAN, INFINITY, 6};
    static const int32_t integers[4] = {0, INT32_MIN, INT32_MAX, -7};
    static const uint16_t bf16[3] = {0x4049, 0xC049, 0x7FC0};
    static const struct {
        const void *data;
        dk_dtype dtype;
        uint64_t rows, row_length;
        bool is_nested;
        const char *text;
        uint64_t non_finite;
    } cases[] = {
        {values, DK_FP32, 2, 3, true, "[[1,-0.5,3e-9],[null,null,6]]", 2},
        {values, DK_FP32, 2, 3, false, "[1,-0.5,3e-9,null,null,6]", 2},
        {values, DK_FP32, 3, 1, true, "[[1],[-0.5],[3e-9]]", 0},
        {NULL, DK_FP32, 0, 256, true, "[]", 0},
        {NULL, DK_FP32, 0, 256, false, "[]", 0},
        {NULL, DK_FP32, 2, 0, true, "[[],[]]", 0},
        {integers, DK_INT32, 2, 2, true, "[[0,-2147483648],[2147483647,-7]]", 0},
        {bf16, DK_BF16, 1, 3, true, "[[3.140625,-3.140625,null]]", 1},
        {bf16, DK_FP16, 1, 2, false, "[2.1425781,-2.1425781]", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t size = 2 * DK_JSON_NUMBER_BYTES; size < 200; size++) {
            char text[2048];
            struct dk_json_tensor_writer writer;
            dk_json_tensor_writer_init(&writer, cases[i].data, cases[i].dtype, cases[i].rows,
                                       cases[i].row_length, cases[i].is_nested);
            write_tensor(&writer, size, text, sizeof text);
            assert_string_equal(text, cases[i].text);
            assert_int_equal(writer.non_finite_count, cases[i].non_finite);
        }
    }
}

/* What we write we read: a tensor of random bits through both, in odd pieces. */
static dk_status compare_values(void *context, const struct dk_json_tensor *tensor, uint64_t offset,
                                const double *values, size_t count, struct dk_error *error)
{
    (void)tensor;
    (void)error;
    const float *expected = context;
    for (size_t i = 0; i < count; i++) {
        assert_true((float)values[i] == expected[offset + i]);
    }
    return DK_OK;
}

static void test_tensor_text_reads_back(void **state)
{
    (void)state;
    enum { ROWS = 37, COLUMNS = 131 };
    static float values[ROWS * COLUMNS];
    uint32_t bits = 99;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        do {
            bits = bits * 1664525U + 1013904223U;
            values[i] = float_of_bits(bits);
        } while (!isfinite(values[i]));
    }
    static const char *const paths[] = {"x"};
    const struct dk_json_sink sink = {.context = values, .values = compare_values};
    static const size_t sizes[] = {64, 100, 1000, 1 << 16};
    for (size_t s = 0; s < 4; s++) {
        static char piece[1 << 16];
        struct dk_json_reader *reader;
        struct dk_json_tensor_writer writer;
        const char *skeleton;
        size_t length;
        assert_int_equal(dk_json_reader_new(paths, 1, &sink, &reader), DK_OK);
        assert_int_equal(dk_json_reader_feed(reader, "{\"x\":", 5, NULL), DK_OK);
        dk_json_tensor_writer_init(&writer, values, DK_FP32, ROWS, COLUMNS, true);
        while ((length = dk_json_tensor_writer_next(&writer, piece, sizes[s])) > 0) {
            assert_int_equal(dk_json_reader_feed(reader, piece, length, NULL), DK_OK);
        }
        assert_int_equal(dk_json_reader_feed(reader, "}", 1, NULL), DK_OK);
        assert_int_equal(dk_json_reader_finish(reader, &skeleton, &length, NULL), DK_OK);
        assert_int_equal(dk_json_reader_tensor(reader, 0)->shape[0], ROWS);
        assert_int_equal(dk_json_reader_tensor(reader, 0)->shape[1], COLUMNS);
        dk_json_reader_free(reader);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_floats),
        cmocka_unit_test(test_random_floats_read_back_and_are_shortest),
        cmocka_unit_test(test_special_floats_read_back_and_are_shortest),
        cmocka_unit_test(test_doubles),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_strings_are_escaped_and_valid_utf8),
        cmocka_unit_test(test_tensor_forms),
        cmocka_unit_test(test_tensor_text_reads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
