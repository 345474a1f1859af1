/* test_client_npy.c: .npy headers good and bad, and the conversion of their values. */
#include "tests/unit/client/check.h"

#include <math.h>

#include "client/npy.h"

/* One file in memory: version, dictionary text as given, then `data_bytes` of data. */
struct file {
    unsigned char bytes[8192];
    size_t length;
};

static struct file make_file(unsigned major, const char *dictionary, const void *data, size_t data_bytes)
{
    struct file file = {.bytes = {0x93, 'N', 'U', 'M', 'P', 'Y', (unsigned char)major, 0}};
    size_t word_bytes = major == 1 ? 2 : 4, text_bytes = strlen(dictionary);
    for (size_t i = 0; i < word_bytes; i++)
        file.bytes[8 + i] = (unsigned char)(text_bytes >> (8 * i));
    memcpy(file.bytes + 8 + word_bytes, dictionary, text_bytes);
    file.length = 8 + word_bytes + text_bytes;
    assert_true(file.length + data_bytes <= sizeof file.bytes);
    if (data_bytes > 0)
        memcpy(file.bytes + file.length, data, data_bytes);
    file.length += data_bytes;
    return file;
}

/* Parse a copy that ends with its heap block, so that AddressSanitizer sees any step outside. */
static dk_status parse_exact(const struct file *file, struct dk_npy *out, struct dk_error *error)
{
    unsigned char *copy = malloc(file->length ? file->length : 1);
    assert_non_null(copy);
    memcpy(copy, file->bytes, file->length);
    dk_status status = dk_npy_parse(copy, file->length, out, error);
    free(copy);
    return status;
}

static void check_refused(const struct file *file, dk_status expected, const char *part)
{
    struct dk_npy npy = {.rows = 77};
    struct dk_error error = {0};
    assert_int_equal(parse_exact(file, &npy, &error), expected);
    assert_int_equal(error.status, expected);
    assert_int_equal(npy.rows, 77); /* untouched */
    check_contains(error.message, part);
}

static const float six[6] = {1, 2, 3, 4, 5, 6};

static void test_versions_1_2_3_are_read(void **state)
{
    (void)state;
    for (unsigned major = 1; major <= 3; major++) {
        struct file file = make_file(
            major, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n", six, sizeof six);
        struct dk_npy npy;
        assert_int_equal(parse_exact(&file, &npy, NULL), DK_OK);
        assert_int_equal(npy.rows, 2);
        assert_int_equal(npy.cols, 3);
        assert_int_equal(npy.type, DK_NPY_F4);
        float out[6];
        assert_int_equal(dk_npy_convert(&npy, file.bytes, DK_FP32, out, NULL), DK_OK);
        assert_memory_equal(out, six, sizeof six);
    }
}

static void test_any_key_order_quotes_and_spaces_are_read(void **state)
{
    (void)state;
    struct file file =
        make_file(1, "{ \"shape\":(2,3),\"fortran_order\" : False,'descr':\"<f4\"}", six, sizeof six);
    struct dk_npy npy;
    assert_int_equal(parse_exact(&file, &npy, NULL), DK_OK);
    assert_int_equal(npy.rows * 10 + npy.cols, 23);
}

static void test_vector_is_one_row_and_empty_vector_is_none(void **state)
{
    (void)state;
    struct dk_npy npy;
    struct file file =
        make_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", six, sizeof six);
    assert_int_equal(parse_exact(&file, &npy, NULL), DK_OK);
    assert_int_equal(npy.rows, 1);
    assert_int_equal(npy.cols, 6);
    file = make_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }", NULL, 0);
    assert_int_equal(parse_exact(&file, &npy, NULL), DK_OK);
    assert_int_equal(npy.rows, 0);
    file = make_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 7168), }", NULL, 0);
    assert_int_equal(parse_exact(&file, &npy, NULL), DK_OK);
    assert_int_equal(npy.rows, 0);
    assert_int_equal(npy.cols, 7168);
}

static void test_rows_without_columns_cost_nothing(void **state)
{
    (void)state;
    struct file file = make_file(
        1, "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808, 0), }", NULL, 0);
    struct dk_npy npy;
    char nothing;
    assert_int_equal(parse_exact(&file, &npy, NULL), DK_OK);
    assert_int_equal(dk_npy_convert(&npy, file.bytes, DK_FP32, &nothing, NULL), DK_OK); /* and returns */
}

static void test_fortran_order_is_transposed(void **state)
{
    (void)state;
    /* Columns (1,2), (3,4), (5,6) of a [2, 3] matrix. */
    struct file file =
        make_file(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", six, sizeof six);
    struct dk_npy npy;
    assert_int_equal(parse_exact(&file, &npy, NULL), DK_OK);
    const float expected[6] = {1, 3, 5, 2, 4, 6};
    float out[6];
    assert_int_equal(dk_npy_convert(&npy, file.bytes, DK_FP32, out, NULL), DK_OK);
    assert_memory_equal(out, expected, sizeof expected);
}

static void test_halves_and_doubles_are_rounded_once(void **state)
{
    (void)state;
    const uint16_t halves[2] = {0x4248, 0x3c00}; /* 3.140625, 1 */
    struct file file = make_file(1, "{'descr': '<f2', 'fortran_order': False, 'shape': (1, 2), }", halves, 4);
    struct dk_npy npy;
    assert_int_equal(parse_exact(&file, &npy, NULL), DK_OK);
    uint16_t bits[2];
    assert_int_equal(dk_npy_convert(&npy, file.bytes, DK_BF16, bits, NULL), DK_OK);
    assert_int_equal(bits[0], 0x4049);
    assert_int_equal(bits[1], 0x3f80);
    assert_int_equal(dk_npy_convert(&npy, file.bytes, DK_FP16, bits, NULL), DK_OK);
    assert_int_equal(bits[0], 0x4248);

    /* Just above the middle of two bf16 neighbours: by way of fp32 it would fall on the middle and go to
     * even. */
    const double wide[2] = {1.0 + 0x1p-8 + 0x1p-40, -(1.0 + 0x1p-8)};
    file = make_file(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2), }", wide, sizeof wide);
    assert_int_equal(parse_exact(&file, &npy, NULL), DK_OK);
    assert_int_equal(dk_npy_convert(&npy, file.bytes, DK_BF16, bits, NULL), DK_OK);
    assert_int_equal(bits[0], 0x3f81);
    assert_int_equal(bits[1], 0xbf80);
}

static void test_value_too_large_for_the_type_is_refused_with_its_place(void **state)
{
    (void)state;
    const float values[6] = {0, 0, 0, 0, 70000.0F, INFINITY};
    struct file file =
        make_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", values, 24);
    struct dk_npy npy;
    uint16_t bits[6];
    struct dk_error error;
    assert_int_equal(parse_exact(&file, &npy, NULL), DK_OK);
    assert_int_equal(dk_npy_convert(&npy, file.bytes, DK_FP16, bits, &error), DK_BAD_VALUE);
    check_contains(error.message, "x[1, 1]");
    check_contains(error.message, "fp16");
    assert_int_equal(dk_npy_convert(&npy, file.bytes, DK_BF16, bits, &error), DK_OK);
    assert_int_equal(bits[5], 0x7f80); /* an infinity that was there passes */
}

static void test_other_types_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *descr, *part;
    } cases[] = {{"'>f4'", "big-endian"},
                 {"'>f8'", "'>f8'"},
                 {"'<i4'", "'<i4'"},
                 {"'|b1'", "'|b1'"},
                 {"'|O'", "'|O'"},
                 {"'<c8'", "'<c8'"},
                 {"'|V2'", "--dtype bf16"},
                 {"'<f16'", "'<f16'"},
                 {"'f4'", "'f4'"},
                 {"''", "''"},
                 {"[('a', '<f4')]", "structured"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[128];
        snprintf(text, sizeof text, "{'descr': %s, 'fortran_order': False, 'shape': (2, 3), }",
                 cases[i].descr);
        struct file file = make_file(1, text, six, sizeof six);
        check_refused(&file, DK_BAD_DTYPE, cases[i].part);
    }
}

static void test_malformed_headers_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "{",
        "{}",
        "[]",
        "{'descr': '<f4'}",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)} x",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}}",
        "{'descr': '<f4' 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3)}",
        "{'descr': '<f4', 'fortran_order': false, 'shape': (2, 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': [2, 3]}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (6)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2.0, 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'shape': (2, 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'extra': 1}",
        "{'descr: '<f4', 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': '<f4\\x', 'fortran_order': False, 'shape': (2, 3)}",
        "{'descr': '<fffffffffffffffffffffffffffffffff4', 'fortran_order': False, 'shape': (2, 3)}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct file file = make_file(1, texts[i], six, sizeof six);
        struct dk_npy npy;
        struct dk_error error = {0};
        dk_status status = parse_exact(&file, &npy, &error);
        if (status != DK_BAD_FILE)
            fail_msg("status %s for: %s", dk_status_name(status), texts[i]);
        assert_true(error.message[0] != 0);
    }
}

static void test_ranks_other_than_1_and_2_are_refused(void **state)
{
    (void)state;
    struct file file = make_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", six, 4);
    check_refused(&file, DK_BAD_SHAPE, "0 dimensions");
    file = make_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3), }", six, sizeof six);
    check_refused(&file, DK_BAD_SHAPE, "3 dimensions");
    char text[512] = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
    for (int i = 0; i < 40; i++)
        strcat(text, "1,");
    strcat(text, ")}");
    file = make_file(1, text, six, 4);
    check_refused(&file, DK_BAD_SHAPE, "more than 32");
}

static void test_sizes_that_overflow_are_refused(void **state)
{
    (void)state;
    struct file file = make_file(
        1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", six, 24);
    check_refused(&file, DK_BAD_SHAPE, "4294967296");
    file = make_file(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2305843009213693952), }", six,
                     24);
    check_refused(&file, DK_BAD_SHAPE, "larger than any file");
    file = make_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 18446744073709551616), }", six,
                     24);
    check_refused(&file, DK_BAD_SHAPE, "2^64");
}

static void test_truncated_and_overlong_data_are_refused(void **state)
{
    (void)state;
    static const char text[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
    struct file file = make_file(1, text, six, 23);
    check_refused(&file, DK_BAD_FILE, "needs 24 bytes of data, the file has 23");
    file = make_file(1, text, six, sizeof six);
    file.length++;
    check_refused(&file, DK_BAD_FILE, "the file has 25");
}

static void test_every_prefix_of_a_file_is_refused(void **state)
{
    (void)state;
    struct file whole =
        make_file(2, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", six, sizeof six);
    for (size_t length = 0; length < whole.length; length++) {
        struct file part = whole;
        part.length = length;
        struct dk_npy npy;
        assert_int_equal(parse_exact(&part, &npy, NULL), DK_BAD_FILE);
    }
}

static void test_bad_magic_version_and_header_length_are_refused(void **state)
{
    (void)state;
    static const char text[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
    struct file file = make_file(1, text, six, sizeof six);
    file.bytes[1] = 'M';
    check_refused(&file, DK_BAD_FILE, "NUMPY");
    file = make_file(1, text, six, sizeof six);
    file.bytes[6] = 4;
    check_refused(&file, DK_BAD_FILE, "4.0");
    file.bytes[6] = 0;
    check_refused(&file, DK_BAD_FILE, "0.0");
    file = make_file(1, text, six, sizeof six);
    file.bytes[7] = 1;
    check_refused(&file, DK_BAD_FILE, "1.1");
    file = make_file(2, text, six, sizeof six);
    memset(file.bytes + 8, 0xff, 4);
    check_refused(&file, DK_BAD_FILE, "4294967295");
}

static void test_huge_header_is_refused_by_limit(void **state)
{
    (void)state;
    size_t length = 12 + DK_NPY_MAX_HEADER_BYTES + 1;
    unsigned char *bytes = calloc(1, length);
    assert_non_null(bytes);
    memcpy(bytes, (const unsigned char[]){0x93, 'N', 'U', 'M', 'P', 'Y', 2, 0, 1, 0, 1, 0}, 12);
    struct dk_npy npy;
    struct dk_error error;
    assert_int_equal(dk_npy_parse(bytes, length, &npy, &error), DK_BAD_FILE);
    check_contains(error.message, "above the limit");
    free(bytes);
}

static void test_written_header_reads_back(void **state)
{
    (void)state;
    struct file file = {.length = DK_NPY_HEADER_BYTES + 12};
    dk_npy_header((char *)file.bytes, DK_FP16, 2, 3);
    struct dk_npy npy;
    assert_int_equal(parse_exact(&file, &npy, NULL), DK_OK);
    assert_int_equal(npy.type, DK_NPY_F2);
    assert_int_equal(npy.rows, 2);
    assert_int_equal(npy.cols, 3);
    assert_false(npy.is_fortran);
    assert_int_equal(npy.data_offset % 64, 0);                          /* numpy's own alignment */
    dk_npy_header((char *)file.bytes, DK_FP32, UINT64_MAX, UINT64_MAX); /* the longest text fits */
    assert_int_equal(file.bytes[DK_NPY_HEADER_BYTES - 1], '\n');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions_1_2_3_are_read),
        cmocka_unit_test(test_any_key_order_quotes_and_spaces_are_read),
        cmocka_unit_test(test_vector_is_one_row_and_empty_vector_is_none),
        cmocka_unit_test(test_rows_without_columns_cost_nothing),
        cmocka_unit_test(test_fortran_order_is_transposed),
        cmocka_unit_test(test_halves_and_doubles_are_rounded_once),
        cmocka_unit_test(test_value_too_large_for_the_type_is_refused_with_its_place),
        cmocka_unit_test(test_other_types_are_refused_by_name),
        cmocka_unit_test(test_malformed_headers_are_refused),
        cmocka_unit_test(test_ranks_other_than_1_and_2_are_refused),
        cmocka_unit_test(test_sizes_that_overflow_are_refused),
        cmocka_unit_test(test_truncated_and_overlong_data_are_refused),
        cmocka_unit_test(test_every_prefix_of_a_file_is_refused),
        cmocka_unit_test(test_bad_magic_version_and_header_length_are_refused),
        cmocka_unit_test(test_huge_header_is_refused_by_limit),
        cmocka_unit_test(test_written_header_reads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
