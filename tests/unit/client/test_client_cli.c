/* test_client_cli.c: dispatch, help, exit codes and reports of the built `decomposek`. */
#include "tests/unit/client/run_cli.h"
#include "tests/unit/client/stub_server.h"

#include <cjson/cJSON.h>

#include "client/npy.h"

#define JSON_200   "200 OK\r\nContent-Type: application/json"
#define TEXT(text) (text), sizeof(text) - 1
#define MODELS                                                                                               \
    TEXT("{\"models\":[{\"name\":\"gate\",\"n\":2,\"k\":3,\"dtype\":\"bf16\",\"has_bias\":false}]}")
#define RAW_200                                                                                              \
    "200 OK\r\nContent-Type: application/octet-stream\r\nX-Decomposek-Shape: 2,2\r\n"                        \
    "X-Decomposek-Timing-Us: queue=1.5 kernel=2 total=4\r\n"                                                 \
    "X-Decomposek-Plan: bucket=2 variant=v split_k=8 pieces=1 backend=cpu"

static const char *const commands[] = {"infer", "bench",          "top", "models", "plans",
                                       "check", "demo-checkpoint"};
enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };
static const float y[4] = {0.5F, -1, 3, 1e-3F};

static void test_help_lists_every_command(void **state)
{
    (void)state;
    struct cli_result result = RUN("help");
    check_exit(&result, 0);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        check_contains(result.out, commands[i]);
    char text[sizeof result.out];
    memcpy(text, result.out, sizeof text);
    result = RUN("--help");
    check_exit(&result, 0);
    assert_string_equal(result.out, text);
}

static void test_each_command_has_help_in_both_spellings(void **state)
{
    (void)state;
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        struct cli_result after = RUN(commands[i], "--help");
        check_exit(&after, 0);
        check_contains(after.out, "usage: decomposek");
        check_contains(after.out, "--json");
        struct cli_result before = RUN("help", commands[i]);
        check_exit(&before, 0);
        assert_string_equal(before.out, after.out);
    }
}

static void test_version_is_printed(void **state)
{
    (void)state;
    struct cli_result result = RUN("--version");
    check_exit(&result, 0);
    assert_string_equal(result.out, "decomposek " DK_VERSION "\n");
}

static void test_usage_errors_exit_with_2_and_say_why(void **state)
{
    (void)state;
    static const struct {
        const char *words[8], *part;
    } cases[] = {
        {{NULL}, "usage:"},
        {{"infr"}, "did you mean 'infer'"},
        {{"xyzzy"}, "'xyzzy'"},
        {{"--jsn", "models"}, "'--json'"},
        {{"models", "extra"}, "'extra'"},
        {{"models", "--timeout", "0"}, "--timeout"},
        {{"models", "--url", "ftp://x"}, "ftp://x"},
        {{"check"}, "FILE..."},
        {{"demo-checkpoint"}, "DIR"},
        {{"demo-checkpoint", "/tmp/x", "--layers", "59"}, "from 1 to 58"},
        {{"infer", "x.npy"}, "--model"},
        {{"infer", "--model", "a/b", "x.npy"}, "--model"},
        {{"infer", "--model", "gate"}, "--random"},
        {{"infer", "--model", "gate", "x.npy", "--random", "1"}, "exclude"},
        {{"infer", "--model", "gate", "x.npy", "--seed", "1"}, "--seed"},
        {{"infer", "--model", "gate", "--random", "1", "--dtype", "int8"}, "int8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct cli_result result = run_cli_to(NULL, environ, cases[i].words);
        check_exit(&result, 2);
        assert_string_equal(result.out, "");
        check_contains(result.err, cases[i].part);
    }
}

static void test_no_daemon_is_a_runtime_failure_also_in_json(void **state)
{
    (void)state;
    struct cli_result result = RUN("--url", "http://127.0.0.1:1", "models", "--json");
    check_exit(&result, 1);
    check_contains(result.err, "decomposek models: cannot connect to http://127.0.0.1:1");
    cJSON *error = cJSON_Parse(result.out);
    assert_string_equal(cJSON_GetObjectItem(error, "status")->valuestring, "UNAVAILABLE");
    cJSON_Delete(error);
}

static void test_environment_names_the_daemon_and_the_flag_wins(void **state)
{
    (void)state;
    char variable[] = "DECOMPOSEK_URL=http://127.0.0.1:2";
    char *environment[] = {variable, NULL};
    struct cli_result result = run_cli_to(NULL, environment, (const char *const[]){"models", NULL});
    check_exit(&result, 1);
    check_contains(result.err, "http://127.0.0.1:2");
    result =
        run_cli_to(NULL, environment, (const char *const[]){"models", "--url", "http://127.0.0.1:1", NULL});
    check_contains(result.err, "http://127.0.0.1:1:");
}

static void test_lost_output_is_a_failure(void **state)
{
    (void)state;
    struct cli_result result = run_cli_to("/dev/full", environ, (const char *const[]){"help", NULL});
    check_exit(&result, 1);
    check_contains(result.err, "standard output");
}

static void test_models_table_bears_missing_and_unknown_members(void **state)
{
    (void)state;
    const struct stub_answer answers[] = {{JSON_200, MODELS, false, "GET /v1/models "}};
    struct stub_server server = stub_start(answers, 1);
    struct cli_result result = RUN("models", "--url", server.url);
    stub_finish(&server);
    check_exit(&result, 0);
    check_contains(result.out, "NAME");
    check_contains(result.out, "gate");
    check_contains(result.out, " no ");
}

static void test_plans_show_engine_and_plans(void **state)
{
    (void)state;
    static const char body[] =
        "{\"engine\":{\"backend\":\"cpu\",\"threads\":2,\"reason\":\"no GPU\"},\"plans\":["
        "{\"model\":\"gate\",\"bucket\":16,\"variant\":\"avx2_4x16\",\"split_k\":14}]}";
    const struct stub_answer answers[] = {{JSON_200, TEXT(body), false, "GET /v1/plans "},
                                          {JSON_200, TEXT(body), false, "GET /v1/plans "}};
    struct stub_server server = stub_start(answers, 2);
    struct cli_result result = RUN("plans", "--url", server.url);
    check_exit(&result, 0);
    check_contains(result.out, "no GPU");
    check_contains(result.out, "avx2_4x16");
    result = RUN("plans", "--json", "--url", server.url);
    stub_finish(&server);
    check_exit(&result, 0);
    result.out[strlen(result.out) - 1] = 0; /* the line's end */
    assert_string_equal(result.out, body);
}

/* The look-up of the model, then `count` products. */
static struct stub_server start_for_infer(size_t count)
{
    static struct stub_answer answers[8] = {{JSON_200, MODELS, false, "GET /v1/models "}};
    for (size_t i = 1; i <= count; i++)
        answers[i] = (struct stub_answer){RAW_200, y, sizeof y, false,
                                          "/v1/matmul?model=gate&dtype=bf16&out_dtype=fp32"};
    return stub_start(answers, count + 1);
}

static void check_infer_report(void)
{
    struct stub_server server = start_for_infer(1);
    struct cli_result result =
        RUN("infer", "--url", server.url, "--model", "gate", "--random", "2", "--timeout", "9.5");
    stub_finish(&server);
    check_exit(&result, 0);
    check_contains(result.out, "x [2, 3] bf16 -> y [2, 2] fp32");
    check_contains(result.out, "y[0]: 0.5 -1\n");
    check_contains(result.out, "y[1]: 3 0.001\n");
    check_contains(result.out, "queue 1.5 kernel 2.0 total 4.0 round_trip ");
    check_contains(result.out, "bucket 2, variant v, split_k 8");
    assert_null(strstr(result.out, "p99"));
}

static void test_infer_reports_values_timing_and_plan(void **state)
{
    (void)state;
    check_infer_report();
}

/* True when a program that follows its environment sees a decimal comma there. Asked of a child: newlocale
 * with LOCPATH leaks in glibc, and this process is checked for leaks too. */
static bool has_decimal_comma(const char *folder)
{
    char command[256], mark[8] = "";
    snprintf(command, sizeof command, "LOCPATH=%s LC_ALL=de_DE.UTF-8 locale decimal_point 2>/dev/null",
             folder);
    FILE *answer = popen(command, "r");
    assert_non_null(answer);
    bool is_read = fgets(mark, sizeof mark, answer) != NULL;
    return pclose(answer) == 0 && is_read && strcmp(mark, ",\n") == 0;
}

/* The locale is compiled into a folder of the test; without localedef there is nothing to test against. */
static void test_c42_decimal_comma_locale_changes_nothing(void **state)
{
    (void)state;
    char folder[64], command[256];
    make_temporary_folder(folder);
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", folder);
    int unused = system(command); /* whether it worked is seen by the decimal mark */
    (void)unused;
    bool has_comma = has_decimal_comma(folder);
    if (has_comma) {
        assert_int_equal(setenv("LOCPATH", folder, 1), 0);
        assert_int_equal(setenv("LC_ALL", "de_DE.UTF-8", 1), 0);
        /* With LOCPATH set, libp11-kit (loaded for libcurl) leaks in its constructor, by newlocale of a named
         * locale, before main. Only that frame is left out: leaks of ours are still found. */
        char suppressions[96], options[160];
        snprintf(suppressions, sizeof suppressions, "%s/lsan", folder);
        write_bytes(suppressions, "leak:argz_add_sep\n", 18); /* a substring: some builds name it with __ */
        snprintf(options, sizeof options, "suppressions=%s:print_suppressions=0", suppressions);
        assert_int_equal(setenv("LSAN_OPTIONS", options, 1), 0);
        check_infer_report();
    }
    remove_folder(folder);
    if (!has_comma)
        skip();
}

/* Also after a failure, so that the tests behind it run as they should. */
static int unset_locale(void **state)
{
    (void)state;
    return unsetenv("LSAN_OPTIONS") | unsetenv("LC_ALL") | unsetenv("LOCPATH");
}

static void test_infer_json_holds_values_and_quantiles(void **state)
{
    (void)state;
    struct stub_server server = start_for_infer(3);
    struct cli_result result =
        RUN("infer", "--url", server.url, "--model", "gate", "--random", "2", "--repeat", "3", "--json");
    stub_finish(&server);
    check_exit(&result, 0);
    cJSON *report = cJSON_Parse(result.out);
    const cJSON *times = cJSON_GetObjectItem(report, "round_trip_us");
    assert_int_equal(cJSON_GetObjectItem(times, "count")->valueint, 3);
    double p50 = cJSON_GetObjectItem(times, "p50")->valuedouble,
           p99 = cJSON_GetObjectItem(times, "p99")->valuedouble;
    assert_true(p50 > 0 && p50 <= p99);
    const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(report, "y"), 1);
    assert_true(cJSON_GetArrayItem(row, 0)->valuedouble == 3);
    cJSON_Delete(report);
}

static void test_infer_writes_npy_and_leaves_y_out_of_the_report(void **state)
{
    (void)state;
    char folder[64], path[96];
    make_temporary_folder(folder);
    snprintf(path, sizeof path, "%s/y.npy", folder);
    struct stub_server server = start_for_infer(1);
    struct cli_result result =
        RUN("infer", "--url", server.url, "--model", "gate", "--random", "2", "--json", "--output", path);
    stub_finish(&server);
    check_exit(&result, 0);
    assert_null(strstr(result.out, "\"y\""));
    check_contains(result.out, path);
    char bytes[DK_NPY_HEADER_BYTES + sizeof y];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(bytes, 1, sizeof bytes, file), sizeof bytes);
    fclose(file);
    struct dk_npy npy;
    assert_int_equal(dk_npy_parse(bytes, sizeof bytes, &npy, NULL), DK_OK);
    assert_int_equal(npy.rows, 2);
    assert_memory_equal(bytes + npy.data_offset, y, sizeof y);
    remove_folder(folder);
}

static void test_infer_to_standard_output_keeps_it_pure(void **state)
{
    (void)state;
    struct stub_server server = start_for_infer(1);
    struct cli_result result =
        RUN("infer", "--url", server.url, "--model", "gate", "--random", "2", "--output", "-", "--raw");
    stub_finish(&server);
    check_exit(&result, 0);
    assert_memory_equal(result.out, y, sizeof y);
    check_contains(result.err, "timing_us:");
}

static void test_server_error_is_passed_on(void **state)
{
    (void)state;
    const struct stub_answer answers[] = {{JSON_200, MODELS, false, NULL},
                                          {"503 Service Unavailable",
                                           TEXT("{\"error\":\"the queue is full\",\"status\":\"BUSY\"}"),
                                           false, NULL}};
    struct stub_server server = stub_start(answers, 2);
    struct cli_result result = RUN("infer", "--url", server.url, "--model", "gate", "--random", "1");
    stub_finish(&server);
    check_exit(&result, 1);
    check_contains(result.err, "503: the queue is full");
}

static void test_demo_checkpoint_refuses_a_full_folder(void **state)
{
    (void)state;
    char folder[64], path[96];
    make_temporary_folder(folder);
    snprintf(path, sizeof path, "%s/mine", folder);
    write_bytes(path, "x", 1);
    struct cli_result result = RUN("demo-checkpoint", folder, "--layers", "1");
    check_exit(&result, 1);
    check_contains(result.err, "not empty");
    result = RUN("demo-checkpoint", folder, "--layers", "1", "--force");
    check_exit(&result, 0);
    assert_int_equal(access(path, F_OK), 0);
    char expected[512];
    snprintf(expected, sizeof expected,
             "decomposekd --model "
             "gate=%s/model-00001-of-00001.safetensors,tensor=model.layers.3.mlp.gate.weight\n",
             folder);
    check_contains(result.out, expected);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_help_lists_every_command),
        cmocka_unit_test(test_each_command_has_help_in_both_spellings),
        cmocka_unit_test(test_version_is_printed),
        cmocka_unit_test(test_usage_errors_exit_with_2_and_say_why),
        cmocka_unit_test(test_no_daemon_is_a_runtime_failure_also_in_json),
        cmocka_unit_test(test_environment_names_the_daemon_and_the_flag_wins),
        cmocka_unit_test(test_lost_output_is_a_failure),
        cmocka_unit_test(test_models_table_bears_missing_and_unknown_members),
        cmocka_unit_test(test_plans_show_engine_and_plans),
        cmocka_unit_test(test_infer_reports_values_timing_and_plan),
        cmocka_unit_test_teardown(test_c42_decimal_comma_locale_changes_nothing, unset_locale),
        cmocka_unit_test(test_infer_json_holds_values_and_quantiles),
        cmocka_unit_test(test_infer_writes_npy_and_leaves_y_out_of_the_report),
        cmocka_unit_test(test_infer_to_standard_output_keeps_it_pure),
        cmocka_unit_test(test_server_error_is_passed_on),
        cmocka_unit_test(test_demo_checkpoint_refuses_a_full_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
