/* test_wgmma_plan.c: choosing tiles and chunks for the wgmma kernels, without a device: the table of variants
 * with kernels left out, and limits as an H200 reports them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/bucket.h"
#include "kernels/cuda/wgmma_args.h"
#include "kernels/cuda/wgmma_plan.h"
#include "kernels/plan.h"

#define DK_WGMMA_VARIANT(label, groups, tokens, tiles, why)                                                  \
    {.base = {.name = #label,                                                                                \
              .family = DK_FAMILY_WGMMA,                                                                     \
              .rows = (tokens),                                                                              \
              .columns = (groups)*64,                                                                        \
              .splits = 16 / (tiles),                                                                        \
              .warps = (groups)*4 + 4,                                                                       \
              .note = (why)},                                                                                \
     .column_tiles = (tiles)},
const struct dk_wgmma_variant dk_wgmma_variants[] = {
#include "kernels/cuda/variants.def"
};
const uint32_t dk_wgmma_variant_count = sizeof dk_wgmma_variants / sizeof dk_wgmma_variants[0];

static const struct {
    uint64_t k, n;
} routers[] = {{7168, 256}, {7168, 384}, {5120, 160}, {4096, 256}, {4096, 128}, {3072, 256}, {2880, 128}};
enum { ROUTERS = sizeof routers / sizeof routers[0], H200_SHARED_BYTES = 232448, LIST = 64 };

/* Blocks that fit at once, by the size of their cluster. */
static const uint16_t h200_blocks[17] = {0,  132, 132, 126, 120, 110, 102, 105, 120,
                                         81, 70,  77,  84,  91,  98,  105, 112};

static struct dk_wgmma_limits h200_limits(void)
{
    struct dk_wgmma_limits limits = {.shared_bytes = H200_SHARED_BYTES};
    for (uint32_t v = 0; v < dk_wgmma_variant_count; v++)
        for (uint32_t splits = 1; splits <= dk_wgmma_variants[v].base.splits; splits++)
            limits.resident_blocks[v][splits] = h200_blocks[splits * dk_wgmma_variants[v].column_tiles];
    return limits;
}

static void expect_runnable(const struct dk_wgmma_choice *choice, const struct dk_wgmma_product *product)
{
    const struct dk_wgmma_variant *variant = &dk_wgmma_variants[choice->variant];
    uint64_t steps = dk_ceil_div(product->k, DK_WGMMA_STEP_K);
    uint64_t chunk = dk_ceil_div(choice->cut.chunk_k, DK_WGMMA_STEP_K);
    assert_in_range(choice->cut.split_k, 1, variant->base.splits);
    assert_true(choice->cut.split_k * chunk >= steps && (choice->cut.split_k - 1) * chunk < steps);
    assert_int_equal(dk_ceil_div(product->k, choice->cut.chunk_k), choice->cut.split_k);
    assert_in_range(choice->stages, chunk < 2 ? 1 : 2, DK_WGMMA_MAX_STAGES);
    assert_true(dk_wgmma_shared_bytes(variant->base.columns, variant->base.rows, choice->cut.split_k,
                                      choice->stages) <= H200_SHARED_BYTES);
    assert_int_equal(dk_ceil_div(product->n, variant->base.columns) % variant->column_tiles, 0);
    assert_true(choice->estimate_us > 0.0);
}

static void test_each_router_has_a_measured_choice_that_can_run(void **state)
{
    (void)state;
    struct dk_wgmma_limits limits = h200_limits();
    for (uint32_t r = 0; r < ROUTERS; r++)
        for (uint32_t i = 0; dk_bucket_rows(i) <= 4096; i++)
            for (int is_dependent = 0; is_dependent < 2; is_dependent++) {
                struct dk_wgmma_product product = {dk_bucket_rows(i), routers[r].n, routers[r].k,
                                                   is_dependent};
                struct dk_wgmma_choice choice;
                bool is_found = dk_wgmma_find_measured(&limits, &product, &choice);
                assert_int_equal(is_found,
                                 product.m > 16 && product.m != 2304); /* the model is right there */
                if (is_found)
                    expect_runnable(&choice, &product);
            }
}

static void test_other_shapes_are_not_measured(void **state)
{
    (void)state;
    struct dk_wgmma_limits limits = h200_limits();
    struct dk_wgmma_product product = {64, 250, 7168, false};
    struct dk_wgmma_choice choice;
    assert_false(dk_wgmma_find_measured(&limits, &product, &choice));
}

static void test_chunks_cover_every_k(void **state)
{
    (void)state;
    struct dk_wgmma_limits limits = h200_limits();
    for (uint64_t k = 8; k <= 20000; k += k < 2000 ? 8 : 104)
        for (uint32_t splits = 1; splits <= DK_WGMMA_MAX_SPLITS; splits++) {
            struct dk_wgmma_product product = {100, 256, k, false};
            struct dk_wgmma_choice choice, again;
            if (!dk_wgmma_cut(&limits, 0, &product, splits, &choice))
                continue;
            expect_runnable(&choice, &product);
            /* A plan keeps the count of chunks only. */
            assert_true(dk_wgmma_cut(&limits, 0, &product, choice.cut.split_k, &again));
            assert_int_equal(again.cut.chunk_k, choice.cut.chunk_k);
        }
}

static void test_ranking_is_sorted_and_without_doubles(void **state)
{
    (void)state;
    struct dk_wgmma_limits limits = h200_limits();
    for (uint64_t m = 17; m <= 5000; m = m * 5 / 3) {
        struct dk_wgmma_product product = {m, 320, 6144, m % 2 == 0};
        struct dk_wgmma_choice list[LIST], few[3];
        uint32_t count = dk_wgmma_rank(&limits, &product, UINT32_MAX, list, LIST);
        assert_int_equal(count, LIST);
        for (uint32_t i = 0; i < count; i++) {
            expect_runnable(&list[i], &product);
            assert_true(i == 0 || list[i - 1].estimate_us <= list[i].estimate_us);
            for (uint32_t j = 0; j < i; j++)
                assert_false(list[i].variant == list[j].variant &&
                             list[i].cut.split_k == list[j].cut.split_k);
        }
        assert_int_equal(dk_wgmma_rank(&limits, &product, UINT32_MAX, few, 3), 3);
        for (uint32_t i = 0; i < 3; i++)
            assert_true(few[i].variant == list[i].variant && few[i].cut.split_k == list[i].cut.split_k);
    }
}

static void test_one_variant_can_be_asked_for(void **state)
{
    (void)state;
    struct dk_wgmma_limits limits = h200_limits();
    struct dk_wgmma_product product = {300, 37, 1000, false};
    for (uint32_t v = 0; v < dk_wgmma_variant_count; v++) {
        struct dk_wgmma_choice list[LIST];
        uint32_t count = dk_wgmma_rank(&limits, &product, v, list, LIST);
        /* 37 experts are one tile: nothing to pair. */
        assert_int_equal(count > 0, dk_wgmma_variants[v].column_tiles == 1);
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(list[i].variant, v);
    }
}

static void test_a_device_without_large_clusters_gets_small_ones(void **state)
{
    (void)state;
    struct dk_wgmma_limits limits = h200_limits();
    struct dk_wgmma_product product = {32, 256, 7168, false};
    struct dk_wgmma_choice list[LIST];
    for (uint32_t v = 0; v < dk_wgmma_variant_count; v++)
        for (uint32_t splits = 9; splits <= DK_WGMMA_MAX_SPLITS; splits++)
            limits.resident_blocks[v][splits] = 0;
    uint32_t count = dk_wgmma_rank(&limits, &product, UINT32_MAX, list, LIST);
    assert_true(count > 0);
    for (uint32_t i = 0; i < count; i++)
        assert_in_range(list[i].cut.split_k, 1, 8);
    memset(&limits, 0, sizeof limits);
    assert_int_equal(dk_wgmma_rank(&limits, &product, UINT32_MAX, list, LIST), 0);
    assert_false(dk_wgmma_find_measured(&limits, &product, list));
}

/* What the kernels rely on without a check. */
static void test_barriers_and_reciprocals_hold_for_every_variant(void **state)
{
    (void)state;
    assert_true((2 * DK_WGMMA_MAX_STAGES + DK_WGMMA_MAX_ROUNDS) * 8 <= DK_WGMMA_BARRIER_BYTES);
    assert_true(dk_wgmma_variant_count <= DK_WGMMA_MAX_VARIANTS);
    for (uint32_t v = 0; v < dk_wgmma_variant_count; v++) {
        const struct dk_variant *variant = &dk_wgmma_variants[v].base;
        assert_true(variant->rows % 8 == 0 && variant->rows <= 256);
        assert_true(dk_ceil_div(dk_wgmma_slots(variant->columns, variant->rows, 1), 4) <=
                    DK_WGMMA_MAX_ROUNDS);
    }
    for (uint32_t splits = 1; splits <= 32; splits++)
        for (uint32_t count = 0; count < 1u << 12; count++)
            assert_int_equal((count * dk_wgmma_reciprocal(splits)) >> DK_WGMMA_RECIPROCAL_SHIFT,
                             count / splits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_router_has_a_measured_choice_that_can_run),
        cmocka_unit_test(test_other_shapes_are_not_measured),
        cmocka_unit_test(test_chunks_cover_every_k),
        cmocka_unit_test(test_ranking_is_sorted_and_without_doubles),
        cmocka_unit_test(test_one_variant_can_be_asked_for),
        cmocka_unit_test(test_a_device_without_large_clusters_gets_small_ones),
        cmocka_unit_test(test_barriers_and_reciprocals_hold_for_every_variant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
