/* test_client_bench_report.c: results as text and JSON; nothing that went wrong is left out. */
#include "tests/unit/client/check.h"

#include <cjson/cJSON.h>

#include "client/bench_report.h"

/* A hundred good answers of 1..100 us with 0.5 us in the kernels, in two seconds. */
static void fill(struct dk_load_result *result)
{
    memset(result, 0, sizeof *result);
    for (uint64_t i = 1; i <= 100; i++) {
        dk_latency_record(&result->latency, i * 1000);
        dk_latency_record(&result->kernel, 500);
        dk_latency_record(&result->above_kernel, i * 1000 - 500);
    }
    result->codes[DK_OK] = result->answered_count = 100;
    result->window_s = 2;
}

static struct dk_bench http_bench(void)
{
    return (struct dk_bench){
        .options = {.way = &dk_bench_http,
                    .client_count = 4,
                    .inflight_count = 2,
                    .load = {.thread_count = 1, .slot_count = 8, .duration_s = 2, .warmup_s = 1}},
        .model = {.name = "gate", .n = 256, .k = 7168, .dtype = DK_BF16},
        .dtype = DK_FP32,
        .server = {"0.1.0", "cpu", "a \"device\"", "avx2"}};
}

static char *text_of(const struct dk_bench *bench, const uint64_t *rows, const struct dk_load_result *results,
                     uint32_t count)
{
    char *text = NULL;
    size_t length;
    FILE *stream = open_memstream(&text, &length);
    assert_non_null(stream);
    const struct dk_bench_report report = {bench, rows, results, count};
    assert_true(dk_bench_report_text(&report, stream));
    fclose(stream);
    return text;
}

static cJSON *json_of(const struct dk_bench *bench, const uint64_t *rows,
                      const struct dk_load_result *results, uint32_t count)
{
    struct dk_json_text text = {0};
    const struct dk_bench_report report = {bench, rows, results, count};
    dk_bench_report_json(&report, &text);
    assert_false(text.failed);
    cJSON *tree = cJSON_ParseWithOpts(text.data, NULL, true);
    if (!tree)
        fail_msg("not JSON: %s", text.data);
    dk_json_text_free(&text);
    return tree;
}

static double number(const cJSON *tree, const char *outer, const char *inner)
{
    const cJSON *object = outer ? cJSON_GetObjectItemCaseSensitive(tree, outer) : tree;
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, inner);
    if (!cJSON_IsNumber(item))
        fail_msg("no number %s.%s", outer ? outer : "", inner);
    return item->valuedouble;
}

static void test_table_has_a_line_for_each_rows_value(void **state)
{
    (void)state;
    static struct dk_load_result results[2];
    static const uint64_t rows[] = {1, 64};
    struct dk_bench bench = http_bench();
    fill(&results[0]);
    fill(&results[1]);
    char *text = text_of(&bench, rows, results, 2);
    check_contains(text,
                   "gate [7168, 256] bf16, x fp32, over http /v1: closed loop, 4 x 2 in flight, 1 thread, "
                   "2 s after 1 s of warm-up\n");
    check_contains(text, "server: decomposek 0.1.0, cpu, a \"device\", avx2\n");
    check_contains(text, "\n   1     50      50  50.5  50.");
    check_contains(text, "\n  64     50    3200  50.5  50.");
    assert_null(strstr(text, "failed:"));
    assert_null(strstr(text, "RATE"));
    free(text);
}

static void test_failures_are_named(void **state)
{
    (void)state;
    static struct dk_load_result result;
    static const uint64_t rows[] = {8};
    struct dk_bench bench = http_bench();
    fill(&result);
    result.codes[503] = 7;
    result.codes[DK_LOAD_CONNECTION] = 2;
    result.failed_count = 9;
    char *text = text_of(&bench, rows, &result, 1);
    check_contains(text, "rows 8: 9 of 109 requests failed: 503 x 7, CONNECTION x 2\n");
    free(text);
    cJSON *tree = json_of(&bench, rows, &result, 1);
    const cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(tree, "results"), 0);
    assert_true(number(first, "failures", "503") == 7);
    assert_true(number(first, "failures", "CONNECTION") == 2);
    assert_true(number(first, NULL, "failed") == 9);
    cJSON_Delete(tree);
}

static void test_a_rate_that_was_not_reached_is_said(void **state)
{
    (void)state;
    static struct dk_load_result result;
    static const uint64_t rows[] = {1};
    struct dk_bench bench = http_bench();
    bench.options.load.rate = 51;
    fill(&result);
    result.max_late_ns = 1500;
    result.unsent_count = 1;
    char *text = text_of(&bench, rows, &result, 1);
    check_contains(text, "open loop, 51 requests/s, Poisson arrivals");
    check_contains(text, "1.5 us after they were due at most; 1 were due and not sent");
    assert_null(strstr(text, "NOT REACHED")); /* one in a hundred and one */
    free(text);
    result.unsent_count = 2;
    text = text_of(&bench, rows, &result, 1);
    check_contains(text, "NOT REACHED");
    free(text);
    cJSON *tree = json_of(&bench, rows, &result, 1);
    const cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(tree, "results"), 0);
    assert_true(cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(first, "is_rate_reached")));
    assert_true(number(tree, "load", "rate") == 51);
    cJSON_Delete(tree);
}

static void test_json_has_all_that_a_reader_needs(void **state)
{
    (void)state;
    static struct dk_load_result result;
    static const uint64_t rows[] = {4};
    struct dk_bench bench = http_bench();
    fill(&result);
    result.is_stopped = true;
    cJSON *tree = json_of(&bench, rows, &result, 1);
    const cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(tree, "results"), 0);
    assert_string_equal(cJSON_GetObjectItemCaseSensitive(tree, "version")->valuestring, DK_VERSION);
    assert_true(strlen(cJSON_GetObjectItemCaseSensitive(tree, "commit")->valuestring) >= 7);
    assert_string_equal(cJSON_GetObjectItemCaseSensitive(tree, "transport")->valuestring, "http");
    assert_true(number(tree, "model", "k") == 7168);
    assert_true(number(tree, "load", "inflight") == 2);
    const cJSON *server = cJSON_GetObjectItemCaseSensitive(tree, "server");
    assert_string_equal(cJSON_GetObjectItemCaseSensitive(server, "device")->valuestring, "a \"device\"");
    assert_true(number(first, NULL, "requests_per_s") == 50 && number(first, NULL, "rows_per_s") == 200);
    assert_true(number(first, "latency_us", "max") == 100 && number(first, "latency_us", "min") == 1);
    assert_true(number(first, "kernel_us", "p50") == 0.5);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(first, "is_stopped")));
    cJSON_Delete(tree);
}

static void test_what_was_not_measured_is_a_dash_and_null(void **state)
{
    (void)state;
    static struct dk_load_result result;
    static const uint64_t rows[] = {1};
    struct dk_bench bench = http_bench();
    bench.server = (struct dk_bench_server){0};
    memset(&result, 0, sizeof result);
    char *text = text_of(&bench, rows, &result, 1);
    check_contains(text, "server: unknown");
    check_contains(text, "\n   1      -       -     -    -");
    free(text);
    cJSON *tree = json_of(&bench, rows, &result, 1);
    const cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(tree, "results"), 0);
    assert_true(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(tree, "server")));
    assert_true(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(first, "requests_per_s")));
    cJSON_Delete(tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_has_a_line_for_each_rows_value),
        cmocka_unit_test(test_failures_are_named),
        cmocka_unit_test(test_a_rate_that_was_not_reached_is_said),
        cmocka_unit_test(test_json_has_all_that_a_reader_needs),
        cmocka_unit_test(test_what_was_not_measured_is_a_dash_and_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
