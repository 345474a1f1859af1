/* test_client_load_http.c: the generator's HTTP over real sockets: good answers, refusals, broken servers. */
#include "tests/unit/client/load_server.h"

#include <curl/curl.h>

#include "client/load_http.h"

#define REQUEST_HEAD "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n"
static const char request[] = REQUEST_HEAD "body";

static struct load_answer answer_of(const char *bytes)
{
    return (struct load_answer){.bytes = bytes, .length = strlen(bytes)};
}

static struct dk_load_http http_to(const struct stub_server *server, struct dk_load_http_target *target)
{
    struct dk_error error = {0};
    const struct dk_http_options options = {.url = server->url, .timeout_s = 5};
    if (dk_load_http_resolve(&options, target, &error) != DK_OK)
        fail_msg("%s", error.message);
    return (struct dk_load_http){.target = target,
                                 .request = request,
                                 .request_bytes = sizeof request - 1,
                                 .answer_bytes = 8,
                                 .timeout_s = 5};
}

static struct dk_load_result run(const struct load_answer *answer, uint32_t slot_count)
{
    static struct dk_load_result result;
    struct dk_load_http_target target;
    struct stub_server server = load_server_start(answer);
    struct dk_load_http http = http_to(&server, &target);
    struct dk_load_transport transport = dk_load_http_transport;
    transport.context = &http;
    const struct dk_load_plan plan = {.transport = &transport,
                                      .thread_count = slot_count > 1 ? 2 : 1,
                                      .slot_count = slot_count,
                                      .warmup_s = 0.001,
                                      .duration_s = 0.2,
                                      .timeout_s = 2};
    struct dk_error error = {0};
    /* On a busy machine nothing may come back in one window: then another. */
    for (int turn = 0; turn < 50; turn++) {
        if (dk_load_run(&plan, &result, &error) != DK_OK)
            fail_msg("%s", error.message);
        if (result.codes[DK_OK] + result.failed_count > 2)
            break;
    }
    stub_kill(&server);
    return result;
}

/* All requests ended in one way, and there were some. */
static void check_all(const struct dk_load_result *result, uint32_t code)
{
    for (uint32_t i = 0; i < DK_LOAD_CODE_COUNT; i++)
        if ((result->codes[i] > 0) != (i == code)) {
            char name[32];
            dk_load_code_name(i, name);
            fail_msg("%s x %llu", name, (unsigned long long)result->codes[i]);
        }
}

static void test_good_answers_over_several_connections(void **state)
{
    (void)state;
    const struct load_answer answer = answer_of(
        "HTTP/1.1 200 OK\r\nX-Decomposek-Timing-Us: kernel=0.001\r\nContent-Length: 8\r\n\r\n12345678");
    struct dk_load_result result = run(&answer, 5);
    check_all(&result, DK_OK);
    assert_int_equal(result.kernel.max_ns, 1);
    assert_int_equal(result.latency.count, result.codes[DK_OK]);
}

static void test_an_answer_in_small_pieces_is_put_together(void **state)
{
    (void)state;
    struct load_answer answer = answer_of("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n12345678");
    answer.piece_bytes = 7;
    struct dk_load_result result = run(&answer, 1);
    check_all(&result, DK_OK);
}

static void test_inference_headers_are_not_part_of_the_answer(void **state)
{
    (void)state;
    const struct load_answer answer = answer_of(
        "HTTP/1.1 200 OK\r\nInference-Header-Content-Length: 3\r\nContent-Length: 11\r\n\r\n{ }12345678");
    struct dk_load_result result = run(&answer, 1);
    check_all(&result, DK_OK);
}

static void test_refusals_are_counted_by_their_status(void **state)
{
    (void)state;
    const struct load_answer answer = answer_of("HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\n{}");
    struct dk_load_result result = run(&answer, 2);
    check_all(&result, 503);
}

static void test_answers_of_another_size_are_bad(void **state)
{
    (void)state;
    const struct load_answer answer = answer_of("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n1234567");
    struct dk_load_result result = run(&answer, 1);
    check_all(&result, DK_LOAD_BAD_REPLY);
}

static void test_more_bytes_than_announced_are_bad(void **state)
{
    (void)state;
    const struct load_answer answer = answer_of("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n123456789");
    struct dk_load_result result = run(&answer, 1);
    assert_int_equal(result.codes[DK_OK], 0);
    assert_true(result.codes[DK_LOAD_BAD_REPLY] > 0);
}

static void test_what_is_not_http_is_bad(void **state)
{
    (void)state;
    const struct load_answer answer = answer_of("SSH-2.0-OpenSSH_9.2\r\n\r\n");
    struct dk_load_result result = run(&answer, 1);
    assert_int_equal(result.codes[DK_OK], 0);
    assert_true(result.codes[DK_LOAD_BAD_REPLY] > 0);
}

static void test_a_connection_lost_in_an_answer_is_counted_and_made_again(void **state)
{
    (void)state;
    struct load_answer answer = answer_of("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n1234");
    answer.close_after = 1;
    struct dk_load_result result = run(&answer, 2);
    check_all(&result, DK_LOAD_CONNECTION);
    assert_true(result.codes[DK_LOAD_CONNECTION] > 2);
}

static void test_announced_closing_is_no_failure(void **state)
{
    (void)state;
    struct load_answer answer =
        answer_of("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 8\r\n\r\n12345678");
    answer.close_after = 1;
    struct dk_load_result result = run(&answer, 2);
    check_all(&result, DK_OK);
}

/* A refusal that comes before the whole body was sent is still read. */
static void test_an_early_refusal_of_a_large_body_is_read(void **state)
{
    (void)state;
    static char large[8 << 20];
    struct load_answer answer =
        answer_of("HTTP/1.1 413 Too large\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}");
    answer.is_early = true;
    struct dk_load_http_target target;
    struct stub_server server = load_server_start(&answer);
    struct dk_load_http http = http_to(&server, &target);
    memcpy(large, REQUEST_HEAD, sizeof REQUEST_HEAD - 1);
    http.request = large;
    http.request_bytes = sizeof large;
    char out[8];
    struct dk_error error = {0};
    assert_int_equal(dk_load_http_fetch(&http, out, &error), DK_BAD_REQUEST);
    check_contains(error.message, "413");
    stub_kill(&server);
}

static void test_fetch_gives_the_answer_or_the_servers_reason(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        dk_status status;
        const char *part; /* of the message; of the answer when OK */
    } rows[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n12345678", DK_OK, "12345678"},
        {"HTTP/1.1 200 OK\r\nInference-Header-Content-Length: 2\r\nContent-Length: 10\r\n\r\n{}12345678",
         DK_OK, "12345678"},
        {"HTTP/1.1 404 No\r\nContent-Length: 21\r\n\r\n{\"error\":\"no 'gate'\"}", DK_NOT_FOUND, "no 'gate'"},
        {"HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\nhtml", DK_UNAVAILABLE, "503"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n123", DK_BAD_SHAPE, "3 bytes, expected 8"},
        {"nonsense\r\n\r\n", DK_INTERNAL, "HTTP/1.1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct load_answer answer = answer_of(rows[i].answer);
        struct dk_load_http_target target;
        struct stub_server server = load_server_start(&answer);
        struct dk_load_http http = http_to(&server, &target);
        char out[9] = {0};
        struct dk_error error = {0};
        assert_int_equal(dk_load_http_fetch(&http, out, &error), rows[i].status);
        check_contains(rows[i].status == DK_OK ? out : error.message, rows[i].part);
        stub_kill(&server);
    }
}

static void test_a_server_that_is_gone_is_an_error_or_a_failure(void **state)
{
    (void)state;
    const struct load_answer answer = answer_of("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n12345678");
    struct dk_load_http_target target;
    struct stub_server server = load_server_start(&answer);
    struct dk_load_http http = http_to(&server, &target);
    stub_kill(&server);
    char out[8];
    struct dk_error error = {0};
    assert_int_equal(dk_load_http_fetch(&http, out, &error), DK_UNAVAILABLE);
    const struct dk_http_options options = {.url = server.url, .timeout_s = 5};
    assert_int_equal(dk_load_http_resolve(&options, &target, &error), DK_UNAVAILABLE);
    check_contains(error.message, "127.0.0.1");
}

static void test_targets_are_resolved(void **state)
{
    (void)state;
    struct dk_load_http_target target;
    struct dk_error error = {0};
    const struct dk_http_options on_unix = {
        .url = "http://name.invalid:81/a/b/", .unix_socket = "/run/x.sock", .timeout_s = 1};
    assert_int_equal(dk_load_http_resolve(&on_unix, &target, &error), DK_OK);
    assert_int_equal(target.address.ss_family, AF_UNIX);
    assert_string_equal(target.host, "name.invalid:81");
    assert_string_equal(target.prefix, "/a/b");
    char path[200];
    memset(path, 'p', sizeof path - 1);
    path[sizeof path - 1] = 0;
    const struct dk_http_options too_long = {.url = "http://h", .unix_socket = path, .timeout_s = 1};
    assert_int_equal(dk_load_http_resolve(&too_long, &target, &error), DK_BAD_VALUE);
    const struct dk_http_options nobody = {.url = "http://name.invalid:81", .timeout_s = 1};
    assert_int_equal(dk_load_http_resolve(&nobody, &target, &error), DK_UNAVAILABLE);
    check_contains(error.message, "name.invalid");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_answers_over_several_connections),
        cmocka_unit_test(test_an_answer_in_small_pieces_is_put_together),
        cmocka_unit_test(test_inference_headers_are_not_part_of_the_answer),
        cmocka_unit_test(test_refusals_are_counted_by_their_status),
        cmocka_unit_test(test_answers_of_another_size_are_bad),
        cmocka_unit_test(test_more_bytes_than_announced_are_bad),
        cmocka_unit_test(test_what_is_not_http_is_bad),
        cmocka_unit_test(test_a_connection_lost_in_an_answer_is_counted_and_made_again),
        cmocka_unit_test(test_announced_closing_is_no_failure),
        cmocka_unit_test(test_an_early_refusal_of_a_large_body_is_read),
        cmocka_unit_test(test_fetch_gives_the_answer_or_the_servers_reason),
        cmocka_unit_test(test_a_server_that_is_gone_is_an_error_or_a_failure),
        cmocka_unit_test(test_targets_are_resolved),
    };
    curl_global_init(CURL_GLOBAL_DEFAULT);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    curl_global_cleanup();
    return failed;
}
