/* test_gemm_bounded.c: real numbers against an fp64 reference, element by element, within the contract's
 * bound for the plan used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/kernels/gemm_reference.h"

static struct dk_test_engines all;

static const dk_dtype floats[] = {DK_FP32, DK_BF16, DK_FP16};
static const enum dk_test_fill fills[] = {DK_TEST_RANDOM, DK_TEST_POSITIVE, DK_TEST_CANCELLING};

/* One seed, all T: where plans and kernels change, neither error nor type may jump. */
static void test_c14_every_t_within_the_bound(void **state)
{
    (void)state;
    static const uint64_t long_rows[] = {63, 64, 65, 127, 128, 129, 255, 257, 1000};
    struct dk_test_case what = {.m = DK_TEST_IS_SLOW_BUILD ? 130 : 1000,
                                .n = 256,
                                .k = 7168,
                                .b_dtype = DK_BF16,
                                .layout = DK_LAYOUT_NK,
                                .seed = 14};
    struct dk_test_product *product = dk_test_product_new(&what);
    float *c = malloc(what.m * what.n * sizeof(float));
    for (uint32_t v = 0; v < all.count; v++) {
        struct dk_engine *engine = all.engines[v];
        struct dk_weights *weights = dk_test_weights_new(product, engine);
        assert_non_null(weights);
        for (uint32_t i = 1; i <= 33 + 9; i++) {
            uint64_t rows = i <= 33 ? i : long_rows[i - 34];
            if (rows > what.m || dk_test_affordable_rows(engine, &what, rows) < rows) {
                continue;
            }
            if (!dk_test_run_rows(product, engine, weights, 0, rows, c) ||
                !dk_test_check_rows(product, weights, 0, rows, c)) {
                fail_msg("%s: T=%llu", all.names[v], (unsigned long long)rows);
            }
        }
        dk_weights_free(weights);
    }
    free(c);
    dk_test_product_free(product);
}

static void test_every_k_type_and_fill(void **state)
{
    (void)state;
    static const uint64_t k_values[] = {1,   2,   3,   4,   5,   15,  16,  17,   31,   33,   64,   100,
                                        207, 208, 319, 320, 447, 449, 896, 6000, 7177, 8192, 14400};
    enum { K_COUNT = sizeof k_values / sizeof k_values[0] };
    for (uint32_t i = 0; i < K_COUNT * 9; i += DK_TEST_IS_SLOW_BUILD ? 4 : 1) {
        struct dk_test_case what = {
            .m = 1 + i % 7,
            .n = 33,
            .k = k_values[i % K_COUNT],
            .a_dtype = floats[i / K_COUNT % 3],
            .b_dtype = floats[i % 3],
            .c_dtype = floats[i / 2 % 3],
            .layout = i % 2 ? DK_LAYOUT_NK : DK_LAYOUT_KN,
            .has_bias = i % 4 == 1,
            .epilogue = (dk_epilogue)(i % 5 % 3),
            .fill = fills[i / K_COUNT / 3],
            .seed = i,
        };
        /* Values that outgrow fp16 are another test's. */
        what.c_dtype = what.fill == DK_TEST_RANDOM ? what.c_dtype : DK_FP32;
        if (!dk_test_case_passes(&what, all.engines, all.count)) {
            fail_msg("case %u", i);
        }
    }
}

/* fp32 inputs are true fp32: values that TF32 or bf16 would round must count in full. */
static void test_fp32_is_not_rounded_to_tf32(void **state)
{
    (void)state;
    float b[1] = {1.0f + 0x1p-23f};
    struct dk_weights_desc desc = {.n = 1, .k = 1, .dtype = DK_FP32, .layout = DK_LAYOUT_KN, .data = b};
    for (uint32_t v = 0; v < all.count; v++) {
        struct dk_engine *engine = all.engines[v];
        struct dk_weights *weights;
        void *workspace;
        assert_int_equal(dk_weights_new(engine, &desc, &weights, NULL), DK_OK);
        assert_int_equal(dk_workspace_new(engine, dk_workspace_bytes(weights, 1), &workspace, NULL), DK_OK);
        float a = 1.0f, c = 0;
        struct dk_call call = {
            .m = 1, .a = &a, .a_row_elements = 1, .c = &c, .c_row_elements = 1, .workspace = workspace};
        assert_int_equal(dk_run_host(weights, &call, NULL, NULL), DK_OK);
        assert_memory_equal(&c, b, sizeof c);
        dk_workspace_free(engine, workspace);
        dk_weights_free(weights);
    }
}

int main(int argc, char **argv)
{
    uint32_t count = dk_test_engines_init(argc, argv, false, &all);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_c14_every_t_within_the_bound),
        cmocka_unit_test(test_every_k_type_and_fill),
        cmocka_unit_test(test_fp32_is_not_rounded_to_tf32),
    };
    int result = count == 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
    dk_test_engines_deinit(&all);
    return result;
}
