/* test_gemm_nonfinite.c: NaN and infinities come out where they belong and nowhere else; zero rows do
 * nothing. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/kernels/gemm_reference.h"

static struct dk_test_engines all;

struct spoiled {
    uint64_t row, k;
    float value;
};

/* Same bits as `clean` in every other row; the spoiled row is what IEEE arithmetic says. */
static void check_spoiled(const struct dk_test_product *product, const float *clean, const float *got,
                          uint64_t rows, struct spoiled spoiled)
{
    uint64_t n = product->what.n, k = product->what.k;
    for (uint64_t row = 0; row < rows; row++) {
        if (row != spoiled.row) {
            assert_memory_equal(got + row * n, clean + row * n, n * sizeof(float));
        }
    }
    for (uint64_t j = 0; j < n; j++) {
        float weight = product->b_transposed[j * k + spoiled.k];
        float wanted = spoiled.value * weight, element = got[spoiled.row * n + j];
        if (product->what.epilogue == DK_EPILOGUE_RELU) {
            wanted = wanted <= 0 ? 0 : wanted;
        } else if (product->what.epilogue == DK_EPILOGUE_SIGMOID) {
            wanted = wanted > 0 ? 1 : wanted < 0 ? 0 : wanted;
        }
        assert_true(isnan(wanted) ? isnan(element) : element == wanted);
    }
}

static void check_case(struct dk_test_case what, struct spoiled spoiled)
{
    struct dk_test_product *product = dk_test_product_new(&what);
    size_t bytes = what.m * what.n * sizeof(float);
    float *clean = malloc(bytes), *got = malloc(bytes);
    float before = product->a[spoiled.row * what.k + spoiled.k];
    for (uint32_t v = 0; v < all.count; v++) {
        struct dk_engine *engine = all.engines[v];
        struct dk_weights *weights = dk_test_weights_new(product, engine);
        dk_test_product_set_a(product, spoiled.row, spoiled.k, before);
        assert_true(dk_test_run_rows(product, engine, weights, 0, what.m, clean));
        dk_test_product_set_a(product, spoiled.row, spoiled.k, spoiled.value);
        assert_true(dk_test_run_rows(product, engine, weights, 0, what.m, got));
        check_spoiled(product, clean, got, what.m, spoiled);
        dk_weights_free(weights);
    }
    free(got);
    free(clean);
    dk_test_product_free(product);
}

static const float bad_values[] = {NAN, INFINITY, -INFINITY};

static void test_c04_bad_values_stay_in_their_row(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        struct dk_test_case what = {.m = 4,
                                    .n = 256,
                                    .k = 7168,
                                    .b_dtype = DK_BF16,
                                    .layout = DK_LAYOUT_NK,
                                    .fill = DK_TEST_POSITIVE};
        check_case(what, (struct spoiled){2, 5000, bad_values[i]});
        check_case(what, (struct spoiled){2, 0, bad_values[i]});
        what.m = 70;
        check_case(what, (struct spoiled){69, 7167, bad_values[i]});
    }
}

/* Odd K, padded columns, short last chunk: no zero of the padding may meet the infinity. */
static void test_c04_padding_makes_no_nan(void **state)
{
    (void)state;
    static const dk_dtype floats[] = {DK_FP32, DK_BF16, DK_FP16};
    for (uint32_t i = 0; i < 3 * 3 * 3; i++) {
        struct dk_test_case what = {.m = i % 2 ? 3 : 20,
                                    .n = 17,
                                    .k = 905,
                                    .a_dtype = floats[i / 3 % 3],
                                    .b_dtype = floats[i % 3],
                                    .fill = DK_TEST_POSITIVE,
                                    .epilogue = (dk_epilogue)(i / 9),
                                    .a_pad = i % 3};
        check_case(what, (struct spoiled){1, 904, bad_values[i % 3]});
        check_case(what, (struct spoiled){0, 447, bad_values[(i + 1) % 3]});
    }
}

/* An infinite product times a zero weight is NaN: it may not be skipped. */
static void test_infinity_times_zero_is_nan(void **state)
{
    (void)state;
    struct dk_test_case what = {.m = 2, .n = 40, .k = 600, .fill = DK_TEST_INTEGERS};
    check_case(what, (struct spoiled){1, 33, INFINITY}); /* integers from -8 to 8: some weights are 0 */
}

/* A bad weight spoils its column in every row, no other. */
static void test_bad_weight_stays_in_its_column(void **state)
{
    (void)state;
    struct dk_test_case what = {.m = 9, .n = 67, .k = 500, .b_dtype = DK_BF16, .layout = DK_LAYOUT_NK};
    struct dk_test_product *product = dk_test_product_new(&what);
    const uint16_t nan = 0x7fc0;
    memcpy(product->b_memory + (66 * what.k + 499) * 2, &nan, 2);
    float *c = malloc(what.m * what.n * sizeof(float));
    for (uint32_t v = 0; v < all.count; v++) {
        struct dk_engine *engine = all.engines[v];
        struct dk_weights *weights = dk_test_weights_new(product, engine);
        assert_true(dk_test_run_rows(product, engine, weights, 0, what.m, c));
        for (uint64_t i = 0; i < what.m * what.n; i++) {
            assert_int_equal(isnan(c[i]) != 0, i % what.n == 66);
        }
        dk_weights_free(weights);
    }
    free(c);
    dk_test_product_free(product);
}

/* Subnormal inputs count in full; sums beyond the output type's range become infinite. */
static void test_subnormals_count_and_overflow_is_infinite(void **state)
{
    (void)state;
    const uint16_t tiny = 1, big[2] = {0x7bff, 0x7bff}; /* 2^-133 as bf16; 65504 as fp16 */
    float a[2] = {0x1p10f, 1.0f}, c = 0;
    for (uint32_t v = 0; v < all.count; v++) {
        struct dk_engine *engine = all.engines[v];
        struct dk_weights *weights;
        void *workspace;
        struct dk_weights_desc desc = {1, 1, DK_BF16, DK_LAYOUT_KN, &tiny, NULL};
        struct dk_call call = {.m = 1, .a = a, .a_row_elements = 2, .c = &c, .c_row_elements = 1};
        assert_int_equal(dk_weights_new(engine, &desc, &weights, NULL), DK_OK);
        assert_int_equal(dk_workspace_new(engine, 1 << 20, &workspace, NULL), DK_OK);
        call.workspace = workspace;
        assert_int_equal(dk_run_host(weights, &call, NULL, NULL), DK_OK);
        assert_true(c == 0x1p-123f);
        dk_weights_free(weights);
        desc = (struct dk_weights_desc){1, 2, DK_FP16, DK_LAYOUT_KN, big, NULL};
        assert_int_equal(dk_weights_new(engine, &desc, &weights, NULL), DK_OK);
        uint16_t half = 0;
        call.c = &half;
        call.c_dtype = DK_FP16;
        assert_int_equal(dk_run_host(weights, &call, NULL, NULL), DK_OK);
        assert_int_equal(half, 0x7c00);
        dk_weights_free(weights);
        dk_workspace_free(engine, workspace);
    }
}

static void test_c13_zero_rows_do_nothing_and_succeed(void **state)
{
    (void)state;
    struct dk_test_case what = {.m = 3, .n = 20, .k = 500, .b_dtype = DK_BF16};
    struct dk_test_product *product = dk_test_product_new(&what);
    float c[3 * 20];
    for (uint32_t v = 0; v < all.count; v++) {
        struct dk_engine *engine = all.engines[v];
        struct dk_weights *weights = dk_test_weights_new(product, engine);
        struct dk_call call = {.m = 0, .a_row_elements = 500, .c_row_elements = 20};
        uint64_t kernel_ns = 77;
        assert_int_equal(dk_enqueue(weights, &call, NULL), DK_OK);
        assert_int_equal(dk_run_host(weights, &call, &kernel_ns, NULL), DK_OK);
        assert_int_equal(kernel_ns, 0);
        assert_true(dk_test_run_rows(product, engine, weights, 0, 3, c));
        assert_true(dk_test_check_rows(product, weights, 0, 3, c));
        dk_weights_free(weights);
    }
    dk_test_product_free(product);
}

int main(int argc, char **argv)
{
    uint32_t count = dk_test_engines_init(argc, argv, false, &all);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_c04_bad_values_stay_in_their_row),
        cmocka_unit_test(test_c04_padding_makes_no_nan),
        cmocka_unit_test(test_infinity_times_zero_is_nan),
        cmocka_unit_test(test_bad_weight_stays_in_its_column),
        cmocka_unit_test(test_subnormals_count_and_overflow_is_infinite),
        cmocka_unit_test(test_c13_zero_rows_do_nothing_and_succeed),
    };
    int result = count == 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
    dk_test_engines_deinit(&all);
    return result;
}
