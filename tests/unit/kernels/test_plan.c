/* test_plan.c: how shapes are cut, and that the cut keeps the error bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/plan.h"

static void check_bound(uint64_t k)
{
    uint32_t chunk_k = dk_plan_chunk_k(k), split_k = dk_plan_split_k(k, chunk_k);
    if (dk_plan_depth(k, chunk_k) > dk_plan_allowance(chunk_k, split_k)) {
        fail_msg("k=%llu: chunk %u, S %u: depth %llu over %llu", (unsigned long long)k, chunk_k, split_k,
                 (unsigned long long)dk_plan_depth(k, chunk_k),
                 (unsigned long long)dk_plan_allowance(chunk_k, split_k));
    }
    assert_true((uint64_t)chunk_k * split_k >= k && (uint64_t)chunk_k * (split_k - 1) < k);
    assert_true(split_k == 1 || chunk_k % 2 == 0); /* pairs of bf16 steps never straddle chunks */
}

static void test_worst_case_error_is_within_the_contract_for_every_k(void **state)
{
    (void)state;
    for (uint64_t k = 1; k <= 100000; k++) {
        check_bound(k);
    }
    for (uint64_t k = 100000; k <= DK_MAX_K; k += 4099) {
        check_bound(k);
    }
    check_bound(DK_MAX_K);
}

static void test_router_shape_is_cut_in_sixteen(void **state)
{
    (void)state;
    struct dk_plan plan;
    dk_plan_make_cpu(256, 7168, 1, 2, &plan);
    assert_int_equal(plan.chunk_k, 448);
    assert_int_equal(plan.split_k, 16);
    assert_int_equal(plan.backend_variant, DK_PLAN_SPLIT);
    assert_int_equal(plan.workspace_bytes, 16 * 256 * 4 + 4 * 4);
}

static void test_chunks_depend_on_k_alone(void **state)
{
    (void)state;
    for (uint32_t bucket = 1; bucket <= 4096; bucket *= 2) {
        for (uint32_t threads = 1; threads <= 64; threads *= 4) {
            for (uint64_t n = 1; n < 2000; n = n * 3 + 1) {
                struct dk_plan plan;
                dk_plan_make_cpu(n, 7177, bucket, threads, &plan);
                assert_int_equal(plan.chunk_k, 448);
                assert_int_equal(plan.split_k, 17);
                plan.variant = "any";
                assert_true(dk_plan_is_valid(&plan, n, 7177));
                assert_true(plan.bucket_rows == bucket && plan.tile_m <= DK_PLAN_ROW_BLOCK);
                assert_true(plan.workspace_bytes <= DK_PLAN_WORKSPACE_CAP_BYTES);
                assert_true(plan.tile_n % DK_PLAN_PANEL_N == 0 &&
                            plan.tile_n <= DK_PLAN_MAX_GROUP * DK_PLAN_PANEL_N);
            }
        }
    }
}

static void test_enough_tiles_need_no_workspace(void **state)
{
    (void)state;
    struct dk_plan plan;
    dk_plan_make_cpu(256, 7168, 4096, 2, &plan);
    assert_int_equal(plan.backend_variant, DK_PLAN_TILED);
    assert_int_equal(plan.workspace_bytes, 0);
    dk_plan_make_cpu(256, 7168, 1, 1, &plan); /* one thread has nothing to share out */
    assert_int_equal(plan.backend_variant, DK_PLAN_TILED);
}

static void test_huge_extents_do_not_overflow(void **state)
{
    (void)state;
    struct dk_plan plan;
    dk_plan_make_cpu(DK_MAX_N, DK_MAX_K, 65536, 1024, &plan);
    assert_true(plan.workspace_bytes <= DK_PLAN_WORKSPACE_CAP_BYTES);
    assert_int_equal(dk_plan_partials_bytes(UINT64_MAX / 8, 64, 65536), SIZE_MAX);
}

static void test_padded_columns(void **state)
{
    (void)state;
    static const uint64_t pairs[][2] = {{1, 16},  {16, 16}, {17, 32},  {32, 32},   {33, 64},  {64, 64},
                                        {65, 80}, {96, 96}, {97, 128}, {256, 256}, {257, 272}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        assert_int_equal(dk_plan_padded_n(pairs[i][0]), pairs[i][1]);
    }
}

static void test_wrong_plans_are_not_valid(void **state)
{
    (void)state;
    struct dk_plan plan;
    dk_plan_make_cpu(16, 1000, 4, 2, &plan);
    assert_false(dk_plan_is_valid(&plan, 16, 1000)); /* no name */
    plan.variant = "any";
    assert_true(dk_plan_is_valid(&plan, 16, 1000));
    plan.split_k++;
    assert_false(dk_plan_is_valid(&plan, 16, 1000));
    plan.split_k = 0;
    assert_false(dk_plan_is_valid(&plan, 16, 1000));
    plan.chunk_k = 0;
    assert_false(dk_plan_is_valid(&plan, 16, 1000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worst_case_error_is_within_the_contract_for_every_k),
        cmocka_unit_test(test_router_shape_is_cut_in_sixteen),
        cmocka_unit_test(test_chunks_depend_on_k_alone),
        cmocka_unit_test(test_enough_tiles_need_no_workspace),
        cmocka_unit_test(test_huge_extents_do_not_overflow),
        cmocka_unit_test(test_padded_columns),
        cmocka_unit_test(test_wrong_plans_are_not_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
