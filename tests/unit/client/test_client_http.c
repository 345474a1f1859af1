/* test_client_http.c: answers, error answers, limits and time-outs of the HTTP client. */
#include "tests/unit/client/stub_server.h"

#include "client/http_client.h"

#define JSON_200   "200 OK\r\nContent-Type: application/json"
#define TEXT(text) (text), sizeof(text) - 1

static struct dk_http_client *connect_to(const char *url, const char *unix_socket, double timeout_s)
{
    const struct dk_http_options options = {.url = url, .unix_socket = unix_socket, .timeout_s = timeout_s};
    struct dk_http_client *client = NULL;
    assert_int_equal(dk_http_client_new(&options, &client, NULL), DK_OK);
    return client;
}

static const struct dk_http_request get_a = {.method = "GET", .path = "/a", .max_answer_bytes = 100};

static void test_connection_is_kept_and_headers_are_seen(void **state)
{
    (void)state;
    /* The stub goes on to the next connection only when the client closes one: both requests on one proves
     * keep-alive, because the stub exits after the second answer. */
    const struct stub_answer answers[] = {
        {JSON_200 "\r\nX-Thing: 7", TEXT("{}"), false, "GET /a HTTP/1.1\r\n"},
        {JSON_200, TEXT("[1]"), false, "POST /b?c=d HTTP/1.1\r\n"},
    };
    struct stub_server server = stub_start(answers, 2);
    struct dk_http_client *client = connect_to(server.url, NULL, 5);
    struct dk_http_response response;
    assert_int_equal(dk_http_client_send(client, &get_a, &response, NULL), DK_OK);
    assert_string_equal(response.body, "{}");
    assert_int_equal(response.body_bytes, 2);
    assert_true(response.round_trip_ns > 0);
    assert_string_equal(dk_http_client_header(client, "x-thing"), "7");
    assert_null(dk_http_client_header(client, "X-Other"));
    dk_http_response_deinit(&response);
    const struct dk_http_request post = {.method = "POST",
                                         .path = "/b?c=d",
                                         .content_type = "application/octet-stream",
                                         .body = "\0\1\2",
                                         .body_bytes = 3,
                                         .max_answer_bytes = 100};
    assert_int_equal(dk_http_client_send(client, &post, &response, NULL), DK_OK);
    assert_string_equal(response.body, "[1]");
    dk_http_response_deinit(&response);
    stub_finish(&server);
    dk_http_client_free(client);
}

static void test_api_key_is_sent_with_every_request(void **state)
{
    (void)state;
    char key[257] = "", header[300];
    memset(key, 'k', 256);
    snprintf(header, sizeof header, "\r\nAuthorization: Bearer %s\r\n", key);
    const struct stub_answer answers[] = {{JSON_200, TEXT("{}"), false, header},
                                          {JSON_200, TEXT("{}"), false, header}};
    struct stub_server server = stub_start(answers, 2);
    const struct dk_http_options options = {.url = server.url, .api_key = key, .timeout_s = 5};
    struct dk_http_client *client = NULL;
    assert_int_equal(dk_http_client_new(&options, &client, NULL), DK_OK);
    for (int i = 0; i < 2; i++) {
        struct dk_http_response response;
        assert_int_equal(dk_http_client_send(client, &get_a, &response, NULL), DK_OK);
        dk_http_response_deinit(&response);
    }
    stub_finish(&server);
    dk_http_client_free(client);
}

static void test_empty_body_is_sent_with_length_zero(void **state)
{
    (void)state;
    const struct stub_answer answers[] = {{JSON_200, "", 0, false, "Content-Length: 0\r\n"}};
    struct stub_server server = stub_start(answers, 1);
    struct dk_http_client *client = connect_to(server.url, NULL, 5);
    const struct dk_http_request post = {
        .method = "POST", .path = "/", .content_type = "application/octet-stream", .max_answer_bytes = 0};
    struct dk_http_response response;
    assert_int_equal(dk_http_client_send(client, &post, &response, NULL), DK_OK);
    assert_int_equal(response.body_bytes, 0);
    assert_string_equal(response.body, "");
    dk_http_response_deinit(&response);
    stub_finish(&server);
    dk_http_client_free(client);
}

static void check_error_answer(const char *head, const char *body, dk_status expected, const char *part)
{
    const struct stub_answer answers[] = {{head, body, strlen(body), false, NULL}};
    struct stub_server server = stub_start(answers, 1);
    struct dk_http_client *client = connect_to(server.url, NULL, 5);
    struct dk_http_response response = {.body = (char *)1};
    struct dk_error error = {0};
    assert_int_equal(dk_http_client_send(client, &get_a, &response, &error), expected);
    assert_ptr_equal(response.body, (char *)1); /* untouched */
    check_contains(error.message, part);
    stub_finish(&server);
    dk_http_client_free(client);
}

static void test_error_answers_carry_the_servers_words(void **state)
{
    (void)state;
    check_error_answer("400 Bad Request", "{\"error\": \"x has 3 columns\", \"status\": \"BAD_SHAPE\"}",
                       DK_BAD_SHAPE, "400: x has 3 columns");
    check_error_answer("503 Service Unavailable", "{\"error\":\"full\",\"status\":\"BUSY\"}", DK_BUSY,
                       "full");
    check_error_answer("404 Not Found", "{\"error\":\"no model\"}", DK_NOT_FOUND, "no model");
    check_error_answer("404 Not Found", "<html>proxy</html>", DK_NOT_FOUND, "<html>proxy</html>");
    check_error_answer("500 Oops", "", DK_INTERNAL, "empty body");
    check_error_answer("418 Teapot", "[]", DK_BAD_REQUEST, "418");
    check_error_answer("302 Found\r\nLocation: http://127.0.0.1:1/", "", DK_INTERNAL, "302");
}

static void test_long_answer_is_refused(void **state)
{
    (void)state;
    static char large[200000];
    memset(large, 'x', sizeof large);
    const struct stub_answer answers[] = {{JSON_200, large, sizeof large, false, NULL}};
    struct stub_server server = stub_start(answers, 1);
    struct dk_http_client *client = connect_to(server.url, NULL, 5);
    struct dk_http_response response;
    struct dk_error error;
    assert_int_equal(dk_http_client_send(client, &get_a, &response, &error), DK_TOO_LARGE);
    check_contains(error.message, "100 bytes");
    stub_finish(&server);
    dk_http_client_free(client);
}

static void test_error_text_longer_than_the_answer_limit_is_still_read(void **state)
{
    (void)state;
    char body[400];
    memset(body, ' ', sizeof body);
    memcpy(body, TEXT("{\"error\":\"the reason\"}"));
    body[sizeof body - 1] = 0;
    check_error_answer("400 Bad Request", body, DK_BAD_REQUEST, "the reason");
}

static void test_silent_server_times_out(void **state)
{
    (void)state;
    const struct stub_answer answers[] = {{.is_silent = true}};
    struct stub_server server = stub_start(answers, 1);
    struct dk_http_client *client = connect_to(server.url, NULL, 0.2);
    struct dk_http_response response;
    struct dk_error error;
    assert_int_equal(dk_http_client_send(client, &get_a, &response, &error), DK_TIMEOUT);
    check_contains(error.message, server.url);
    stub_kill(&server);
    dk_http_client_free(client);
}

static void test_nobody_listening_is_unavailable(void **state)
{
    (void)state;
    struct dk_http_client *client = connect_to("http://127.0.0.1:1", NULL, 5);
    struct dk_http_response response;
    struct dk_error error;
    assert_int_equal(dk_http_client_send(client, &get_a, &response, &error), DK_UNAVAILABLE);
    check_contains(error.message, "http://127.0.0.1:1");
    check_contains(error.message, "is decomposekd running?");
    dk_http_client_free(client);
}

static void test_unix_socket_carries_requests(void **state)
{
    (void)state;
    char folder[64];
    make_temporary_folder(folder);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/s", folder);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 4), 0);
    const struct stub_answer answers[] = {{JSON_200, TEXT("{}"), false, "Host: example\r\n"}};
    struct stub_server server = stub_start_on(fd, answers, 1);
    struct dk_http_client *client = connect_to("http://example/", address.sun_path, 5);
    struct dk_http_response response;
    assert_int_equal(dk_http_client_send(client, &get_a, &response, NULL), DK_OK);
    dk_http_response_deinit(&response);
    stub_finish(&server);
    dk_http_client_free(client);
    remove_folder(folder);
}

static void test_environment_proxies_are_not_used(void **state)
{
    (void)state;
    assert_int_equal(setenv("http_proxy", "http://127.0.0.1:1", 1), 0);
    const struct stub_answer answers[] = {{JSON_200, TEXT("{}"), false, "GET /prefix/a HTTP/1.1\r\n"}};
    struct stub_server server = stub_start(answers, 1);
    char url[96];
    snprintf(url, sizeof url, "%s/prefix//", server.url);
    struct dk_http_client *client = connect_to(url, NULL, 5);
    struct dk_http_response response;
    assert_int_equal(dk_http_client_send(client, &get_a, &response, NULL), DK_OK);
    dk_http_response_deinit(&response);
    assert_int_equal(unsetenv("http_proxy"), 0);
    stub_finish(&server);
    dk_http_client_free(client);
}

static void test_bad_urls_are_quoted(void **state)
{
    (void)state;
    static const char *const urls[] = {"",           "127.0.0.1:8000", "ftp://x",        "https://x",
                                       "http://",    "http://a b",     "http://x:99999", "http://x?q",
                                       "http://x#f", "http://u@x"};
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        const struct dk_http_options options = {.url = urls[i], .timeout_s = 1};
        struct dk_http_client *client = NULL;
        struct dk_error error = {0};
        dk_status status = dk_http_client_new(&options, &client, &error);
        if (status != DK_BAD_VALUE)
            fail_msg("status %s for '%s'", dk_status_name(status), urls[i]);
        check_contains(error.message, urls[i]);
        check_contains(error.message, "expected http");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_connection_is_kept_and_headers_are_seen),
        cmocka_unit_test(test_api_key_is_sent_with_every_request),
        cmocka_unit_test(test_empty_body_is_sent_with_length_zero),
        cmocka_unit_test(test_error_answers_carry_the_servers_words),
        cmocka_unit_test(test_long_answer_is_refused),
        cmocka_unit_test(test_error_text_longer_than_the_answer_limit_is_still_read),
        cmocka_unit_test(test_silent_server_times_out),
        cmocka_unit_test(test_nobody_listening_is_unavailable),
        cmocka_unit_test(test_unix_socket_carries_requests),
        cmocka_unit_test(test_environment_proxies_are_not_used),
        cmocka_unit_test(test_bad_urls_are_quoted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
