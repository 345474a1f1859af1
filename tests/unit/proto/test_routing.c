/* test_routing.c: the checks of a routing rule, and what a checkpoint's config.json says about its routers.
 */
#include "tests/unit/proto/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "proto/router_config.h"

static struct dk_routing v3(void)
{
    return (struct dk_routing){.scoring = DK_SCORING_SIGMOID,
                               .expert_count = 256,
                               .group_count = 8,
                               .kept_group_count = 4,
                               .top_k = 8,
                               .is_group_score_sum = true,
                               .has_correction_bias = true,
                               .is_normalized = true,
                               .scale = 2.5f};
}

static void check_refused(const struct dk_routing *routing, const char *quoted)
{
    struct dk_error error = {0};
    assert_int_equal(dk_routing_check(routing, &error), DK_BAD_VALUE);
    if (strstr(error.message, quoted) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", error.message, quoted);
    }
}

static void test_c12_rules_that_do_not_fit_are_refused_with_both_numbers(void **state)
{
    (void)state;
    struct dk_routing routing = v3();
    assert_int_equal(dk_routing_check(&routing, NULL), DK_OK);
    routing.expert_count = routing.group_count; /* one expert a group, its two best asked for */
    check_refused(&routing, "8 experts in 8 groups");
    routing = v3();
    routing.group_count = 7;
    check_refused(&routing, "256 experts cannot be divided into 7 groups");
    routing = v3();
    routing.kept_group_count = 9;
    check_refused(&routing, "topk_group is 9, there are 8 groups");
    routing = v3();
    routing.kept_group_count = 1;
    routing.top_k = 32; /* exactly the kept experts */
    assert_int_equal(dk_routing_check(&routing, NULL), DK_OK);
    routing.group_count = 16;
    check_refused(&routing, "top_k is 32, the 1 kept groups of 16 hold 16 experts");
    routing.is_group_score_sum = false;
    routing.expert_count = routing.group_count = 16;
    routing.top_k = 1; /* the best of a group of one is well defined */
    assert_int_equal(dk_routing_check(&routing, NULL), DK_OK);
}

static void test_extents_out_of_range_are_refused(void **state)
{
    (void)state;
    struct dk_routing routing = v3();
    routing.expert_count = 0;
    check_refused(&routing, "experts is 0");
    routing.expert_count = DK_MAX_EXPERTS + 1;
    check_refused(&routing, "experts is 1025");
    routing = v3();
    routing.top_k = 0;
    check_refused(&routing, "top_k is 0");
    routing.top_k = DK_MAX_TOP_K + 1;
    check_refused(&routing, "top_k is 33");
    routing = v3();
    routing.group_count = 0;
    check_refused(&routing, "n_group is 0");
    routing = v3();
    routing.kept_group_count = 0;
    check_refused(&routing, "topk_group is 0");
    routing = v3();
    routing.scale = 0;
    check_refused(&routing, "scale is 0");
    routing.scale = -1;
    check_refused(&routing, "scale is -1");
    routing.scale = __builtin_nanf("");
    check_refused(&routing, "scale is");
    routing = v3();
    routing.scoring = DK_SCORING_COUNT;
    check_refused(&routing, "scoring 4");
    routing = v3();
    routing.scoring = DK_SCORING_SOFTMAX_AFTER_TOPK;
    check_refused(&routing, "correction bias");
}

static void test_names_of_scorings_read_back(void **state)
{
    (void)state;
    for (unsigned i = 0; i < DK_SCORING_COUNT; i++) {
        const char *name = dk_scoring_name((dk_scoring)i);
        dk_scoring scoring = DK_SCORING_COUNT;
        assert_int_equal(dk_scoring_parse(name, strlen(name), &scoring), DK_OK);
        assert_int_equal(scoring, i);
    }
    dk_scoring scoring = DK_SCORING_SOFTMAX;
    assert_int_equal(dk_scoring_parse("sigmoid ", 8, &scoring), DK_BAD_VALUE);
    assert_int_equal(scoring, DK_SCORING_SOFTMAX);
    assert_string_equal(dk_scoring_name(DK_SCORING_COUNT), "unknown");
}

struct accepted {
    const char *text;
    struct dk_router_config expected;
};

static const struct accepted accepted[] = {
    {"{\"model_type\":\"deepseek_v3\",\"hidden_size\":7168,\"num_hidden_layers\":61,\"first_k_dense_"
     "replace\":3,"
     "\"n_routed_experts\":256,\"num_experts_per_tok\":8,\"n_group\":8,\"topk_group\":4,\"topk_method\":"
     "\"noaux_tc\",\"scoring_func\":\"sigmoid\",\"norm_topk_prob\":true,\"routed_scaling_factor\":2.5,"
     "\"rope_scaling\":{\"factor\":40,\"type\":\"yarn\"},\"eos_token_id\":null}",
     {"deepseek_v3", 7168, 61, 3, {DK_SCORING_SIGMOID, 256, 8, 4, 8, true, true, true, 2.5f}}},
    {"{\"dim\":7168,\"n_layers\":61,\"n_dense_layers\":3,\"n_routed_experts\":256,\"n_activated_experts\":8,"
     "\"n_expert_groups\":8,\"n_limited_groups\":4,\"route_scale\":2.5,\"score_func\":\"sigmoid\"}",
     {"", 7168, 61, 3, {DK_SCORING_SIGMOID, 256, 8, 4, 8, true, true, true, 2.5f}}},
    {"{\"model_type\":\"deepseek_v2\",\"hidden_size\":5120,\"num_hidden_layers\":60,\"first_k_dense_"
     "replace\":1,"
     "\"n_routed_experts\":160,\"num_experts_per_tok\":6,\"n_group\":8,\"topk_group\":3,\"topk_method\":"
     "\"group_limited_greedy\",\"scoring_func\":\"softmax\",\"norm_topk_prob\":false,"
     "\"routed_scaling_factor\":16.0}",
     {"deepseek_v2", 5120, 60, 1, {DK_SCORING_SOFTMAX, 160, 8, 3, 6, false, false, false, 16.0f}}},
    {"{\"model_type\":\"qwen3_moe\",\"hidden_size\":4096,\"num_hidden_layers\":94,\"num_experts\":128,"
     "\"num_experts_per_tok\":8,\"norm_topk_prob\":true}",
     {"qwen3_moe", 4096, 94, 0, {DK_SCORING_SOFTMAX, 128, 1, 1, 8, false, false, true, 1.0f}}},
    {"{\"model_type\":\"gpt_oss\",\"hidden_size\":2880,\"num_hidden_layers\":36,\"num_local_experts\":128,"
     "\"num_experts_per_tok\":4,\"experts_per_token\":4}",
     {"gpt_oss", 2880, 36, 0, {DK_SCORING_SOFTMAX_AFTER_TOPK, 128, 1, 1, 4, false, false, false, 1.0f}}},
    {"{\"architectures\":[\"X\"],\"text_config\":{\"model_type\":\"glm4_moe\",\"hidden_size\":5120,"
     "\"num_hidden_layers\":92,\"first_k_dense_replace\":3,\"n_routed_experts\":160,\"num_experts_per_tok\":"
     "8,"
     "\"n_group\":1,\"topk_group\":1,\"norm_topk_prob\":true,\"routed_scaling_factor\":2.5}}",
     {"glm4_moe", 5120, 92, 3, {DK_SCORING_SIGMOID, 160, 1, 1, 8, true, true, true, 2.5f}}},
};

static void test_configurations_of_public_families(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++) {
        struct dk_router_config config;
        struct dk_error error = {0};
        if (dk_router_config_parse(accepted[i].text, strlen(accepted[i].text), &config, &error) != DK_OK) {
            fail_msg("%zu: %s", i, error.message);
        }
        const struct dk_router_config *expected = &accepted[i].expected;
        assert_string_equal(config.model_type, expected->model_type);
        assert_int_equal(config.hidden_size, expected->hidden_size);
        assert_int_equal(config.layer_count, expected->layer_count);
        assert_int_equal(config.dense_layer_count, expected->dense_layer_count);
        assert_int_equal(config.routing.scoring, expected->routing.scoring);
        assert_int_equal(config.routing.expert_count, expected->routing.expert_count);
        assert_int_equal(config.routing.group_count, expected->routing.group_count);
        assert_int_equal(config.routing.kept_group_count, expected->routing.kept_group_count);
        assert_int_equal(config.routing.top_k, expected->routing.top_k);
        assert_int_equal(config.routing.is_group_score_sum, expected->routing.is_group_score_sum);
        assert_int_equal(config.routing.has_correction_bias, expected->routing.has_correction_bias);
        assert_int_equal(config.routing.is_normalized, expected->routing.is_normalized);
        assert_true(config.routing.scale == expected->routing.scale);
    }
}

#define SHAPE "\"hidden_size\":64,\"num_hidden_layers\":2,\"n_routed_experts\":16"

static void test_wrong_configurations_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        dk_status status;
        const char *quoted;
    } cases[] = {
        {"", DK_BAD_FILE, "byte 0"},
        {"[]", DK_BAD_FILE, "expected a JSON object"},
        {"{\"hidden_size\":64,}", DK_BAD_FILE, "byte 18"},
        {"{" SHAPE "}", DK_BAD_FILE, "num_experts_per_tok"},
        {"{\"hidden_size\":64,\"num_hidden_layers\":2,\"num_experts_per_tok\":2}", DK_BAD_FILE,
         "n_routed_experts"},
        {"{" SHAPE ",\"num_experts_per_tok\":\"8\"}", DK_BAD_FILE,
         "num_experts_per_tok: expected an integer"},
        {"{" SHAPE ",\"num_experts_per_tok\":2.5}", DK_BAD_FILE, "found 2.5"},
        {"{" SHAPE ",\"num_experts_per_tok\":-1}", DK_BAD_FILE, "found -1"},
        {"{" SHAPE ",\"num_experts_per_tok\":2,\"n_activated_experts\":4}", DK_BAD_FILE,
         "num_experts_per_tok and n_activated_experts disagree"},
        {"{" SHAPE ",\"num_experts_per_tok\":17}", DK_BAD_FILE, "top_k is 17"},
        {"{" SHAPE ",\"num_experts_per_tok\":2,\"n_group\":3,\"topk_group\":1}", DK_BAD_FILE,
         "16 experts cannot be divided into 3 groups"},
        {"{" SHAPE ",\"num_experts_per_tok\":2,\"scoring_func\":\"cosine\"}", DK_UNSUPPORTED, "\"cosine\""},
        {"{" SHAPE ",\"num_experts_per_tok\":2,\"topk_method\":\"best\"}", DK_UNSUPPORTED, "\"best\""},
        {"{" SHAPE ",\"num_experts_per_tok\":2,\"scoring_func\":1}", DK_BAD_FILE,
         "scoring_func: expected a string"},
        {"{" SHAPE ",\"num_experts_per_tok\":2,\"norm_topk_prob\":1}", DK_BAD_FILE, "norm_topk_prob"},
        {"{" SHAPE ",\"num_experts_per_tok\":2,\"routed_scaling_factor\":\"2\"}", DK_BAD_FILE,
         "routed_scaling_factor"},
        {"{" SHAPE ",\"num_experts_per_tok\":2,\"routed_scaling_factor\":0}", DK_BAD_FILE, "scale is 0"},
        {"{" SHAPE ",\"num_experts_per_tok\":2,\"model_type\":7}", DK_BAD_FILE, "model_type"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dk_router_config config = {.layer_count = 99};
        struct dk_error error = {0};
        dk_status status = dk_router_config_parse(cases[i].text, strlen(cases[i].text), &config, &error);
        if (status != cases[i].status || strstr(error.message, cases[i].quoted) == NULL) {
            fail_msg("%s: status %s, \"%s\"", cases[i].text, dk_status_name(status), error.message);
        }
        assert_int_equal(config.layer_count, 99);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_c12_rules_that_do_not_fit_are_refused_with_both_numbers),
        cmocka_unit_test(test_extents_out_of_range_are_refused),
        cmocka_unit_test(test_names_of_scorings_read_back),
        cmocka_unit_test(test_configurations_of_public_families),
        cmocka_unit_test(test_wrong_configurations_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
