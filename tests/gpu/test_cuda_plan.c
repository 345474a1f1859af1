/* test_cuda_plan.c: the choice of plans as data: every shape gets a plan that fits it, on devices with and
 * without clusters, and batch-invariant plans share one order of summation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cuda/cuda_plan.h"

enum { MOST_ROWS = 4096 };

static const struct dk_cuda_plan_shape shapes[] = {
    {256, 7168, DK_BF16, 0},  {384, 7168, DK_BF16, 0}, {160, 5120, DK_BF16, 0}, {256, 4096, DK_BF16, 0},
    {128, 4096, DK_BF16, 0},  {256, 3072, DK_BF16, 0}, {128, 2880, DK_BF16, 0}, {256, 8192, DK_BF16, 0},
    {384, 16384, DK_BF16, 0}, {33, 20000, DK_BF16, 0}, {16, 8, DK_BF16, 0},     {37, 1000, DK_BF16, 0},
    {48, 2560, DK_BF16, 0},   {16, 65536, DK_BF16, 0}, {13, 1009, DK_BF16, 0},  {1, 1, DK_BF16, 0},
    {256, 7168, DK_FP32, 0},  {256, 7168, DK_FP16, 0},
};
enum { SHAPE_COUNT = sizeof shapes / sizeof shapes[0] };

/* Devices: clusters of up to `largest_cluster` blocks fit. */
static struct dk_cuda_plan_rules make_rules(uint32_t largest_cluster, bool is_dependent, bool is_invariant)
{
    struct dk_cuda_plan_rules rules = {
        .is_dependent = is_dependent, .is_batch_invariant = is_invariant, .forced = DK_CUDA_FORCE_NONE};
    for (uint32_t i = 0; dk_variant_at(i) != NULL; i++)
        rules.is_usable[i] = dk_variant_at(i)->splits <= largest_cluster;
    return rules;
}

static void for_each_case(void (*body)(const struct dk_cuda_plan_rules *, const struct dk_cuda_plan_shape *))
{
    static const uint32_t clusters[] = {1, 8, 16};
    for (uint32_t i = 0; i < 3 * 4; i++) {
        struct dk_cuda_plan_rules rules = make_rules(clusters[i / 4], i % 2, i / 2 % 2);
        for (uint32_t j = 0; j < SHAPE_COUNT; j++)
            body(&rules, &shapes[j]);
    }
}

static const struct dk_variant *variant_of(const struct dk_plan *plan)
{
    return plan->backend_variant == DK_CUDA_TWO_LAUNCH
               ? NULL
               : dk_variant_at(plan->backend_variant - DK_CUDA_FIRST_VARIANT);
}

static void expect_fit(const struct dk_cuda_plan_rules *rules, const struct dk_cuda_plan_shape *shape,
                       const struct dk_plan *plan)
{
    struct dk_plan general;
    struct dk_variant_shape cut;
    dk_cuda_plan_two_launch(rules, shape, &general);
    assert_true(plan->workspace_bytes >= (variant_of(plan) ? general.workspace_bytes : 0));
    assert_int_equal(plan->is_dependent, rules->is_dependent);
    assert_int_equal((shape->k + plan->chunk_k - 1) / plan->chunk_k, plan->split_k);
    if (variant_of(plan) == NULL)
        return;
    assert_string_equal(plan->variant, variant_of(plan)->name);
    assert_int_equal(shape->dtype, DK_BF16);
    assert_true(rules->is_usable[plan->backend_variant - DK_CUDA_FIRST_VARIANT]);
    assert_true(dk_variant_fit(variant_of(plan), shape->bucket_rows, shape->n, shape->k, &cut));
    assert_in_range(cut.warps, 1, variant_of(plan)->warps);
}

static void fit_body(const struct dk_cuda_plan_rules *rules, const struct dk_cuda_plan_shape *shape)
{
    static struct dk_plan plans[256];
    struct dk_cuda_plan_shape at = *shape;
    for (at.bucket_rows = 1; at.bucket_rows <= MOST_ROWS; at.bucket_rows *= 2) {
        bool is_among_them = false;
        struct dk_plan chosen;
        dk_cuda_plan_choose(rules, &at, &chosen);
        expect_fit(rules, &at, &chosen);
        uint32_t count = dk_cuda_plan_candidates(rules, &at, plans, 256);
        assert_in_range(count, 1, 256);
        for (uint32_t i = 0; i < count; i++) {
            expect_fit(rules, &at, &plans[i]);
            is_among_them = is_among_them || plans[i].backend_variant == chosen.backend_variant;
        }
        /* The tuner must be able to find nothing better than what is built in. */
        assert_true(is_among_them);
    }
}

static void test_plans_fit_their_shape(void **state)
{
    (void)state;
    for_each_case(fit_body);
}

static uint32_t tree_of(const struct dk_plan *plan)
{
    return variant_of(plan) ? variant_of(plan)->tree : DK_TREE_NONE;
}

static void invariant_body(const struct dk_cuda_plan_rules *rules, const struct dk_cuda_plan_shape *shape)
{
    static struct dk_plan plans[256];
    struct dk_cuda_plan_shape at = *shape;
    struct dk_plan first, plan;
    if (!rules->is_batch_invariant)
        return;
    at.bucket_rows = 1;
    dk_cuda_plan_choose(rules, &at, &first);
    /* One kernel of a tree, or the two launches with one chunk size: never a kernel that has an order of its
     * own. */
    assert_true(variant_of(&first) == NULL || tree_of(&first) != DK_TREE_NONE);
    for (; at.bucket_rows <= MOST_ROWS; at.bucket_rows *= 2) {
        dk_cuda_plan_choose(rules, &at, &plan);
        assert_int_equal(tree_of(&plan), tree_of(&first));
        uint32_t count = dk_cuda_plan_candidates(rules, &at, plans, 256);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(tree_of(&plans[i]), tree_of(&first));
            if (variant_of(&plans[i]) == NULL)
                assert_int_equal(plans[i].chunk_k, first.chunk_k);
        }
    }
}

static void test_batch_invariant_plans_share_one_tree(void **state)
{
    (void)state;
    for_each_case(invariant_body);
}

/* Below 512 rows of a router a library or the two launches would be a miss. */
static void test_routers_have_kernels_of_their_own(void **state)
{
    (void)state;
    for (int is_dependent = 0; is_dependent < 2; is_dependent++) {
        struct dk_cuda_plan_rules rules = make_rules(16, is_dependent, false);
        for (uint32_t i = 0; i < 9; i++) {
            struct dk_cuda_plan_shape at = shapes[i];
            for (at.bucket_rows = 1; at.bucket_rows < 512; at.bucket_rows *= 2) {
                struct dk_plan plan;
                dk_cuda_plan_choose(&rules, &at, &plan);
                assert_non_null(variant_of(&plan));
            }
        }
    }
}

/* The chunks of the shared tree depend on k alone, however many blocks share them. */
static void test_the_shared_tree_cuts_k_alike(void **state)
{
    (void)state;
    for (uint32_t j = 0; j < SHAPE_COUNT; j++) {
        uint64_t k = shapes[j].k, chunk = (k + 1023) / 1024 * 64;
        for (uint32_t i = 0; dk_variant_at(i) != NULL; i++) {
            const struct dk_variant *variant = dk_variant_at(i);
            struct dk_variant_shape cut;
            if (variant->tree != DK_TREE_SHARED || !dk_variant_fit(variant, 1, shapes[j].n, k, &cut))
                continue;
            uint64_t of_block = chunk * 16 / variant->splits;
            assert_int_equal(cut.chunk_k, of_block < k ? of_block : k);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans_fit_their_shape),
        cmocka_unit_test(test_batch_invariant_plans_share_one_tree),
        cmocka_unit_test(test_routers_have_kernels_of_their_own),
        cmocka_unit_test(test_the_shared_tree_cuts_k_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
