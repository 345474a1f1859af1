/* test_oip_model.c: metadata, configuration, statistics, and the repository's bodies. */
#include "tests/unit/proto/oip_parse.h"

#include <cjson/cJSON.h>

static const struct dk_oip_tensor_spec outputs[] = {
    {.name = "logits", .dtype = DK_FP32, .row_length = 256},
    {.name = "topk_ids", .dtype = DK_INT32, .row_length = 8},
};
static const struct dk_oip_model model = {.name = "gate",
                                          .platform = "decomposek",
                                          .input = {.name = "x", .dtype = DK_BF16, .row_length = 7168},
                                          .outputs = outputs,
                                          .output_count = 2,
                                          .max_batch_size = 4096};

/* Exactly this text, and JSON. */
static void expect(struct dk_json_text *text, const char *expected)
{
    assert_false(text->failed);
    assert_string_equal(text->data, expected);
    cJSON *root = cJSON_Parse(text->data);
    assert_non_null(root);
    cJSON_Delete(root);
    dk_json_text_free(text);
}

static void test_server_metadata(void **state)
{
    (void)state;
    static const char *const extensions[] = {"binary_tensor_data", "statistics"};
    struct dk_json_text text = {0};
    dk_oip_server_metadata(&text, "decomposek", "0.1.0", extensions, 2);
    expect(&text, "{\"name\":\"decomposek\",\"version\":\"0.1.0\",\"extensions\":[\"binary_tensor_data\","
                  "\"statistics\"]}");
    dk_oip_server_metadata(&text, "a\"b", "", NULL, 0);
    expect(&text, "{\"name\":\"a\\\"b\",\"version\":\"\",\"extensions\":[]}");
}

static void test_model_metadata(void **state)
{
    (void)state;
    struct dk_json_text text = {0};
    dk_oip_model_metadata(&text, &model);
    expect(&text,
           "{\"name\":\"gate\",\"versions\":[\"1\"],\"platform\":\"decomposek\",\"inputs\":[{\"name\":\"x\","
           "\"datatype\":\"BF16\",\"shape\":[-1,7168]}],\"outputs\":[{\"name\":\"logits\",\"datatype\":"
           "\"FP32\",\"shape\":[-1,256]},{\"name\":\"topk_ids\",\"datatype\":\"INT32\",\"shape\":[-1,8]}]}");
}

static void test_model_config(void **state)
{
    (void)state;
    struct dk_json_text text = {0};
    dk_oip_model_config(&text, &model);
    expect(&text,
           "{\"name\":\"gate\",\"platform\":\"decomposek\",\"backend\":\"decomposek\",\"version_policy\":{"
           "\"specific\":{\"versions\":[1]}},\"max_batch_size\":4096,\"input\":[{\"name\":\"x\","
           "\"data_type\":\"TYPE_BF16\",\"dims\":[7168]}],\"output\":[{\"name\":\"logits\",\"data_type\":"
           "\"TYPE_FP32\",\"dims\":[256]},{\"name\":\"topk_ids\",\"data_type\":\"TYPE_INT32\",\"dims\":[8]}],"
           "\"model_transaction_policy\":{\"decoupled\":false},\"response_cache\":{\"enable\":false}}");
}

static void test_statistics_print_integers_exactly(void **state)
{
    (void)state;
    static const struct dk_oip_batch_stats batches[] = {{1, {1, 2}, {3, 4}, {5, 6}},
                                                        {64, {7, 8}, {9, 10}, {11, 12}}};
    static const struct dk_oip_memory_usage memory[] = {{"GPU", 0, 3670016}, {"CPU", -1, 5}};
    const struct dk_oip_model_stats stats[] = {{.name = "gate",
                                                .last_inference_ms = 1764000000000,
                                                .inference_count = UINT64_MAX,
                                                .execution_count = 9007199254740993,
                                                .success = {1000000, 1000000000000000000},
                                                .fail = {1, 2},
                                                .queue = {3, 4},
                                                .compute_input = {5, 6},
                                                .compute_infer = {7, 8},
                                                .compute_output = {9, 10},
                                                .batches = batches,
                                                .batch_count = 2,
                                                .memory = memory,
                                                .memory_count = 2},
                                               {.name = "b"}};
    struct dk_json_text text = {0};
    dk_oip_stats(&text, stats, 2);
    expect(
        &text,
        "{\"model_stats\":[{\"name\":\"gate\",\"version\":\"1\",\"last_inference\":1764000000000,"
        "\"inference_count\":18446744073709551615,\"execution_count\":9007199254740993,\"inference_stats\":{"
        "\"success\":{\"count\":1000000,\"ns\":1000000000000000000},\"fail\":{\"count\":1,\"ns\":2},"
        "\"queue\":{\"count\":3,\"ns\":4},\"compute_input\":{\"count\":5,\"ns\":6},"
        "\"compute_infer\":{\"count\":7,\"ns\":8},\"compute_output\":{\"count\":9,\"ns\":10},"
        "\"cache_hit\":{\"count\":0,\"ns\":0},\"cache_miss\":{\"count\":0,\"ns\":0}},\"response_stats\":{},"
        "\"batch_stats\":[{\"batch_size\":1,\"compute_input\":{\"count\":1,\"ns\":2},\"compute_infer\":{"
        "\"count\":3,\"ns\":4},\"compute_output\":{\"count\":5,\"ns\":6}},{\"batch_size\":64,\"compute_"
        "input\":{"
        "\"count\":7,\"ns\":8},\"compute_infer\":{\"count\":9,\"ns\":10},\"compute_output\":{\"count\":11,"
        "\"ns\":12}}],\"memory_usage\":[{\"type\":\"GPU\",\"id\":0,\"byte_size\":3670016},{\"type\":\"CPU\","
        "\"id\":-1,\"byte_size\":5}]},{\"name\":\"b\",\"version\":\"1\",\"last_inference\":0,"
        "\"inference_count\":0,\"execution_count\":0,\"inference_stats\":{\"success\":{\"count\":0,\"ns\":0},"
        "\"fail\":{\"count\":0,\"ns\":0},\"queue\":{\"count\":0,\"ns\":0},\"compute_input\":{\"count\":0,"
        "\"ns\":0},\"compute_infer\":{\"count\":0,\"ns\":0},\"compute_output\":{\"count\":0,\"ns\":0},"
        "\"cache_hit\":{\"count\":0,\"ns\":0},\"cache_miss\":{\"count\":0,\"ns\":0}},\"response_stats\":{},"
        "\"batch_stats\":[],\"memory_usage\":[]}]}");
    dk_oip_stats(&text, NULL, 0);
    expect(&text, "{\"model_stats\":[]}");
}

static void test_repository_index(void **state)
{
    (void)state;
    static const struct dk_oip_index_entry entries[] = {{"gate", DK_OIP_READY, ""},
                                                        {"b", DK_OIP_UNAVAILABLE, "unloaded"},
                                                        {"c", DK_OIP_LOADING, ""},
                                                        {"d", DK_OIP_UNLOADING, ""}};
    struct dk_json_text text = {0};
    dk_oip_index(&text, entries, 4);
    expect(&text, "[{\"name\":\"gate\",\"version\":\"1\",\"state\":\"READY\",\"reason\":\"\"},"
                  "{\"name\":\"b\",\"version\":\"1\",\"state\":\"UNAVAILABLE\",\"reason\":\"unloaded\"},"
                  "{\"name\":\"c\",\"version\":\"1\",\"state\":\"LOADING\",\"reason\":\"\"},"
                  "{\"name\":\"d\",\"version\":\"1\",\"state\":\"UNLOADING\",\"reason\":\"\"}]");
    dk_oip_index(&text, NULL, 0);
    expect(&text, "[]");
}

static void test_index_requests(void **state)
{
    (void)state;
    struct dk_error error;
    bool is_only_ready = true;
    assert_int_equal(dk_oip_index_request_parse("", 0, &is_only_ready, &error), DK_OK);
    assert_false(is_only_ready);
    assert_int_equal(dk_oip_index_request_parse("{\"ready\":true}", 14, &is_only_ready, &error), DK_OK);
    assert_true(is_only_ready);
    assert_int_equal(dk_oip_index_request_parse("{\"ready\":1}", 11, &is_only_ready, &error), DK_BAD_REQUEST);
    assert_string_equal(error.message, "ready: expected true or false, found 1");
    assert_true(is_only_ready);
    assert_int_equal(dk_oip_index_request_parse("{\"other\":1}", 11, &is_only_ready, &error), DK_OK);
    assert_false(is_only_ready);
}

static dk_status load(const char *body, struct dk_error *error)
{
    return dk_oip_load_request_parse(body, strlen(body), error);
}

static void test_load_overrides_are_unsupported(void **state)
{
    (void)state;
    struct dk_error error;
    assert_int_equal(load("", &error), DK_OK);
    assert_int_equal(load("{}", &error), DK_OK);
    assert_int_equal(load("{\"parameters\":{\"p\":1}}", &error), DK_OK);
    assert_int_equal(load("{\"parameters\":{\"config\":\"{}\"}}", &error), DK_UNSUPPORTED);
    assert_non_null(strstr(error.message, "parameters.config: overrides are not supported"));
    assert_int_equal(load("{\"parameters\":{\"file:1/model.bin\":\"AAAA\"}}", &error), DK_UNSUPPORTED);
    assert_non_null(strstr(error.message, "parameters.file:1/model.bin: overrides are not supported"));
    assert_int_equal(load("{\"parameters\":[]}", &error), DK_BAD_REQUEST);
    assert_int_equal(load("{\"parameters\":{\"p\":{}}}", &error), DK_BAD_REQUEST);
}

static void test_unload_dependents_is_accepted(void **state)
{
    (void)state;
    struct dk_error error;
    static const char good[] = "{\"parameters\":{\"unload_dependents\":true}}";
    static const char bad[] = "{\"parameters\":{\"unload_dependents\":\"yes\"}}";
    assert_int_equal(dk_oip_unload_request_parse("", 0, &error), DK_OK);
    assert_int_equal(dk_oip_unload_request_parse(good, sizeof good - 1, &error), DK_OK);
    assert_int_equal(dk_oip_unload_request_parse(bad, sizeof bad - 1, &error), DK_BAD_REQUEST);
    assert_string_equal(error.message, "parameters.unload_dependents: expected true or false, found \"yes\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server_metadata),
        cmocka_unit_test(test_model_metadata),
        cmocka_unit_test(test_model_config),
        cmocka_unit_test(test_statistics_print_integers_exactly),
        cmocka_unit_test(test_repository_index),
        cmocka_unit_test(test_index_requests),
        cmocka_unit_test(test_load_overrides_are_unsupported),
        cmocka_unit_test(test_unload_dependents_is_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
