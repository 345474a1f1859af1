/* test_http_head.c: framing that could be smuggled, expectations, media types, negotiation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "server/http_head.h"

struct header {
    const char *name, *value;
};

static struct dk_http_head_check check(const struct header *headers, size_t count)
{
    struct dk_http_head_check result = {0};
    for (size_t i = 0; i < count; i++) {
        dk_http_head_check_add(&result, headers[i].name, strlen(headers[i].name), headers[i].value,
                               strlen(headers[i].value));
    }
    dk_http_head_check_finish(&result);
    return result;
}

#define CHECK(...)                                                                                           \
    check((const struct header[]){__VA_ARGS__},                                                              \
          sizeof((const struct header[]){__VA_ARGS__}) / sizeof(struct header))

static void test_ordinary_heads_are_accepted(void **state)
{
    (void)state;
    struct dk_http_head_check ordinary =
        CHECK({"host", "x"}, {"CONTENT-LENGTH", "12"}, {"Inference-Header-Content-Length", "5"},
              {"Content-Type", "application/json"}, {"Accept", "*/*"}, {"Content-Encoding", "Identity"});
    assert_int_equal(ordinary.error.status, DK_OK);
    assert_true(ordinary.head.has_content_length);
    assert_int_equal(ordinary.head.content_length, 12);
    assert_false(ordinary.head.is_chunked);
    assert_string_equal(ordinary.head.content_type, "application/json");
    struct dk_http_head_check chunked = CHECK({"Transfer-Encoding", "Chunked"}, {"Expect", "100-Continue"});
    assert_int_equal(chunked.error.status, DK_OK);
    assert_true(chunked.head.is_chunked);
    assert_true(chunked.head.wants_continue);
}

static void test_doubtful_framing_is_refused_and_closes(void **state)
{
    (void)state;
    const struct dk_http_head_check bad[] = {
        CHECK({"Content-Length", "5"}, {"content-length", "5"}),
        CHECK({"Content-Length", "5"}, {"Transfer-Encoding", "chunked"}),
        CHECK({"Transfer-Encoding", "chunked"}, {"Content-Length", "5"}),
        CHECK({"Transfer-Encoding", "chunked"}, {"Transfer-Encoding", "chunked"}),
        CHECK({"Content-Length ", "5"}),
        CHECK({"Content-Length\t", "5"}),
        CHECK({"", "5"}),
        CHECK({"X\x01", "5"}),
        CHECK({"X-Note", "a\rContent-Length: 7"}),
        CHECK({"Content-Length", "+5"}),
        CHECK({"Content-Length", "5 "}),
        CHECK({"Content-Length", ""}),
        CHECK({"Content-Length", "0x5"}),
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(bad[i].error.status, DK_BAD_REQUEST);
        assert_true(bad[i].head.is_framing_doubtful);
    }
}

static void test_nul_inside_a_value_is_refused(void **state)
{
    (void)state;
    struct dk_http_head_check result = {0};
    dk_http_head_check_add(&result, "X-Note", 6, "a\0b", 3);
    assert_int_equal(result.error.status, DK_BAD_REQUEST);
}

static void test_unknown_codings_are_unsupported(void **state)
{
    (void)state;
    struct dk_http_head_check transfer = CHECK({"Transfer-Encoding", "gzip, chunked"});
    assert_int_equal(transfer.error.status, DK_UNSUPPORTED_MEDIA);
    assert_true(transfer.head.is_framing_doubtful);
    static const char *const codings[] = {"br", "gzip, gzip", "gzip, deflate", "zstd", "gzip;q=1"};
    for (size_t i = 0; i < sizeof codings / sizeof codings[0]; i++) {
        struct dk_http_head_check content = CHECK({"Content-Encoding", codings[i]}, {"Content-Length", "3"});
        assert_int_equal(content.error.status, DK_UNSUPPORTED_MEDIA);
        assert_false(content.head.is_framing_doubtful); /* the length still tells where the body ends */
        assert_non_null(strstr(content.error.message, codings[i]));
    }
    struct dk_http_head_check twice = CHECK({"Content-Encoding", "gzip"}, {"Content-Encoding", "gzip"});
    assert_int_equal(twice.error.status, DK_UNSUPPORTED_MEDIA);
}

static void test_known_codings_are_told(void **state)
{
    (void)state;
    assert_int_equal(CHECK({"Accept", "*/*"}).head.coding, DK_CODING_IDENTITY);
    assert_int_equal(CHECK({"content-encoding", "GZIP"}).head.coding, DK_CODING_GZIP);
    assert_int_equal(CHECK({"Content-Encoding", "x-gzip"}).head.coding, DK_CODING_GZIP);
    assert_int_equal(CHECK({"Content-Encoding", "deflate"}).head.coding, DK_CODING_DEFLATE);
    assert_int_equal(CHECK({"Content-Encoding", "identity"}).head.coding, DK_CODING_IDENTITY);
}

static void test_length_of_the_json_part_is_not_the_content_length(void **state)
{
    (void)state;
    struct dk_http_head_check result =
        CHECK({"inference-header-content-length", "12"}, {"content-length", "345"});
    assert_int_equal(result.error.status, DK_OK);
    assert_string_equal(result.head.json_length, "12");
    assert_int_equal(result.head.content_length, 345);
    assert_null(CHECK({"X-Inference-Header-Content-Length", "12"}).head.json_length);
    struct dk_http_head_check twice =
        CHECK({"Inference-Header-Content-Length", "12"}, {"Inference-Header-Content-Length", "12"});
    assert_int_equal(twice.error.status, DK_BAD_REQUEST);
    assert_false(twice.head.is_framing_doubtful);
}

static void test_c36_other_expectations_fail(void **state)
{
    (void)state;
    assert_int_equal(CHECK({"Expect", "200-ok"}).error.status, DK_EXPECTATION_FAILED);
    assert_int_equal(CHECK({"Expect", "100-continue, x"}).error.status, DK_EXPECTATION_FAILED);
}

static void test_body_kinds(void **state)
{
    (void)state;
    static const char *const json[] = {NULL,
                                       "",
                                       "application/json",
                                       "Application/JSON",
                                       "application/json;charset=UTF-8",
                                       "application/json; charset=\"utf-8\"; x=y",
                                       "application/x-www-form-urlencoded"};
    static const char *const refused[] = {"text/plain",
                                          "application/jsonx",
                                          "application/xml",
                                          "multipart/form-data; boundary=x",
                                          "application/json; charset=utf-16",
                                          "application/ json"};
    enum dk_body_kind kind;
    for (size_t i = 0; i < sizeof json / sizeof json[0]; i++) {
        kind = DK_BODY_RAW;
        assert_int_equal(dk_body_kind_parse(json[i], &kind, NULL), DK_OK);
        assert_int_equal(kind, DK_BODY_JSON);
    }
    assert_int_equal(dk_body_kind_parse("application/octet-stream ; x", &kind, NULL), DK_OK);
    assert_int_equal(kind, DK_BODY_RAW);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_int_equal(dk_body_kind_parse(refused[i], &kind, NULL), DK_UNSUPPORTED_MEDIA);
    }
}

static void test_qualities(void **state)
{
    (void)state;
    static const struct {
        const char *accept, *type;
        unsigned quality;
        bool is_named;
    } cases[] = {
        {NULL, "text/plain", 1000, false},
        {"", "text/plain", 1000, false},
        {"*/*", "text/plain", 1000, false},
        {"text/plain", "text/plain", 1000, true},
        {"TEXT/Plain", "text/plain", 1000, true},
        {"text/plain", "text/html", 0, false},
        {"text/*;q=0.5", "text/plain", 500, false},
        {"text/*;q=0.5, text/plain;q=0.25", "text/plain", 250, true},
        {"*/*;q=0.1,text/*;q=0.5", "text/plain", 500, false},
        {"text/plain;q=0", "text/plain", 0, true},
        {"text/plain;q=0.2,text/plain;version=1;q=0.9", "text/plain", 900, true},
        {"text/plain ; version=0.0.4 ; q=0.75 ", "text/plain", 750, true},
        {"text/plain;q=0.1234", "text/plain", 123, true},
        {"text/plain;q=7", "text/plain", 1000, true},
        {"text/plain;", "text/plain", 1000, true},
        {"text/plain;,*/*;q=0.5", "text/plain", 1000, true},
        {",,;q=0,", "text/plain", 0, false},
        {"gzip;q=0.5, br", "gzip", 500, true},
        {"identity", "gzip", 0, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool is_named = !cases[i].is_named;
        assert_int_equal(dk_accept_quality(cases[i].accept, cases[i].type, &is_named), cases[i].quality);
        assert_int_equal(is_named, cases[i].is_named);
    }
}

static void test_c63_real_prometheus_header_prefers_openmetrics(void **state)
{
    (void)state;
    static const char accept[] = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
                                 "application/openmetrics-text;version=0.0.1;q=0.5,text/"
                                 "plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
                                 "text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    bool is_named;
    assert_int_equal(dk_accept_quality(accept, "application/openmetrics-text", &is_named), 600);
    assert_true(is_named);
    assert_int_equal(dk_accept_quality(accept, "text/plain", NULL), 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ordinary_heads_are_accepted),
        cmocka_unit_test(test_doubtful_framing_is_refused_and_closes),
        cmocka_unit_test(test_nul_inside_a_value_is_refused),
        cmocka_unit_test(test_unknown_codings_are_unsupported),
        cmocka_unit_test(test_known_codings_are_told),
        cmocka_unit_test(test_length_of_the_json_part_is_not_the_content_length),
        cmocka_unit_test(test_c36_other_expectations_fail),
        cmocka_unit_test(test_body_kinds),
        cmocka_unit_test(test_qualities),
        cmocka_unit_test(test_c63_real_prometheus_header_prefers_openmetrics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
