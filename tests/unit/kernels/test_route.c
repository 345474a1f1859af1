/* test_route.c: routing of a row on the CPU: the published rules, ties, NaN, and a binary64 reference. */
#include "tests/unit/proto/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/route.h"
#include "tests/unit/kernels/route_reference.h"

static const struct dk_routing v3 = {.scoring = DK_SCORING_SIGMOID,
                                     .expert_count = 256,
                                     .group_count = 8,
                                     .kept_group_count = 4,
                                     .top_k = 8,
                                     .is_group_score_sum = true,
                                     .has_correction_bias = true,
                                     .is_normalized = true,
                                     .scale = 2.5f};

static uint64_t random_state;
static double uniform(void) /* [0, 1) */
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(random_state >> 11) * 0x1p-53;
}
static float normal(float deviation)
{
    double radius = sqrt(-2 * log(1 - uniform()));
    return (float)(radius * cos(6.283185307179586 * uniform())) * deviation;
}

static void check_distinct(const struct dk_routing *routing, const int32_t *ids)
{
    bool is_taken[DK_MAX_EXPERTS] = {false};
    for (uint32_t i = 0; i < routing->top_k; i++) {
        assert_in_range(ids[i], 0, routing->expert_count - 1);
        assert_false(is_taken[ids[i]]);
        is_taken[ids[i]] = true;
    }
}

static void test_c06_weight_is_the_unbiased_score(void **state)
{
    (void)state;
    float logits[256] = {0}, bias[256] = {[3] = 5}, weights[8];
    static const int32_t expected[8] = {3, 0, 1, 2, 4, 5, 6, 7};
    int32_t ids[8];
    dk_route_row(&v3, logits, bias, ids, weights);
    assert_memory_equal(ids, expected, sizeof expected);
    for (int i = 0; i < 8; i++) {
        assert_true(weights[i] == 0.3125f);
    }
}

static void test_c07_scale_with_and_without_normalising(void **state)
{
    (void)state;
    static const struct {
        bool is_normalized;
        float scale, weight;
    } cases[] = {{true, 2.5f, 0.3125f}, {false, 2.5f, 1.25f}, {true, 1, 0.125f}, {false, 1, 0.5f}};
    float logits[256] = {0}, weights[8];
    int32_t ids[8];
    for (int i = 0; i < 4; i++) {
        struct dk_routing routing = v3;
        routing.is_normalized = cases[i].is_normalized;
        routing.scale = cases[i].scale;
        dk_route_row(&routing, logits, NULL, ids, weights);
        assert_true(weights[0] == cases[i].weight && weights[7] == cases[i].weight);
    }
}

static void test_c08_ties_go_to_the_lower_index(void **state)
{
    (void)state;
    float logits[256] = {0}, weights[8];
    int32_t ids[8];
    for (int repeat = 0; repeat < 100; repeat++) {
        dk_route_row(&v3, logits, NULL, ids, weights);
        for (int32_t i = 0; i < 8; i++) {
            assert_int_equal(ids[i], i);
        }
    }
    /* Groups 5 and 6 lead alike, then 0 and 1 tie with 2, 3, 4 and 7. */
    logits[5 * 32 + 9] = logits[5 * 32 + 8] = logits[6 * 32] = logits[6 * 32 + 31] = 1;
    static const int32_t expected[8] = {168, 169, 192, 223, 0, 1, 2, 3};
    dk_route_row(&v3, logits, NULL, ids, weights);
    assert_memory_equal(ids, expected, sizeof expected);
}

static void test_c04_nan_rows_give_distinct_ids(void **state)
{
    (void)state;
    for (uint32_t rule = 0; rule < dk_public_rule_count; rule++) {
        const struct dk_routing *routing = &dk_public_rules[rule].routing;
        static const float odd[] = {NAN, INFINITY, -INFINITY, -NAN, 3e38f, -3e38f};
        for (int round = 0; round < 200; round++) {
            float logits[DK_MAX_EXPERTS], weights[DK_MAX_TOP_K];
            int32_t ids[DK_MAX_TOP_K];
            for (uint32_t i = 0; i < routing->expert_count; i++) {
                bool is_odd = round == 0 || uniform() < 0.02 * round;
                logits[i] = is_odd ? odd[(size_t)(uniform() * 6)] : normal(2);
            }
            if (round == 0) {
                memset(logits, 0xff, sizeof logits); /* all NaN */
            }
            dk_route_row(routing, logits, NULL, ids, weights);
            check_distinct(routing, ids);
        }
    }
}

static void test_one_nan_does_not_disturb_sigmoid_rows(void **state)
{
    (void)state;
    float logits[256] = {0}, weights[8], expected_weights[8];
    int32_t ids[8], expected_ids[8];
    for (int i = 0; i < 256; i++) {
        logits[i] = normal(1);
    }
    dk_route_row(&v3, logits, NULL, expected_ids, expected_weights);
    int victim = 0; /* an expert that was not chosen, in a group that was not kept */
    for (int g = 0; g < 8; g++) {
        bool is_used = false;
        for (int i = 0; i < 8; i++) {
            is_used = is_used || expected_ids[i] / 32 == g;
        }
        victim = is_used ? victim : g * 32 + 5;
    }
    logits[victim] = NAN;
    dk_route_row(&v3, logits, NULL, ids, weights);
    assert_memory_equal(ids, expected_ids, sizeof ids);
    assert_memory_equal(weights, expected_weights, sizeof weights);
}

static void test_experts_outside_the_kept_groups_are_never_chosen(void **state)
{
    (void)state;
    struct dk_routing routing = v3;
    routing.kept_group_count = 1;
    float logits[256], weights[8];
    int32_t ids[8];
    for (int i = 0; i < 256; i++) {
        logits[i] = i / 32 == 6 ? NAN : -INFINITY;
    }
    logits[6 * 32 + 30] = logits[6 * 32 + 31] = 1; /* the only group above zero; the rest of it is NaN */
    dk_route_row(&routing, logits, NULL, ids, weights);
    check_distinct(&routing, ids);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(ids[i] / 32, 6);
    }
    assert_true(isnan(weights[7])); /* a NaN score was chosen */
}

static void test_underflow_gives_zero_weights_not_nan(void **state)
{
    (void)state;
    float logits[256], weights[8];
    int32_t ids[8];
    for (int i = 0; i < 256; i++) {
        logits[i] = -1000;
    }
    dk_route_row(&v3, logits, NULL, ids, weights);
    check_distinct(&v3, ids);
    for (int i = 0; i < 8; i++) {
        assert_true(weights[i] == 0);
    }
}

/* DK_ROUTE_ROWS in the environment: rows of each rule (default 4000). */
static void test_public_rules_agree_with_a_binary64_reference(void **state)
{
    (void)state;
    const char *wanted = getenv("DK_ROUTE_ROWS");
    long row_count = wanted != NULL ? strtol(wanted, NULL, 10) : 4000;
    assert_true(row_count > 0);
    for (uint32_t rule = 0; rule < dk_public_rule_count; rule++) {
        const struct dk_routing *routing = &dk_public_rules[rule].routing;
        long decided = 0;
        random_state = rule;
        for (long row = 0; row < row_count; row++) {
            float logits[DK_MAX_EXPERTS], bias[DK_MAX_EXPERTS], weights[DK_MAX_TOP_K];
            int32_t ids[DK_MAX_TOP_K];
            float deviation = row % 3 == 0 ? 4.0f : row % 3 == 1 ? 1.0f : 0.1f;
            for (uint32_t i = 0; i < routing->expert_count; i++) {
                logits[i] = normal(deviation);
                bias[i] = normal(0.05f);
            }
            const float *used_bias = routing->has_correction_bias ? bias : NULL;
            struct dk_route_reference reference;
            dk_route_reference_row(routing, logits, used_bias, &reference);
            dk_route_row(routing, logits, used_bias, ids, weights);
            check_distinct(routing, ids);
            if (reference.margin < 4e-6) {
                continue;
            }
            decided++;
            for (uint32_t i = 0; i < routing->top_k; i++) {
                if (ids[i] != reference.ids[i] ||
                    fabs(weights[i] - reference.weights[i]) > 4e-6 * fabs(reference.weights[i])) {
                    fail_msg("%s row %ld: place %u is expert %d of weight %.9g, expected %d and %.9g "
                             "(margin %g)",
                             dk_public_rules[rule].name, row, i, ids[i], (double)weights[i], reference.ids[i],
                             reference.weights[i], reference.margin);
                }
            }
        }
        assert_true(decided > row_count / 2); /* the margin must not excuse the test away */
    }
}

static void test_scores_are_within_a_few_units_in_the_last_place(void **state)
{
    (void)state;
    for (int step = -2000; step <= 2000; step++) {
        float x = (float)step * 0.05f, sigmoid, softplus;
        dk_route_scores(DK_SCORING_SIGMOID, &x, &sigmoid, 1);
        dk_route_scores(DK_SCORING_SQRTSOFTPLUS, &x, &softplus, 1);
        double expected = sqrt((x > 0 ? (double)x : 0) + log1p(exp(-fabs((double)x))));
        assert_true(fabs((double)softplus - expected) <= 6 * 0x1p-24 * expected + 0x1p-72);
        expected = 1 / (1 + exp(-(double)x));
        assert_true(fabs((double)sigmoid - expected) <= 6 * 0x1p-24 * expected + 0x1p-146);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_c06_weight_is_the_unbiased_score),
        cmocka_unit_test(test_c07_scale_with_and_without_normalising),
        cmocka_unit_test(test_c08_ties_go_to_the_lower_index),
        cmocka_unit_test(test_c04_nan_rows_give_distinct_ids),
        cmocka_unit_test(test_one_nan_does_not_disturb_sigmoid_rows),
        cmocka_unit_test(test_experts_outside_the_kept_groups_are_never_chosen),
        cmocka_unit_test(test_underflow_gives_zero_weights_not_nan),
        cmocka_unit_test(test_public_rules_agree_with_a_binary64_reference),
        cmocka_unit_test(test_scores_are_within_a_few_units_in_the_last_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
