/* test_client_bench_request.c: the bytes of prepared requests, /v1 and /v2. */
#include "tests/unit/client/stub_server.h"

#include <curl/curl.h>

#include "client/bench.h"
#include "client/http_reply.h"

static const struct dk_remote_model model = {.name = "gate", .n = 2, .k = 3, .dtype = DK_BF16};
static const struct dk_load_http_target target = {.host = "h:81", .prefix = "/p"};

static void check_bytes(const struct dk_bench_request *request, const char *head, const char *body,
                        size_t body_bytes)
{
    if (request->length != strlen(head) + body_bytes || memcmp(request->bytes, head, strlen(head)) != 0)
        fail_msg("%.*s", (int)request->length, request->bytes);
    assert_memory_equal(request->bytes + strlen(head), body, body_bytes);
}

static void test_v1_request_carries_the_bytes_of_x(void **state)
{
    (void)state;
    static const char x[] = "abcdefghijkl"; /* [2, 3] bf16 */
    struct dk_bench_request request;
    struct dk_error error;
    assert_int_equal(
        dk_bench_request_init(&target, DK_BENCH_V1, &model, NULL, 2, DK_BF16, x, &request, &error), DK_OK);
    check_bytes(&request,
                "POST /p/v1/matmul?model=gate&dtype=bf16&out_dtype=fp32 HTTP/1.1\r\nHost: h:81\r\n"
                "User-Agent: decomposek/" DK_VERSION "\r\nContent-Type: application/octet-stream\r\n"
                "Accept: application/octet-stream\r\nContent-Length: 12\r\n\r\n",
                x, 12);
    assert_int_equal(request.answer_bytes, 2 * 2 * 4);
    dk_bench_request_deinit(&request);
}

static void test_an_api_key_is_sent(void **state)
{
    (void)state;
    const struct dk_load_http_target with_key = {.host = "h:81", .api_key = "secret-key"};
    struct dk_bench_request request;
    struct dk_error error;
    assert_int_equal(
        dk_bench_request_init(&with_key, DK_BENCH_V1, &model, NULL, 1, DK_BF16, "abcdef", &request, &error),
        DK_OK);
    static const char line[] = "\r\nAuthorization: Bearer secret-key\r\n";
    assert_non_null(memmem(request.bytes, request.length, line, sizeof line - 1));
    dk_bench_request_deinit(&request);
}

/* The framing of the Open Inference Protocol: JSON, its length in a header, then the tensor. */
static void test_v2_request_is_json_and_the_binary_tensor(void **state)
{
    (void)state;
    static const char x[] = "abcdefghijkl"; /* [1, 3] fp32 */
    static const char json[] = "{\"inputs\":[{\"name\":\"in\",\"shape\":[1,3],\"datatype\":\"FP32\","
                               "\"parameters\":{\"binary_data_size\":12}}],"
                               "\"outputs\":[{\"name\":\"out\",\"parameters\":{\"binary_data\":true}}]}";
    const struct dk_bench_tensor_names names = {"in", "out"};
    struct dk_bench_request request;
    struct dk_error error;
    char head[512];
    assert_int_equal(
        dk_bench_request_init(&target, DK_BENCH_V2, &model, &names, 1, DK_FP32, x, &request, &error), DK_OK);
    snprintf(head, sizeof head,
             "POST /p/v2/models/gate/infer HTTP/1.1\r\nHost: h:81\r\nUser-Agent: decomposek/" DK_VERSION
             "\r\nContent-Type: application/octet-stream\r\nInference-Header-Content-Length: %zu\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             sizeof json - 1, sizeof json - 1 + 12, json);
    check_bytes(&request, head, x, 12);
    assert_int_equal(request.answer_bytes, 2 * 4);
    dk_bench_request_deinit(&request);
}

static void test_sizes_that_overflow_are_refused(void **state)
{
    (void)state;
    struct dk_bench_request request;
    struct dk_error error = {0};
    assert_int_equal(dk_bench_request_init(&target, DK_BENCH_V1, &model, NULL, UINT64_MAX / 2, DK_FP32, "",
                                           &request, &error),
                     DK_NO_MEMORY);
    assert_null(dk_bench_make_rows(UINT64_MAX / 2, 3, DK_FP32, 1));
}

static void test_rows_are_seeded_and_finite(void **state)
{
    (void)state;
    static const dk_dtype dtypes[] = {DK_FP32, DK_BF16, DK_FP16};
    for (size_t d = 0; d < 3; d++) {
        size_t bytes = 600 * dk_dtype_bytes(dtypes[d]);
        void *a = dk_bench_make_rows(2, 300, dtypes[d], 1), *b = dk_bench_make_rows(2, 300, dtypes[d], 1);
        void *c = dk_bench_make_rows(2, 300, dtypes[d], 2);
        float values[600];
        assert_memory_equal(a, b, bytes);
        assert_memory_not_equal(a, c, bytes);
        dk_convert_to_float(a, dtypes[d], values, 600);
        for (int i = 0; i < 600; i++)
            assert_true(values[i] > -7 && values[i] < 7);
        free(a);
        free(b);
        free(c);
    }
}

static void check_names(const char *metadata, dk_status expected, const char *part)
{
    const struct stub_answer answers[] = {{.head = "200 OK\r\nContent-Type: application/json",
                                           .body = metadata,
                                           .body_bytes = strlen(metadata),
                                           .expects = "GET /v2/models/gate HTTP"}};
    struct stub_server server = stub_start(answers, 1);
    const struct dk_http_options options = {.url = server.url, .timeout_s = 5};
    struct dk_http_client *client;
    struct dk_bench_tensor_names names = {"", ""};
    struct dk_error error = {0};
    assert_int_equal(dk_http_client_new(&options, &client, &error), DK_OK);
    assert_int_equal(dk_bench_tensor_names_get(client, "gate", &names, &error), expected);
    if (expected == DK_OK) {
        assert_string_equal(names.input, "x");
        assert_string_equal(names.output, "logits");
    } else {
        check_contains(error.message, part);
    }
    dk_http_client_free(client);
    stub_finish(&server);
}

static void test_tensor_names_come_from_the_metadata(void **state)
{
    (void)state;
    check_names("{\"name\":\"gate\",\"inputs\":[{\"name\":\"x\"}],\"outputs\":[{\"name\":\"logits\"},{"
                "\"name\":\"ids\"}]}",
                DK_OK, "");
    check_names("{\"inputs\":[{\"name\":\"x\"},{\"name\":\"z\"}],\"outputs\":[{\"name\":\"y\"}]}",
                DK_UNSUPPORTED, "2 inputs");
    check_names("{\"inputs\":[{\"name\":7}],\"outputs\":[{\"name\":\"y\"}]}", DK_BAD_JSON, "input");
    check_names("{\"inputs\":[{\"name\":\"x\"}],\"outputs\":[]}", DK_BAD_JSON, "output");
}

static void test_answers_that_differ_or_are_not_finite_are_found(void **state)
{
    (void)state;
    float answers[3][2][2] = {{{1, 2}, {3, 4}}, {{1, 2}, {3, 4}}, {{1, 2}, {3, 4}}};
    struct dk_error error = {0};
    assert_int_equal(dk_bench_check_answers(&answers[0][0][0], 3, 2, 2, &error), DK_OK);
    answers[2][1][0] = 3.5f;
    assert_int_equal(dk_bench_check_answers(&answers[0][0][0], 3, 2, 2, &error), DK_INTERNAL);
    check_contains(error.message, "y[1][0] is 3 and then 3.5");
    answers[0][0][1] = 1.0f / 0.0f;
    assert_int_equal(dk_bench_check_answers(&answers[0][0][0], 3, 2, 2, &error), DK_INTERNAL);
    check_contains(error.message, "y[0][1] is inf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_v1_request_carries_the_bytes_of_x),
        cmocka_unit_test(test_an_api_key_is_sent),
        cmocka_unit_test(test_v2_request_is_json_and_the_binary_tensor),
        cmocka_unit_test(test_sizes_that_overflow_are_refused),
        cmocka_unit_test(test_rows_are_seeded_and_finite),
        cmocka_unit_test(test_tensor_names_come_from_the_metadata),
        cmocka_unit_test(test_answers_that_differ_or_are_not_finite_are_found),
    };
    curl_global_init(CURL_GLOBAL_DEFAULT);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    curl_global_cleanup();
    return failed;
}
