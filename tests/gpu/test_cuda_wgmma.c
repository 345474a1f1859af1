/* test_cuda_wgmma.c: the wgmma variants for more rows than the small forms take: every m from 17 to 300, tile
 * edges up to 4,097 rows, rows that must not meet, and what lies around C. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/gpu/device_product.h"
#include "tests/gpu/variant_list.h"

static struct variant_list variants;
static struct variant_options options;

enum { FIRST_ROWS = 17, LAST_ROWS = 300, MOST_ROWS = 4097 };

static void for_each_variant(uint32_t max_tokens, void (*body)(struct dk_engine *engine, uint32_t variant))
{
    for (uint32_t i = 0; i < variants.count; i++)
        for (int is_dependent = 0; is_dependent < 2; is_dependent++) {
            struct dk_engine *engine = variant_engine_new_for(variants.names[i], is_dependent, max_tokens);
            body(engine, i);
            dk_engine_free(engine);
        }
}

static struct dk_test_case make_case(uint64_t m, uint64_t n, uint64_t k, enum dk_test_fill fill)
{
    return (struct dk_test_case){.m = m,
                                 .n = n,
                                 .k = k,
                                 .a_dtype = DK_BF16,
                                 .b_dtype = DK_BF16,
                                 .c_dtype = DK_FP32,
                                 .layout = DK_LAYOUT_NK,
                                 .fill = fill,
                                 .seed = (uint32_t)(m + n + k)};
}

static void check_rows(struct device_product *p, uint64_t m)
{
    p->call.m = m;
    device_product_poison(p);
    assert_int_equal(dk_enqueue(p->weights, &p->call, NULL), DK_OK);
    device_product_check(p);
}

/* Ragged in n and k; odd variants with padded rows, bf16 output and all epilogues in turn. */
static void every_m_body(struct dk_engine *engine, uint32_t variant)
{
    struct dk_test_case what = make_case(LAST_ROWS, 37, 1000, DK_TEST_INTEGERS);
    struct device_product p;
    what.has_bias = variant % 2 == 1;
    what.c_dtype = variant % 2 == 1 ? DK_BF16 : DK_FP32;
    what.epilogue = variant % 2 == 1 ? DK_EPILOGUE_RELU : DK_EPILOGUE_NONE;
    what.a_pad = variant % 3 == 1 ? 8 : 0;
    what.c_pad = variant % 3 == 2 ? 3 : 0;
    device_product_init(&p, engine, &what);
    for (uint64_t m = FIRST_ROWS; m <= LAST_ROWS; m += options.is_quick ? 59 : 1)
        check_rows(&p, m);
    device_product_deinit(&p);
}

static void test_integers_are_exact_at_every_m(void **state)
{
    (void)state;
    for_each_variant(512, every_m_body);
}

static void edges_body(struct dk_engine *engine, uint32_t variant)
{
    static const uint64_t edges[] = {511, 513, 767, 769, 1024, 1025, 1537, 2047, 2049, 3071, 4095, MOST_ROWS};
    struct dk_test_case what = make_case(MOST_ROWS, 160, 520, DK_TEST_INTEGERS);
    struct device_product p;
    uint64_t rows = variants.rows[variant];
    device_product_init(&p, engine, &what);
    for (size_t i = options.is_quick ? 11 : 0; i < sizeof edges / sizeof edges[0]; i++)
        check_rows(&p, edges[i]);
    for (uint64_t tiles = 2; tiles <= 3 && !options.is_quick; tiles++)
        for (uint64_t m = tiles * rows - 1; m <= tiles * rows + 1; m++)
            check_rows(&p, m);
    device_product_deinit(&p);
}

static void test_integers_are_exact_at_the_edges_of_tiles(void **state)
{
    (void)state;
    for_each_variant(8192, edges_body);
}

static void bounded_body(struct dk_engine *engine, uint32_t variant)
{
    static const struct {
        uint64_t m, n, k;
    } shapes[] = {{65, 256, 7168}, {130, 384, 7168}, {200, 160, 5120},
                  {77, 128, 2880}, {97, 33, 20000},  {61, 48, 8}};
    static const enum dk_test_fill fills[] = {DK_TEST_RANDOM, DK_TEST_POSITIVE, DK_TEST_CANCELLING};
    static const dk_epilogue epilogues[] = {DK_EPILOGUE_NONE, DK_EPILOGUE_RELU, DK_EPILOGUE_SIGMOID};
    for (uint32_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct dk_test_case what = make_case(shapes[i].m, shapes[i].n, shapes[i].k, fills[i % 3]);
        struct device_product p;
        if (options.is_quick && i != 3)
            continue;
        what.epilogue = epilogues[(i + variant) % 3];
        what.has_bias = i % 2 == 0;
        what.c_dtype = (i + variant) % 2 == 0 ? DK_FP32 : DK_BF16;
        device_product_init(&p, engine, &what);
        check_rows(&p, what.m);
        device_product_deinit(&p);
    }
}

static void test_random_products_keep_the_bound(void **state)
{
    (void)state;
    for_each_variant(512, bounded_body);
}

static void compute(struct device_product *p, float *c)
{
    device_product_poison(p);
    assert_int_equal(dk_enqueue(p->weights, &p->call, NULL), DK_OK);
    device_product_download(p, c);
}

/* A row of NaN beside others, in the last row of a tile and behind the last row of the call: the others keep
 * their bits. */
static void nan_body(struct dk_engine *engine, uint32_t variant)
{
    struct dk_test_case what = make_case(LAST_ROWS, 72, 1000, DK_TEST_RANDOM);
    struct device_product p;
    uint64_t n = what.n, edge = variants.rows[variant] - 1;
    size_t bytes = LAST_ROWS * n * sizeof(float);
    float *clean = malloc(bytes), *dirty = malloc(bytes);
    assert_true(clean && dirty);
    device_product_init(&p, engine, &what);
    p.call.m = LAST_ROWS - 1;
    compute(&p, clean);
    for (uint64_t i = 0; i < what.k; i++) {
        static const uint16_t nan = 0x7fc0;
        uint64_t rows[] = {5, edge, LAST_ROWS - 1};
        for (int r = 0; r < 3; r++)
            cuda_check(cudaMemcpy(p.d_a + (rows[r] * what.k + i) * 2, &nan, 2, cudaMemcpyHostToDevice),
                       "put A");
    }
    compute(&p, dirty);
    for (uint64_t i = 0; i < (LAST_ROWS - 1) * n; i++) {
        bool is_of_row = i / n == 5 || i / n == edge;
        if (is_of_row ? dirty[i] == dirty[i] : memcmp(&dirty[i], &clean[i], sizeof *clean) != 0)
            fail_msg("%s: element %llu of row %llu is %g", variants.names[variant],
                     (unsigned long long)(i % n), (unsigned long long)(i / n), (double)dirty[i]);
    }
    device_product_deinit(&p);
    free(dirty);
    free(clean);
}

static void test_nan_stays_in_its_row(void **state)
{
    (void)state;
    for_each_variant(512, nan_body);
}

/* The same bits at every repeat, and for a row whatever else is in the call. */
static void repeat_body(struct dk_engine *engine, uint32_t variant)
{
    struct dk_test_case what = make_case(LAST_ROWS, 256, 7168, DK_TEST_RANDOM);
    struct device_product p;
    size_t row_bytes = what.n * sizeof(float);
    float *first = malloc(LAST_ROWS * row_bytes), *again = malloc(LAST_ROWS * row_bytes);
    assert_true(first && again);
    device_product_init(&p, engine, &what);
    compute(&p, first);
    for (int repeat = 0; repeat < (options.is_quick ? 3 : 40); repeat++) {
        p.call.m = LAST_ROWS - (uint64_t)repeat; /* all in one bucket: another may cut K otherwise */
        compute(&p, again);
        if (memcmp(first, again, p.call.m * row_bytes) != 0)
            fail_msg("%s: other bits at repeat %d with %llu rows", variants.names[variant], repeat,
                     (unsigned long long)p.call.m);
    }
    device_product_deinit(&p);
    free(again);
    free(first);
}

static void test_repeats_have_the_same_bits(void **state)
{
    (void)state;
    for_each_variant(512, repeat_body);
}

int main(int argc, char **argv)
{
    variant_options_parse(argc, argv, &options);
    if (options.filter[0] == '\0')
        options.filter = "wgmma";
    if (!variant_list_init(&variants, &options))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers_are_exact_at_every_m),
        cmocka_unit_test(test_integers_are_exact_at_the_edges_of_tiles),
        cmocka_unit_test(test_random_products_keep_the_bound),
        cmocka_unit_test(test_nan_stays_in_its_row),
        cmocka_unit_test(test_repeats_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
