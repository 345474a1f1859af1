/* test_gemm_repeat.c: a row's bits depend on nothing but the row and the weights: not on the run, on T, on
 * its mates, on the thread count or on the instruction set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/kernels/gemm_reference.h"

static struct dk_test_engines all;

static const uint64_t long_rows[] = {63, 64, 65, 127, 128, 129, 255, 257, 1000};

/* All T of one product against its first run; `expected` is filled by the first variant. */
static void check_all_t(const struct dk_test_product *product, uint64_t most_rows, const char *name,
                        struct dk_engine *engine, char *expected, bool is_first)
{
    size_t row_bytes = product->what.n * dk_dtype_bytes(product->what.c_dtype);
    char *c = malloc(most_rows * row_bytes);
    struct dk_weights *weights = dk_test_weights_new(product, engine);
    assert_non_null(weights);
    if (is_first) {
        assert_true(dk_test_run_rows(product, engine, weights, 0, product->what.m, expected));
    }
    for (uint32_t i = 1; i <= 33 + 9; i++) {
        uint64_t rows = i <= 33 ? i : long_rows[i - 34];
        if (rows > most_rows || (DK_TEST_IS_SLOW_BUILD && rows > 8 && rows % 4 > 1)) {
            continue;
        }
        /* Not always the first rows: a row's place in the batch must not matter either. */
        uint64_t row0 = (product->what.m - rows) / 2;
        for (int run = 0; run < 2; run++) {
            assert_true(dk_test_run_rows(product, engine, weights, row0, rows, c));
            if (memcmp(c, expected + row0 * row_bytes, rows * row_bytes) != 0) {
                fail_msg("%s: T=%llu of k=%llu n=%llu, run %d: other bits", name, (unsigned long long)rows,
                         (unsigned long long)product->what.k, (unsigned long long)product->what.n, run);
            }
        }
    }
    dk_weights_free(weights);
    free(c);
}

static void check_shape(struct dk_test_case what)
{
    struct dk_test_product *product = dk_test_product_new(&what);
    size_t row_bytes = what.n * dk_dtype_bytes(what.c_dtype);
    char *expected = malloc(what.m * row_bytes);
    for (uint32_t v = 0; v < all.count; v++) {
        struct dk_engine *engine = all.engines[v];
        uint64_t rows = dk_test_affordable_rows(engine, &what, what.m);
        check_all_t(product, rows, all.names[v], engine, expected, v == 0);
    }
    free(expected);
    dk_test_product_free(product);
}

static void test_router_shape_bits_do_not_depend_on_t_threads_or_isa(void **state)
{
    (void)state;
    check_shape((struct dk_test_case){.m = DK_TEST_IS_SLOW_BUILD ? 130 : 1000,
                                      .n = 256,
                                      .k = 7168,
                                      .b_dtype = DK_BF16,
                                      .layout = DK_LAYOUT_NK,
                                      .fill = DK_TEST_RANDOM,
                                      .seed = 3});
}

static void test_odd_shapes_bits_do_not_depend_on_t_threads_or_isa(void **state)
{
    (void)state;
    static const dk_dtype floats[] = {DK_FP32, DK_BF16, DK_FP16};
    static const struct {
        uint64_t n, k;
    } shapes[] = {{257, 903}, {17, 1345}, {40, 449},  {1, 2000},
                  {130, 100}, {600, 31},  {384, 960}, {16, 20000}};
    for (uint32_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        check_shape((struct dk_test_case){.m = DK_TEST_IS_SLOW_BUILD ? 130 : 257,
                                          .n = shapes[i].n,
                                          .k = shapes[i].k,
                                          .a_dtype = floats[(i + 1) % 3],
                                          .b_dtype = floats[i % 3],
                                          .c_dtype = floats[i / 3 % 3],
                                          .epilogue = (dk_epilogue)(i % 3),
                                          .has_bias = i % 2 == 0,
                                          .fill = DK_TEST_RANDOM,
                                          .seed = i});
    }
}

int main(int argc, char **argv)
{
    uint32_t count = dk_test_engines_init(argc, argv, true, &all);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_router_shape_bits_do_not_depend_on_t_threads_or_isa),
        cmocka_unit_test(test_odd_shapes_bits_do_not_depend_on_t_threads_or_isa),
    };
    int result = count == 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
    dk_test_engines_deinit(&all);
    return result;
}
