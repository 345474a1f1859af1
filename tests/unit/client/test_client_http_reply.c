/* test_client_http_reply.c: heads of answers: what is read of them, and what is refused. */
#include "tests/unit/client/check.h"

#include "client/http_reply.h"

static struct dk_http_reply_head parse_good(const char *text)
{
    struct dk_http_reply_head head;
    if (dk_http_reply_parse(text, strlen(text), &head) != DK_HTTP_REPLY_COMPLETE)
        fail_msg("refused: %s", text);
    return head;
}

static void test_status_length_and_timing_are_read(void **state)
{
    (void)state;
    struct dk_http_reply_head head =
        parse_good("HTTP/1.1 200 OK\r\nDate: today\r\ncontent-length:  42 \r\n"
                   "X-Decomposek-Timing-Us: queue=3.100 kernel=63.205 total=412.900\r\n\r\nbody");
    assert_int_equal(head.status, 200);
    assert_int_equal(head.body_bytes, 42);
    assert_int_equal(head.kernel_ns, 63205);
    assert_int_equal(head.inference_bytes, 0);
    assert_false(head.is_last);
    assert_int_equal(head.head_bytes,
                     strlen("HTTP/1.1 200 OK\r\nDate: today\r\ncontent-length:  42 \r\n"
                            "X-Decomposek-Timing-Us: queue=3.100 kernel=63.205 total=412.900\r\n\r\n"));
}

static void test_inference_header_is_not_a_content_length(void **state)
{
    (void)state;
    struct dk_http_reply_head head =
        parse_good("HTTP/1.1 200 OK\r\nInference-Header-Content-Length: 7\r\nContent-Length: 9\r\n\r\n");
    assert_int_equal(head.inference_bytes, 7);
    assert_int_equal(head.body_bytes, 9);
}

static void test_closing_is_seen(void **state)
{
    (void)state;
    assert_true(parse_good("HTTP/1.1 503 Busy\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n").is_last);
    assert_true(parse_good("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n").is_last);
    assert_false(parse_good("HTTP/1.1 200\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n").is_last);
}

static void test_kernel_times_in_other_forms(void **state)
{
    (void)state;
    static const struct {
        const char *list;
        uint64_t ns;
    } rows[] = {
        {"kernel=1", 1000}, {"kernel=0.5", 500}, {"kernel=12.3456789", 12345}, {"xkernel=5", 0},
        {"queue=1", 0},     {"kernel=", 0},      {"kernel=1.2.3", 1200},       {"a=1 kernel=2 b=3", 2000}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "HTTP/1.1 200 OK\r\nX-Decomposek-Timing-Us: %s\r\nContent-Length: 0\r\n\r\n", rows[i].list);
        uint64_t found = parse_good(text).kernel_ns;
        if (found != rows[i].ns)
            fail_msg("'%s': %llu", rows[i].list, (unsigned long long)found);
    }
}

static void test_every_beginning_of_a_head_asks_for_more(void **state)
{
    (void)state;
    static const char text[] = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n";
    struct dk_http_reply_head head;
    for (size_t length = 0; length < sizeof text - 1; length++) {
        char *copy = malloc(length + 1); /* so that a read past the end is found */
        assert_non_null(copy);
        memcpy(copy, text, length);
        copy = realloc(copy, length ? length : 1);
        assert_int_equal(dk_http_reply_parse(copy, length, &head), DK_HTTP_REPLY_MORE);
        free(copy);
    }
}

static void test_bad_heads_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "HTTP/2 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 600 X\r\nContent-Length: 0\r\n\r\n",
        "ICY 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length : 3\r\n\r\n",
        "HTTP/1.1 200 OK\r\n Content-Length: 3\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n folded\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 3\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: nameless\r\nContent-Length: 3\r\n\r\n",
        "HTTP/1.1 200 OK\r\nInference-Header-Content-Length: 4\r\nContent-Length: 3\r\n\r\n",
        "\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct dk_http_reply_head head;
        if (dk_http_reply_parse(texts[i], strlen(texts[i]), &head) != DK_HTTP_REPLY_BAD)
            fail_msg("accepted: %s", texts[i]);
    }
}

static void test_a_head_without_an_end_is_refused(void **state)
{
    (void)state;
    static char text[DK_HTTP_REPLY_MAX_HEAD];
    struct dk_http_reply_head head;
    memset(text, 'a', sizeof text);
    assert_int_equal(dk_http_reply_parse(text, sizeof text - 1, &head), DK_HTTP_REPLY_MORE);
    assert_int_equal(dk_http_reply_parse(text, sizeof text, &head), DK_HTTP_REPLY_BAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_length_and_timing_are_read),
        cmocka_unit_test(test_inference_header_is_not_a_content_length),
        cmocka_unit_test(test_closing_is_seen),
        cmocka_unit_test(test_kernel_times_in_other_forms),
        cmocka_unit_test(test_every_beginning_of_a_head_asks_for_more),
        cmocka_unit_test(test_bad_heads_are_refused),
        cmocka_unit_test(test_a_head_without_an_end_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
