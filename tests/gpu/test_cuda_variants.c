/* test_cuda_variants.c: values of every compiled variant, forced one by one: exact, bounded, NaN and
 * infinities, operands that only the general form can take, and guards around all that is written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/gpu/device_product.h"
#include "tests/gpu/variant_list.h"

static struct variant_list variants;
static struct variant_options options;

enum { MOST_ROWS = 33 };
struct shape {
    uint64_t n, k;
};
/* Whole tiles, ragged tiles in each direction, less than one warp of K, and a K beyond one pass of most
 * variants. */
static const struct shape shapes[] = {{64, 3584}, {16, 8},     {37, 1000},  {160, 520},
                                      {19, 72},   {256, 7168}, {33, 20000}, {40, 16384}};
static const uint32_t edges[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33};
enum { SHAPE_COUNT = sizeof shapes / sizeof shapes[0], EDGE_COUNT = sizeof edges / sizeof edges[0] };

static struct dk_test_case router_case(struct shape shape, enum dk_test_fill fill)
{
    return (struct dk_test_case){.m = MOST_ROWS,
                                 .n = shape.n,
                                 .k = shape.k,
                                 .a_dtype = DK_BF16,
                                 .b_dtype = DK_BF16,
                                 .c_dtype = DK_FP32,
                                 .layout = DK_LAYOUT_NK,
                                 .fill = fill,
                                 .seed = (uint32_t)(shape.n + shape.k)};
}

/* One product, uploaded once, computed for `m` rows and checked with its guards. */
static void check_rows(struct device_product *p, uint32_t m)
{
    p->call.m = m;
    device_product_poison(p);
    assert_int_equal(dk_enqueue(p->weights, &p->call, NULL), DK_OK);
    device_product_check(p);
}

static void check_case(const struct dk_test_case *what, bool is_every_m, struct dk_engine *engine,
                       uint32_t variant)
{
    struct device_product p;
    device_product_init(&p, engine, what);
    uint32_t step = options.is_quick ? 4 : 1;
    for (uint32_t i = 0; is_every_m ? i < MOST_ROWS : i < EDGE_COUNT; i += step) {
        uint32_t m = is_every_m ? i + 1 : edges[i];
        if (!options.is_one_wave || m <= variants.rows[variant])
            check_rows(&p, m);
    }
    device_product_deinit(&p);
}

/* Every test runs with each variant, with and without dependent launch. */
static void for_each_variant(void (*body)(struct dk_engine *engine, uint32_t variant))
{
    for (uint32_t i = 0; i < variants.count; i++)
        for (int is_dependent = 0; is_dependent < 2; is_dependent++) {
            struct dk_engine *engine = variant_engine_new(variants.names[i], is_dependent);
            body(engine, i);
            dk_engine_free(engine);
        }
}

static void exact_body(struct dk_engine *engine, uint32_t variant)
{
    for (int i = 0; i < SHAPE_COUNT; i++) {
        if (options.is_quick && i != 2 && i != 4)
            continue;
        struct dk_test_case what = router_case(shapes[i], DK_TEST_INTEGERS);
        check_case(&what, i == 2 && !options.is_quick, engine, variant);
    }
}

static void test_integers_are_exact(void **state)
{
    (void)state;
    for_each_variant(exact_body);
}

/* Whatever the options: a variant that is never taken was not tested. */
static void forced_body(struct dk_engine *engine, uint32_t variant)
{
    struct dk_test_case what = router_case(shapes[0], DK_TEST_INTEGERS);
    struct dk_test_product *product = dk_test_product_new(&what);
    struct dk_weights *weights = dk_test_weights_new(product, engine);
    assert_non_null(weights);
    assert_string_equal(dk_plan_get(weights, 1)->variant, variants.names[variant]);
    assert_string_equal(dk_plan_get(weights, variants.rows[variant])->variant, variants.names[variant]);
    dk_weights_free(weights);
    dk_test_product_free(product);
}

static void test_a_forced_variant_is_taken(void **state)
{
    (void)state;
    for_each_variant(forced_body);
}

static void bounded_body(struct dk_engine *engine, uint32_t variant)
{
    static const enum dk_test_fill fills[] = {DK_TEST_RANDOM, DK_TEST_POSITIVE, DK_TEST_CANCELLING};
    static const dk_epilogue epilogues[] = {DK_EPILOGUE_NONE, DK_EPILOGUE_RELU, DK_EPILOGUE_SIGMOID};
    for (uint32_t i = 0; i < 3; i++) {
        struct dk_test_case what = router_case(shapes[i == 0 ? 5 : i == 1 ? 2 : 0], fills[i]);
        what.epilogue = epilogues[(i + variant) % 3];
        what.has_bias = i != 1;
        what.c_dtype = (i + variant) % 2 ? DK_BF16 : DK_FP32;
        what.c_pad = i == 2 ? 5 : 0;
        if (!options.is_quick || i == 1)
            check_case(&what, false, engine, variant);
    }
}

static void test_random_products_keep_the_bound(void **state)
{
    (void)state;
    for_each_variant(bounded_body);
}

/* All epilogues, bias of the weights and of the call, both types of C, a shape with and one without whole
 * tiles. */
static void epilogue_body(struct dk_engine *engine, uint32_t variant)
{
    (void)variant;
    for (uint32_t i = 0; i < 2 * 2 * DK_EPILOGUE_COUNT; i++) {
        struct dk_test_case what = router_case(shapes[i % 2 ? 0 : 3], DK_TEST_RANDOM);
        struct device_product p;
        what.m = variants.rows[variant];
        what.c_dtype = i / 2 % 2 ? DK_BF16 : DK_FP32;
        what.epilogue = (dk_epilogue)(i / 4);
        what.has_bias = true;
        device_product_init(&p, engine, &what);
        check_rows(&p, (uint32_t)what.m);
        device_product_deinit(&p);
    }
}

static void test_epilogues_biases_and_output_types(void **state)
{
    (void)state;
    if (!options.is_quick)
        for_each_variant(epilogue_body);
}

/* C of all rows for the product's present A, dense. */
static float *compute(const struct device_product *p)
{
    float *c = malloc(p->call.m * p->product->what.n * sizeof *c);
    assert_non_null(c);
    device_product_poison(p);
    assert_int_equal(dk_enqueue(p->weights, &p->call, NULL), DK_OK);
    device_product_download(p, c);
    return c;
}

static void put_a(const struct device_product *p, uint64_t row, uint64_t k, uint16_t bits)
{
    cuda_check(cudaMemcpy(p->d_a + (row * p->product->what.k + k) * 2, &bits, 2, cudaMemcpyHostToDevice),
               "put A");
}

static void nonfinite_body(struct dk_engine *engine, uint32_t variant)
{
    static const uint16_t values[] = {0x7fc0 /* NaN */, 0x7f80 /* infinity */, 0xff80};
    struct dk_test_case what = router_case(shapes[2], DK_TEST_RANDOM);
    struct device_product p;
    uint64_t n = what.n;
    what.m = variants.rows[variant] < MOST_ROWS ? variants.rows[variant] : MOST_ROWS;
    device_product_init(&p, engine, &what);
    float *clean = compute(&p);
    for (uint64_t row = 0; row < what.m; row += options.is_quick ? 7 : 1)
        for (int v = 0; v < 3; v++) {
            uint64_t at = (row * 131 + (uint64_t)v * 377) % what.k;
            uint16_t before;
            cuda_check(cudaMemcpy(&before, p.d_a + (row * what.k + at) * 2, 2, cudaMemcpyDeviceToHost),
                       "get A");
            put_a(&p, row, at, values[v]);
            float *dirty = compute(&p);
            put_a(&p, row, at, before);
            for (uint64_t i = 0; i < what.m * n; i++) {
                bool is_of_row = i / n == row;
                if (is_of_row ? dirty[i] - dirty[i] == 0 : memcmp(&dirty[i], &clean[i], sizeof *clean) != 0)
                    fail_msg("%s: element %llu of row %llu is %g beside a non-finite value in row %llu",
                             variants.names[variant], (unsigned long long)(i % n),
                             (unsigned long long)(i / n), (double)dirty[i], (unsigned long long)row);
            }
            free(dirty);
        }
    free(clean);
    device_product_deinit(&p);
}

static void test_nan_and_infinity_stay_in_their_row(void **state)
{
    (void)state;
    for_each_variant(nonfinite_body);
}

/* Types, alignments, strides and shapes that the variant itself cannot take: right all the same. */
static void general_body(struct dk_engine *engine, uint32_t variant)
{
    struct dk_test_case base = router_case(shapes[2], DK_TEST_RANDOM);
    base.m = variants.rows[variant] < 9 ? variants.rows[variant] : 9;
    struct dk_test_case cases[8];
    for (int i = 0; i < 8; i++)
        cases[i] = base;
    cases[0].a_offset = 2;
    cases[1].a_pad = 3;
    cases[2].c_offset = 4, cases[2].c_pad = 1;
    cases[3].c_dtype = DK_BF16, cases[3].c_offset = 2, cases[3].a_pad = 8;
    cases[4].a_dtype = DK_FP32;
    cases[5].b_dtype = DK_FP16, cases[5].c_dtype = DK_FP16;
    cases[6].n = 13, cases[6].k = 1009, cases[6].layout = DK_LAYOUT_KN; /* primes */
    cases[7].n = 127, cases[7].k = 7, cases[7].b_offset = 2;
    for (int i = 0; i < 8; i++) {
        struct device_product p;
        device_product_init(&p, engine, &cases[i]);
        check_rows(&p, (uint32_t)cases[i].m);
        device_product_deinit(&p);
    }
}

static void test_what_a_variant_cannot_take_is_right_too(void **state)
{
    (void)state;
    for_each_variant(general_body);
}

static void test_batch_invariant_rows_do_not_depend_on_m(void **state)
{
    (void)state;
    static const struct shape cases[] = {{256, 7168}, {160, 5120}, {128, 2880}, {33, 20000}};
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0] && !options.is_quick; i++) {
        struct dk_engine_options invariant = {.backend = DK_BACKEND_CUDA,
                                              .is_batch_invariant = true,
                                              .use_dependent_launch = i % 2,
                                              .max_tokens = 128};
        struct dk_engine *engine = NULL;
        struct device_product p;
        struct dk_test_case what = router_case(cases[i], DK_TEST_RANDOM);
        what.m = 128;
        assert_int_equal(dk_engine_new(&invariant, &engine, NULL), DK_OK);
        device_product_init(&p, engine, &what);
        float *all = compute(&p);
        for (uint32_t m = 1; m < what.m; m += m < 65 ? 1 : 31) {
            p.call.m = m;
            float *some = compute(&p);
            assert_memory_equal(some, all, m * what.n * sizeof *all);
            free(some);
        }
        free(all);
        device_product_deinit(&p);
        dk_engine_free(engine);
    }
}

/* All plans of an engine whose rows must not depend on m: kernels without a cluster, with clusters of 8 and
 * 16, with small and large tiles. */
static void test_c14_kernels_of_one_tree_agree_bit_for_bit(void **state)
{
    (void)state;
    static const struct shape cases[] = {{256, 7168}, {160, 5120}, {128, 2880}, {37, 1000},
                                         {24, 72},    {48, 2560},  {33, 9000},  {16, 16384}};
    static struct dk_plan plans[128];
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0] && !options.is_quick; i++) {
        struct dk_engine_options invariant = {
            .backend = DK_BACKEND_CUDA, .is_batch_invariant = true, .max_tokens = 64};
        struct dk_engine *engine = NULL;
        struct device_product p;
        struct dk_test_case what = router_case(cases[i], DK_TEST_RANDOM);
        what.m = 64;
        assert_int_equal(dk_engine_new(&invariant, &engine, NULL), DK_OK);
        device_product_init(&p, engine, &what);
        float *all = compute(&p);
        for (uint32_t m = 1, bucket = 0; m <= what.m; m *= 2, bucket++) {
            uint32_t count = dk_plan_candidates(p.weights, m, plans, 128);
            assert_in_range(count, 1, 128);
            p.call.m = m;
            for (uint32_t j = 0; j < count; j++) {
                assert_int_equal(dk_plan_set(p.weights, bucket, &plans[j], NULL), DK_OK);
                float *some = compute(&p);
                for (uint64_t at = 0; at < m * what.n; at++)
                    if (memcmp(&some[at], &all[at], sizeof *all) != 0)
                        fail_msg("%s at m=%u, [%llu, %llu]: element %llu is %a, in 64 rows %a",
                                 plans[j].variant, m, (unsigned long long)what.k, (unsigned long long)what.n,
                                 (unsigned long long)at, (double)some[at], (double)all[at]);
                free(some);
            }
        }
        free(all);
        device_product_deinit(&p);
        dk_engine_free(engine);
    }
}

static void test_an_unknown_variant_is_refused(void **state)
{
    (void)state;
    struct dk_engine_options wrong = {.backend = DK_BACKEND_CUDA, .force_variant = "cluster_of_grapes"};
    struct dk_engine *engine = NULL;
    struct dk_error error;
    assert_int_equal(dk_engine_new(&wrong, &engine, &error), DK_BAD_VALUE);
    assert_non_null(strstr(error.message, "cluster_of_grapes"));
    assert_null(engine);
}

int main(int argc, char **argv)
{
    variant_options_parse(argc, argv, &options);
    if (!variant_list_init(&variants, &options))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_forced_variant_is_taken),
        cmocka_unit_test(test_integers_are_exact),
        cmocka_unit_test(test_random_products_keep_the_bound),
        cmocka_unit_test(test_epilogues_biases_and_output_types),
        cmocka_unit_test(test_nan_and_infinity_stay_in_their_row),
        cmocka_unit_test(test_what_a_variant_cannot_take_is_right_too),
        cmocka_unit_test(test_batch_invariant_rows_do_not_depend_on_m),
        cmocka_unit_test(test_c14_kernels_of_one_tree_agree_bit_for_bit),
        cmocka_unit_test(test_an_unknown_variant_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
