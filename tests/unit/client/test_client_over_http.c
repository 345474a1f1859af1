/* test_client_over_http.c: the C client's HTTP side against canned answers: keys, refusals, lateness,
 * distrust. */
#include "tests/unit/client/stub_server.h"

#include "decomposek_client.h"

/* The stub serves one connection at a time, and the client keeps one for lists: each answer closes its own.
 */
#define HEAD(type) "200 OK\r\nConnection: close\r\nContent-Type: " type
#define MODELS                                                                                               \
    "{\"models\":[{\"name\":\"gate\",\"n\":2,\"k\":3,\"dtype\":\"fp32\",\"epilogue\":\"relu\",\"has_bias\":" \
    "true,"                                                                                                  \
    "\"version\":4,\"new\":[1]}]}"
#define TEXT(text) (text), sizeof(text) - 1
#define LIST                                                                                                 \
    {                                                                                                        \
        HEAD("application/json"), TEXT(MODELS), false, "GET /v1/models "                                     \
    }
#define ANSWER(y)                                                                                            \
    {                                                                                                        \
        HEAD("application/octet-stream\r\nX-Decomposek-Timing-Us: queue=1.5 kernel=20 total=30 new=1"), (y), \
            sizeof(y), false, "POST /v1/matmul?model=gate&dtype=fp32&out_dtype=fp32 "                        \
    }
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static const float x[3] = {1, 2, 0.5F};
static const float y[2] = {0.25F, -7};

static struct dk_client *open_at(const struct stub_server *server, const char *key, uint32_t timeout_ms)
{
    const struct dk_client_options options = {.api_key = key, .timeout_ms = timeout_ms};
    struct dk_client *client = NULL;
    struct dk_error error = {0};
    if (dk_client_open(server->url, &options, &client, &error) != DK_OK)
        fail_msg("%s", error.message);
    return client;
}

static struct dk_client_model *open_gate(struct dk_client *client)
{
    struct dk_client_model *model = NULL;
    struct dk_error error = {0};
    if (dk_client_model_open(client, "gate", &model, &error) != DK_OK)
        fail_msg("%s", error.message);
    return model;
}

static dk_status infer(struct dk_client_model *model, float c[2], struct dk_client_timing *timing,
                       struct dk_error *error)
{
    const struct dk_client_request request = {.rows = 1, .a = x, .c = c};
    return dk_client_infer(model, &request, timing, error);
}

static void test_a_product_with_its_timing(void **state)
{
    (void)state;
    const struct stub_answer answers[] = {LIST, LIST, ANSWER(y)};
    struct stub_server server = stub_start(answers, COUNT(answers));
    struct dk_client *client = open_at(&server, NULL, 5000);
    struct dk_client_model *model = open_gate(client);
    const struct dk_client_model_info *info = dk_client_model_get_info(model);
    assert_true(info->n == 2 && info->k == 3 && info->dtype == DK_FP32 && info->has_bias);
    assert_true(info->epilogue == DK_EPILOGUE_RELU && info->version == 4);
    float c[2] = {0};
    struct dk_client_timing timing;
    assert_int_equal(infer(model, c, &timing, NULL), DK_OK);
    assert_memory_equal(c, y, sizeof y);
    assert_int_equal(timing.queue_ns, 1500);
    assert_int_equal(timing.kernel_ns, 20000);
    assert_int_equal(timing.server_ns, 30000);
    dk_client_close(client);
    stub_finish(&server);
}

static void test_the_key_goes_with_every_request(void **state)
{
    (void)state;
    struct stub_answer answers[] = {LIST, LIST, ANSWER(y)};
    for (size_t i = 0; i < COUNT(answers); i++)
        answers[i].expects = "\r\nAuthorization: Bearer s3cret\r\n";
    struct stub_server server = stub_start(answers, COUNT(answers));
    struct dk_client *client = open_at(&server, "s3cret", 5000);
    float c[2];
    assert_int_equal(infer(open_gate(client), c, NULL, NULL), DK_OK);
    dk_client_close(client);
    stub_finish(&server);
    struct dk_client *none = NULL;
    struct dk_error error;
    const struct dk_client_options options = {.api_key = "a\r\nX: b"};
    assert_int_equal(dk_client_open("http://127.0.0.1:1", &options, &none, &error), DK_BAD_VALUE);
}

static void test_refusals_at_the_door_keep_their_status(void **state)
{
    (void)state;
    static const struct {
        struct stub_answer answer;
        dk_status status;
    } cases[] = {
        {{"401 Unauthorized", TEXT("{\"error\":\"no key\",\"status\":\"UNAUTHORIZED\"}"), false, NULL},
         DK_UNAUTHORIZED},
        {{HEAD("application/json"), TEXT("{}"), false, NULL}, DK_BAD_JSON},
        {{HEAD("application/json"), TEXT("{\"models\":[{\"name\":\"a b\"}]}"), false, NULL}, DK_BAD_JSON},
        {{HEAD("application/json"), TEXT("{\"models\":[{\"name\":\"a\",\"n\":0,\"k\":1}]}"), false, NULL},
         DK_BAD_JSON},
        {{HEAD("text/html"), TEXT("<html>"), false, NULL}, DK_BAD_JSON},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct stub_server server = stub_start(&cases[i].answer, 1);
        struct dk_client *client = NULL;
        struct dk_error error;
        dk_status status = dk_client_open(server.url, NULL, &client, &error);
        if (status != cases[i].status || client)
            fail_msg("case %zu: %s", i, dk_status_name(status));
        stub_finish(&server);
    }
}

static void test_an_answer_of_the_wrong_size_leaves_c_alone(void **state)
{
    (void)state;
    static const float three[3] = {1, 2, 3};
    static const struct stub_answer answers[] = {
        LIST,
        LIST,
        ANSWER(three),
        {HEAD("application/octet-stream"), TEXT("1234"), false, NULL},
        {HEAD("application/json"), TEXT("{}"), false, NULL},
        {"404 Not Found\r\nConnection: close",
         TEXT("{\"error\":\"no model 'gate'\",\"status\":\"NOT_FOUND\"}"), false, NULL}};
    static const dk_status statuses[] = {DK_TOO_LARGE, DK_BAD_SHAPE, DK_UNSUPPORTED_MEDIA, DK_NOT_FOUND};
    struct stub_server server = stub_start(answers, COUNT(answers));
    struct dk_client *client = open_at(&server, NULL, 5000);
    struct dk_client_model *model = open_gate(client);
    for (size_t i = 0; i < COUNT(statuses); i++) {
        float c[2] = {5, 5};
        struct dk_error error;
        dk_status status = infer(model, c, NULL, &error);
        if (status != statuses[i])
            fail_msg("answer %zu: %s, %s", i, dk_status_name(status), error.message);
        assert_true(c[0] == 5 && c[1] == 5);
    }
    dk_client_close(client);
    stub_finish(&server);
}

static void test_a_silent_server_is_a_timeout(void **state)
{
    (void)state;
    const struct stub_answer answers[] = {LIST, LIST, {NULL, NULL, 0, true, "POST "}};
    struct stub_server server = stub_start(answers, COUNT(answers));
    struct dk_client *client = open_at(&server, NULL, 5000);
    struct dk_client_model *model = open_gate(client);
    float c[2] = {5, 5};
    struct dk_error error;
    void *a;
    assert_int_equal(dk_client_buffer_acquire(client, sizeof x, &a, NULL), DK_OK);
    memcpy(a, x, sizeof x);
    const struct dk_client_request request = {.rows = 1, .a = a, .c = c, .timeout_ms = 50, .user_data = c};
    assert_int_equal(dk_client_infer(model, &request, NULL, &error), DK_TIMEOUT);
    /* In flight: more than there are connections, the direct buffer released under them. */
    for (int i = 0; i < 12; i++)
        assert_int_equal(dk_client_submit(model, &request, NULL), DK_OK);
    dk_client_buffer_release(client, a);
    for (size_t total = 0, count; total < 12; total += count) {
        struct dk_client_completion done[12];
        assert_int_equal(dk_client_wait(client, 0, done, 12, &count, &error), DK_OK);
        for (size_t i = 0; i < count; i++)
            assert_true(done[i].status == DK_TIMEOUT && done[i].user_data == c);
    }
    assert_true(c[0] == 5);
    const struct dk_client_request last = {.rows = 1, .a = x, .c = c};
    assert_int_equal(dk_client_submit(model, &last, NULL), DK_OK); /* closed in flight */
    dk_client_close(client);
    stub_kill(&server);
}

static void test_a_server_that_is_gone_fails_the_request_only(void **state)
{
    (void)state;
    const struct stub_answer answers[] = {LIST, LIST};
    struct stub_server server = stub_start(answers, COUNT(answers));
    struct dk_client *client = open_at(&server, NULL, 5000);
    struct dk_client_model *model = open_gate(client);
    stub_finish(&server);
    float c[2];
    struct dk_error error;
    struct dk_client_info info;
    assert_int_equal(infer(model, c, NULL, &error), DK_UNAVAILABLE);
    check_contains(error.message, server.url);
    dk_client_get_info(client, &info);
    assert_true(info.is_connected);
    assert_string_equal(info.transport, "http");
    assert_int_equal(dk_client_reconnect(client, &error), DK_UNAVAILABLE);
    assert_int_equal(infer(model, c, NULL, &error), DK_UNAVAILABLE);
    dk_client_close(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_product_with_its_timing),
        cmocka_unit_test(test_the_key_goes_with_every_request),
        cmocka_unit_test(test_refusals_at_the_door_keep_their_status),
        cmocka_unit_test(test_an_answer_of_the_wrong_size_leaves_c_alone),
        cmocka_unit_test(test_a_silent_server_is_a_timeout),
        cmocka_unit_test(test_a_server_that_is_gone_fails_the_request_only),
    };
    return cmocka_run_group_tests_name("client over http", tests, NULL, NULL);
}
