/* test_gemm.c: the limits of one product and its sizes. */
#include "tests/unit/proto/cmocka_all.h"

#include <string.h>

#include "proto/gemm.h"

static struct dk_gemm gate(void)
{
    return (struct dk_gemm){.m = 17,
                            .n = 256,
                            .k = 7168,
                            .a_dtype = DK_BF16,
                            .b_dtype = DK_BF16,
                            .c_dtype = DK_FP32,
                            .b_layout = DK_LAYOUT_NK,
                            .has_bias = true};
}

static void test_sizes_of_the_gate(void **state)
{
    (void)state;
    struct dk_gemm gemm = gate();
    struct dk_gemm_sizes sizes;
    assert_int_equal(dk_gemm_check(&gemm, &sizes, NULL), DK_OK);
    assert_int_equal(sizes.a_bytes, 17 * 7168 * 2);
    assert_int_equal(sizes.b_bytes, 7168 * 256 * 2);
    assert_int_equal(sizes.c_bytes, 17 * 256 * 4);
    assert_int_equal(sizes.bias_bytes, 256 * 4);
}

static void test_c13_zero_rows_are_legal(void **state)
{
    (void)state;
    struct dk_gemm gemm = gate();
    struct dk_gemm_sizes sizes;
    gemm.m = 0;
    assert_int_equal(dk_gemm_check(&gemm, &sizes, NULL), DK_OK);
    assert_int_equal(sizes.a_bytes, 0);
    assert_int_equal(sizes.c_bytes, 0);
}

static void test_extents_out_of_range_are_named(void **state)
{
    (void)state;
    static const struct {
        uint64_t m, n, k;
        const char *quoted;
    } cases[] = {
        {DK_MAX_M + 1ULL, 1, 1, "m is 16777217"},        {1, 0, 1, "n is 0"},
        {1, DK_MAX_N + 1ULL, 1, "n is 1048577"},         {1, 1, 0, "k is 0"},
        {1, 1, UINT64_MAX, "k is 18446744073709551615"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dk_gemm gemm = gate();
        gemm.m = cases[i].m;
        gemm.n = cases[i].n;
        gemm.k = cases[i].k;
        struct dk_gemm_sizes sizes = {.a_bytes = 99};
        struct dk_error error = {0};
        assert_int_equal(dk_gemm_check(&gemm, &sizes, &error), DK_BAD_SHAPE);
        assert_non_null(strstr(error.message, cases[i].quoted));
        assert_int_equal(sizes.a_bytes, 99);
    }
    struct dk_gemm largest = gate();
    struct dk_gemm_sizes sizes;
    largest.m = DK_MAX_M;
    largest.n = DK_MAX_N;
    largest.k = DK_MAX_K;
    assert_int_equal(dk_gemm_check(&largest, &sizes, NULL), DK_OK);
    assert_int_equal(sizes.a_bytes, (uint64_t)DK_MAX_M * DK_MAX_K * 2);
}

static void test_types_must_be_floats(void **state)
{
    (void)state;
    struct dk_gemm gemm = gate();
    struct dk_gemm_sizes sizes;
    struct dk_error error = {0};
    gemm.c_dtype = DK_INT32;
    assert_int_equal(dk_gemm_check(&gemm, &sizes, &error), DK_BAD_DTYPE);
    assert_string_equal(error.message, "the type of c is int32; expected fp32, bf16 or fp16");
    gemm = gate();
    gemm.a_dtype = (dk_dtype)77;
    assert_int_equal(dk_gemm_check(&gemm, &sizes, &error), DK_BAD_DTYPE);
    gemm = gate();
    gemm.epilogue = (dk_epilogue)77;
    assert_int_equal(dk_gemm_check(&gemm, &sizes, &error), DK_BAD_VALUE);
}

static void test_checked_arithmetic(void **state)
{
    (void)state;
    size_t out = 5;
    assert_true(dk_size_mul(1UL << 32, (1UL << 32) - 1, &out));
    assert_int_equal(out, ((1UL << 32) - 1) << 32);
    assert_false(dk_size_mul(1UL << 32, 1UL << 32, &out));
    assert_false(dk_size_add(SIZE_MAX, 1, &out));
    assert_int_equal(out, ((1UL << 32) - 1) << 32);
    assert_true(dk_size_add(SIZE_MAX - 1, 1, &out));
    assert_int_equal(out, SIZE_MAX);
}

static void test_names_parse_back(void **state)
{
    (void)state;
    dk_epilogue epilogue = DK_EPILOGUE_RELU;
    dk_layout layout = DK_LAYOUT_NK;
    for (unsigned i = 0; i < DK_EPILOGUE_COUNT; i++) {
        const char *name = dk_epilogue_name((dk_epilogue)i);
        assert_int_equal(dk_epilogue_parse(name, strlen(name), &epilogue), DK_OK);
        assert_int_equal(epilogue, i);
    }
    assert_int_equal(dk_epilogue_parse("Relu", 4, &epilogue), DK_BAD_VALUE);
    assert_int_equal(epilogue, DK_EPILOGUE_SIGMOID);
    assert_int_equal(dk_layout_parse("kn", 2, &layout), DK_OK);
    assert_int_equal(layout, DK_LAYOUT_KN);
    assert_int_equal(dk_layout_parse("k", 1, &layout), DK_BAD_VALUE);
    assert_string_equal(dk_layout_name(DK_LAYOUT_NK), "nk");
    assert_string_equal(dk_epilogue_name((dk_epilogue)9), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_of_the_gate),
        cmocka_unit_test(test_c13_zero_rows_are_legal),
        cmocka_unit_test(test_extents_out_of_range_are_named),
        cmocka_unit_test(test_types_must_be_floats),
        cmocka_unit_test(test_checked_arithmetic),
        cmocka_unit_test(test_names_parse_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
