/* test_client_remote.c: finding a model, sending rows, and distrust of the answer's size and shape. */
#include "tests/unit/client/stub_server.h"

#include <math.h>

#include "client/remote.h"

#define JSON_200   "200 OK\r\nContent-Type: application/json"
#define RAW_200    "200 OK\r\nContent-Type: application/octet-stream"
#define TEXT(text) (text), sizeof(text) - 1

static const struct dk_remote_model model = {.name = "gate", .n = 2, .k = 3, .dtype = DK_FP32};
static const float x[3] = {1, 2, 0.5F};
static const float y[2] = {0.25F, -7};

static struct dk_http_client *connect_to(const struct stub_server *server)
{
    const struct dk_http_options options = {.url = server->url, .timeout_s = 5};
    struct dk_http_client *client = NULL;
    assert_int_equal(dk_http_client_new(&options, &client, NULL), DK_OK);
    return client;
}

/* --- models -------------------------------------------------------------------------------------------- */

static dk_status find(const char *answer, const char *name, struct dk_remote_model *out,
                      struct dk_error *error)
{
    const struct stub_answer answers[] = {{JSON_200, answer, strlen(answer), false, "GET /v1/models "}};
    struct stub_server server = stub_start(answers, 1);
    struct dk_http_client *client = connect_to(&server);
    dk_status status = dk_remote_find_model(client, name, out, error);
    stub_finish(&server);
    dk_http_client_free(client);
    return status;
}

static void test_model_is_found_among_others_and_unknown_members(void **state)
{
    (void)state;
    struct dk_remote_model found;
    assert_int_equal(find("{\"models\":[{\"name\":\"a\"},{\"new\":[1],\"name\":\"gate\",\"n\":256,\"k\":7168,"
                          "\"dtype\":\"bf16\",\"source\":null}],\"more\":{}}",
                          "gate", &found, NULL),
                     DK_OK);
    assert_string_equal(found.name, "gate");
    assert_int_equal(found.n, 256);
    assert_int_equal(found.k, 7168);
    assert_int_equal(found.dtype, DK_BF16);
}

static void test_unknown_model_lists_the_served_ones(void **state)
{
    (void)state;
    struct dk_remote_model found = {.n = 77};
    struct dk_error error;
    assert_int_equal(find("{\"models\":[{\"name\":\"a\"},{\"name\":\"b\"}]}", "c", &found, &error),
                     DK_NOT_FOUND);
    check_contains(error.message, "'c'; served: a, b");
    assert_int_equal(find("{\"models\":[]}", "c", &found, &error), DK_NOT_FOUND);
    check_contains(error.message, "none");
    char many[8192] = "{\"models\":[";
    for (int i = 0; i < 100; i++)
        snprintf(many + strlen(many), 64, "%s{\"name\":\"a-rather-long-name-%d\"}", i ? "," : "", i);
    strcat(many, "]}");
    assert_int_equal(find(many, "c", &found, &error), DK_NOT_FOUND);
    check_contains(error.message, ", ...");
    assert_int_equal(found.n, 77);
}

static void test_useless_entries_and_answers_are_refused(void **state)
{
    (void)state;
    static const char *const answers[] = {
        "{\"models\":[{\"name\":\"gate\",\"k\":3,\"dtype\":\"fp32\"}]}",
        "{\"models\":[{\"name\":\"gate\",\"n\":0,\"k\":3,\"dtype\":\"fp32\"}]}",
        "{\"models\":[{\"name\":\"gate\",\"n\":1.5,\"k\":3,\"dtype\":\"fp32\"}]}",
        "{\"models\":[{\"name\":\"gate\",\"n\":1e300,\"k\":3,\"dtype\":\"fp32\"}]}",
        "{\"models\":[{\"name\":\"gate\",\"n\":1,\"k\":\"3\",\"dtype\":\"fp32\"}]}",
        "{\"models\":[{\"name\":\"gate\",\"n\":1,\"k\":3,\"dtype\":\"fp99\"}]}",
        "[]",
        "<html>",
        "{\"models\":[]} trailing",
        "",
    };
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        struct dk_remote_model found;
        struct dk_error error;
        dk_status status = find(answers[i], "gate", &found, &error);
        if (status != DK_BAD_JSON)
            fail_msg("status %s for %s", dk_status_name(status), answers[i]);
    }
}

static void test_bad_model_name_is_refused_before_asking(void **state)
{
    (void)state;
    struct dk_remote_model found;
    struct dk_error error;
    assert_int_equal(dk_remote_find_model(NULL, "a/../b", &found, &error), DK_BAD_VALUE);
    check_contains(error.message, "a/../b");
}

/* --- products ------------------------------------------------------------------------------------------ */

static struct dk_remote_request make_request(bool is_json)
{
    return (struct dk_remote_request){
        .model = &model, .rows = 1, .x = x, .dtype = DK_FP32, .out_dtype = DK_FP32, .is_json = is_json};
}

static dk_status multiply(const struct dk_remote_request *request, const struct stub_answer *answer,
                          struct dk_remote_reply *out, struct dk_error *error)
{
    struct stub_server server = stub_start(answer, 1);
    struct dk_http_client *client = connect_to(&server);
    struct dk_remote_call call;
    assert_int_equal(dk_remote_call_init(request, &call, NULL), DK_OK);
    dk_status status = dk_remote_matmul(client, &call, out, error);
    dk_remote_call_deinit(&call);
    stub_finish(&server);
    dk_http_client_free(client);
    return status;
}

static void test_raw_answer_with_its_headers(void **state)
{
    (void)state;
    const struct stub_answer answer = {
        RAW_200 "\r\nX-Decomposek-Shape: 1,2\r\nX-Decomposek-Dtype: fp32\r\n"
                "X-Decomposek-Timing-Us: queue=1.500 kernel=20.250 total=30.000\r\n"
                "X-Decomposek-Plan: bucket=4 variant=avx2 split_k=16 pieces=1 backend=cpu",
        y, sizeof y, false,
        "POST /v1/matmul?model=gate&dtype=fp32&out_dtype=fp32&epilogue=relu HTTP/1.1\r\n"};
    struct dk_remote_request request = make_request(false);
    request.has_epilogue = true;
    request.epilogue = DK_EPILOGUE_RELU;
    struct dk_remote_reply reply;
    assert_int_equal(multiply(&request, &answer, &reply, NULL), DK_OK);
    assert_memory_equal(reply.y, y, sizeof y);
    assert_int_equal(reply.y_bytes, sizeof y);
    assert_true(reply.timing.queue_us == 1.5 && reply.timing.kernel_us == 20.25 &&
                reply.timing.total_us == 30);
    assert_true(reply.timing.round_trip_us > 0);
    assert_int_equal(reply.plan.bucket, 4);
    assert_int_equal(reply.plan.split_k, 16);
    assert_int_equal(reply.plan.pieces, 1);
    assert_string_equal(reply.plan.variant, "avx2");
    assert_string_equal(reply.plan.backend, "cpu");
    dk_remote_reply_deinit(&reply);
}

static void test_raw_answer_without_headers_is_known_by_size(void **state)
{
    (void)state;
    const struct stub_answer answer = {RAW_200, y, sizeof y, false, NULL};
    const struct dk_remote_request request = make_request(false);
    struct dk_remote_reply reply;
    assert_int_equal(multiply(&request, &answer, &reply, NULL), DK_OK);
    assert_true(isnan(reply.timing.kernel_us));
    assert_string_equal(reply.plan.variant, "");
    dk_remote_reply_deinit(&reply);
}

static void check_refused(const struct dk_remote_request *request, const char *head, const void *body,
                          size_t bytes, dk_status expected, const char *part)
{
    const struct stub_answer answer = {head, body, bytes, false, NULL};
    struct dk_remote_reply reply = {.rows = 77};
    struct dk_error error = {0};
    dk_status status = multiply(request, &answer, &reply, &error);
    if (status != expected)
        fail_msg("%s instead of %s: %s", dk_status_name(status), dk_status_name(expected), error.message);
    check_contains(error.message, part);
    assert_int_equal(reply.rows, 77);
}

static void test_raw_answers_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const struct dk_remote_request request = make_request(false);
    check_refused(&request, RAW_200, y, sizeof y - 1, DK_BAD_SHAPE, "7 bytes");
    check_refused(&request, RAW_200, "123456789", 9, DK_TOO_LARGE, "8 bytes");
    check_refused(&request, RAW_200 "\r\nX-Decomposek-Shape: 2,2", y, sizeof y, DK_BAD_SHAPE, "[2,2]");
    check_refused(&request, RAW_200 "\r\nX-Decomposek-Shape: 1,2,3", y, sizeof y, DK_BAD_SHAPE, "[1,2,3]");
    check_refused(&request, RAW_200 "\r\nX-Decomposek-Shape: 1", y, sizeof y, DK_BAD_SHAPE, "[1]");
    check_refused(&request, RAW_200 "\r\nX-Decomposek-Dtype: bf16", y, sizeof y, DK_BAD_DTYPE, "bf16");
    check_refused(&request, JSON_200, y, sizeof y, DK_UNSUPPORTED_MEDIA, "application/json");
}

#define GOOD_TAIL                                                                                            \
    ",\"timing_us\":{\"queue\":1,\"kernel\":2.5,\"total\":4},\"plan\":{\"bucket\":1,\"variant\":\"v\"}}"

static void test_json_body_and_answer(void **state)
{
    (void)state;
    const struct stub_answer answer = {
        JSON_200, TEXT("{\"shape\":[1,2],\"y\":[[0.25,null]]" GOOD_TAIL), false,
        "{\"model\":\"gate\",\"dtype\":\"fp32\",\"out_dtype\":\"fp32\",\"x\":[[1,2,0.5]]}"};
    const struct dk_remote_request request = make_request(true);
    struct dk_remote_reply reply;
    assert_int_equal(multiply(&request, &answer, &reply, NULL), DK_OK);
    const float *values = reply.y;
    assert_true(values[0] == 0.25F && isnan(values[1])); /* null stands for what JSON cannot carry */
    assert_true(reply.timing.kernel_us == 2.5);
    assert_string_equal(reply.plan.variant, "v");
    dk_remote_reply_deinit(&reply);
}

static void test_json_answers_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const struct dk_remote_request request = make_request(true);
    static const char *const bodies[] = {"{\"shape\":[1,3],\"y\":[[1,2,3]]}",
                                         "{\"shape\":[2,2],\"y\":[[1,2],[3,4]]}",
                                         "{\"shape\":[1,2],\"y\":[[1]]}",
                                         "{\"shape\":[1,2],\"y\":[[1,2,3]]}",
                                         "{\"shape\":[1,2],\"y\":[[1,2],[3,4]]}",
                                         "{\"shape\":[1,2],\"y\":[]}",
                                         "{\"shape\":[1,2],\"y\":[1,2]}",
                                         "{\"shape\":[1,2],\"y\":[[1,\"2\"]]}",
                                         "{\"shape\":[1,2]}",
                                         "{\"y\":[[1,2]]}",
                                         "{\"shape\":[1],\"y\":[[1,2]]}"};
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
        check_refused(&request, JSON_200, bodies[i], strlen(bodies[i]), DK_BAD_SHAPE, "shape");
    check_refused(&request, JSON_200, TEXT("{\"shape\""), DK_BAD_JSON, "JSON");
}

static void test_zero_rows_are_a_request_too(void **state)
{
    (void)state;
    struct dk_remote_request request = make_request(false);
    request.rows = 0;
    const struct stub_answer raw = {RAW_200 "\r\nX-Decomposek-Shape: 0,2", "", 0, false,
                                    "Content-Length: 0\r\n"};
    struct dk_remote_reply reply;
    assert_int_equal(multiply(&request, &raw, &reply, NULL), DK_OK);
    assert_int_equal(reply.rows, 0);
    dk_remote_reply_deinit(&reply);
    request.is_json = true;
    const struct stub_answer json = {JSON_200, TEXT("{\"shape\":[0,2],\"y\":[]" GOOD_TAIL), false,
                                     "\"x\":[]}"};
    assert_int_equal(multiply(&request, &json, &reply, NULL), DK_OK);
    dk_remote_reply_deinit(&reply);
}

static void test_nan_cannot_go_into_a_json_body(void **state)
{
    (void)state;
    const float bad[3] = {1, NAN, 3};
    struct dk_remote_request request = make_request(true);
    request.x = bad;
    struct dk_remote_call call;
    struct dk_error error;
    assert_int_equal(dk_remote_call_init(&request, &call, &error), DK_BAD_VALUE);
    check_contains(error.message, "1 NaN");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model_is_found_among_others_and_unknown_members),
        cmocka_unit_test(test_unknown_model_lists_the_served_ones),
        cmocka_unit_test(test_useless_entries_and_answers_are_refused),
        cmocka_unit_test(test_bad_model_name_is_refused_before_asking),
        cmocka_unit_test(test_raw_answer_with_its_headers),
        cmocka_unit_test(test_raw_answer_without_headers_is_known_by_size),
        cmocka_unit_test(test_raw_answers_that_do_not_fit_are_refused),
        cmocka_unit_test(test_json_body_and_answer),
        cmocka_unit_test(test_json_answers_that_do_not_fit_are_refused),
        cmocka_unit_test(test_zero_rows_are_a_request_too),
        cmocka_unit_test(test_nan_cannot_go_into_a_json_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
