/* test_client_infer_input.c: rows from .npy files, bare values and seeds, fitted to a model's K. */
#include "tests/unit/client/check.h"

#include "client/cli/infer_input.h"
#include "client/npy.h"

static char folder[64], path[128];

static int set_up(void **state)
{
    (void)state;
    make_temporary_folder(folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remove_folder(folder);
    return 0;
}

/* A '<f4' file [rows, cols] of 1, 2, 3... under `name`. */
static void write_npy(const char *name, uint64_t rows, uint64_t cols)
{
    char bytes[DK_NPY_HEADER_BYTES + 64 * sizeof(float)];
    dk_npy_header(bytes, DK_FP32, rows, cols);
    size_t count = rows * cols;
    assert_true(count <= 64);
    for (size_t i = 0; i < count; i++) {
        float value = (float)(i + 1);
        memcpy(bytes + DK_NPY_HEADER_BYTES + i * sizeof value, &value, sizeof value);
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    write_bytes(path, bytes, DK_NPY_HEADER_BYTES + count * sizeof(float));
}

static void test_npy_rows_are_converted_to_the_asked_type(void **state)
{
    (void)state;
    write_npy("x.npy", 2, 3);
    struct dk_infer_input input;
    assert_int_equal(dk_infer_input_load(path, false, DK_BF16, 3, &input, NULL), DK_OK);
    assert_int_equal(input.rows, 2);
    const uint16_t expected[6] = {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0};
    assert_memory_equal(input.x, expected, sizeof expected);
    free(input.x);
}

static void test_npy_content_is_known_by_its_magic(void **state)
{
    (void)state;
    write_npy("x.data", 2, 3);
    struct dk_infer_input input;
    assert_int_equal(dk_infer_input_load(path, false, DK_FP32, 3, &input, NULL), DK_OK);
    assert_int_equal(input.rows, 2);
    free(input.x);
    /* --raw: header and values, 152 bytes, are 38 bare values. */
    assert_int_equal(dk_infer_input_load(path, true, DK_FP32, 38, &input, NULL), DK_OK);
    assert_int_equal(input.rows, 1);
    free(input.x);
}

static void test_wrong_columns_and_bytes_are_refused_with_both_numbers(void **state)
{
    (void)state;
    struct dk_infer_input input;
    struct dk_error error;
    write_npy("x.npy", 2, 3);
    assert_int_equal(dk_infer_input_load(path, false, DK_FP32, 7168, &input, &error), DK_BAD_SHAPE);
    check_contains(error.message, "3 columns");
    check_contains(error.message, "7168");
    snprintf(path, sizeof path, "%s/x.bin", folder);
    write_bytes(path, "123456789", 9);
    assert_int_equal(dk_infer_input_load(path, false, DK_BF16, 2, &input, &error), DK_BAD_SHAPE);
    check_contains(error.message, "9 bytes");
    check_contains(error.message, "2 bf16 values (4 bytes each)");
    snprintf(path, sizeof path, "%s/bad.npy", folder);
    write_bytes(path, "12345678", 8);
    assert_int_equal(dk_infer_input_load(path, false, DK_BF16, 2, &input, &error), DK_BAD_FILE);
    check_contains(error.message, "not an npy file");
}

static void test_bare_values_and_nothing_are_whole_rows(void **state)
{
    (void)state;
    struct dk_infer_input input;
    snprintf(path, sizeof path, "%s/x.bin", folder);
    write_bytes(path, "12345678", 8);
    assert_int_equal(dk_infer_input_load(path, false, DK_FP16, 2, &input, NULL), DK_OK);
    assert_int_equal(input.rows, 2);
    assert_memory_equal(input.x, "12345678", 8);
    free(input.x);
    write_bytes(path, "", 0);
    assert_int_equal(dk_infer_input_load(path, false, DK_FP16, 2, &input, NULL), DK_OK);
    assert_int_equal(input.rows, 0);
    assert_non_null(input.x);
    free(input.x);
}

static void test_random_rows_depend_on_the_seed_only(void **state)
{
    (void)state;
    struct dk_infer_input a, b, c, none;
    assert_int_equal(dk_infer_input_random(5, 3, DK_BF16, 700, &a, NULL), DK_OK);
    assert_int_equal(dk_infer_input_random(5, 4, DK_BF16, 700, &b, NULL), DK_OK);
    assert_int_equal(dk_infer_input_random(6, 3, DK_BF16, 700, &c, NULL), DK_OK);
    assert_memory_equal(a.x, b.x, 3 * 700 * 2);
    assert_memory_not_equal(a.x, c.x, 3 * 700 * 2);
    assert_int_equal(dk_infer_input_random(5, 0, DK_BF16, 700, &none, NULL), DK_OK);
    assert_non_null(none.x);
    free(a.x);
    free(b.x);
    free(c.x);
    free(none.x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_npy_rows_are_converted_to_the_asked_type, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_npy_content_is_known_by_its_magic, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wrong_columns_and_bytes_are_refused_with_both_numbers, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_bare_values_and_nothing_are_whole_rows, set_up, tear_down),
        cmocka_unit_test(test_random_rows_depend_on_the_seed_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
