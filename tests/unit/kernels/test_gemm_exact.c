/* test_gemm_exact.c: small integers, whose every partial sum is exact in fp32: bits must match the reference
 * in any order of summation, for every shape, type, layout, epilogue and alignment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/kernels/gemm_reference.h"

static struct dk_test_engines all;

static const uint64_t k_values[] = {1,   2,   15,  16,   17,   31,   64,   447,
                                    448, 449, 896, 7168, 7169, 7177, 8192, 14400};
static const uint64_t n_values[] = {1, 2, 7, 8, 15, 16, 17, 31, 255, 256, 257, 384};
enum { K_COUNT = sizeof k_values / sizeof k_values[0], N_COUNT = sizeof n_values / sizeof n_values[0] };

static const dk_dtype floats[] = {DK_FP32, DK_BF16, DK_FP16};

static void check(const struct dk_test_case *what, uint32_t index)
{
    if (!dk_test_case_passes(what, all.engines, all.count)) {
        fail_msg("case %u", index);
    }
}

/* Every K meets every N; rows, types and layouts take turns so that all meet over the grid. */
static void test_c18_every_k_and_n(void **state)
{
    (void)state;
    static const uint64_t rows[] = {1, 5, 16, 17, 64, 2, 7, 12, 13, 3};
    for (uint32_t i = 0; i < K_COUNT * N_COUNT; i += DK_TEST_IS_SLOW_BUILD ? 5 : 1) {
        struct dk_test_case what = {
            .k = k_values[i / N_COUNT],
            .n = n_values[i % N_COUNT],
            .m = rows[i % 10],
            .a_dtype = floats[i % 3],
            .b_dtype = floats[(i / 3 + i / N_COUNT) % 3],
            .layout = i % 2 ? DK_LAYOUT_NK : DK_LAYOUT_KN,
            .seed = i,
        };
        check(&what, i);
    }
}

static void test_every_type_layout_and_epilogue(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 27u * 2 * 2 * 4; i += DK_TEST_IS_SLOW_BUILD ? 5 : 1) {
        uint32_t rest = i / 27, bias = rest / 4;
        struct dk_test_case what = {
            .m = 1 + i % 13,
            .n = 70,
            .k = 483, /* two chunks, the second odd */
            .a_dtype = floats[i % 3],
            .b_dtype = floats[i / 3 % 3],
            .c_dtype = floats[i / 9 % 3],
            .layout = rest % 2 ? DK_LAYOUT_NK : DK_LAYOUT_KN,
            .epilogue = rest / 2 % 2 ? DK_EPILOGUE_RELU : DK_EPILOGUE_NONE,
            .has_bias = bias % 2 != 0,
            .has_call_bias = bias / 2 % 2 != 0,
            .seed = i,
        };
        check(&what, i);
    }
}

static void test_any_alignment_and_leading_dimension(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 64; i++) {
        struct dk_test_case what = {
            .m = i % 2 ? 9 : 40,
            .n = 37,
            .k = 1000,
            .a_dtype = floats[i % 3],
            .b_dtype = floats[i / 3 % 3],
            .c_dtype = floats[i / 5 % 3],
            .layout = i % 2 ? DK_LAYOUT_NK : DK_LAYOUT_KN,
            .a_pad = i % 7,
            .c_pad = i % 5,
            .a_offset = i % 4,
            .b_offset = i / 2 % 4,
            .c_offset = i / 4 % 4,
            .seed = i,
        };
        check(&what, i);
    }
}

/* Longer than 64 chunks of 448: chunks grow instead. */
static void test_very_long_k(void **state)
{
    (void)state;
    struct dk_test_case what = {.m = 9, .n = 5, .k = 100003, .b_dtype = DK_BF16, .layout = DK_LAYOUT_NK};
    check(&what, 0);
    what.m = 200;
    check(&what, 1);
}

int main(int argc, char **argv)
{
    uint32_t count = dk_test_engines_init(argc, argv, false, &all);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_c18_every_k_and_n),
        cmocka_unit_test(test_every_type_layout_and_epilogue),
        cmocka_unit_test(test_any_alignment_and_leading_dimension),
        cmocka_unit_test(test_very_long_k),
    };
    int result = count == 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
    dk_test_engines_deinit(&all);
    return result;
}
