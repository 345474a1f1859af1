/* test_http_target.c: decoding of paths and queries, once and only once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "server/http_target.h"

static void test_c38_paths_are_decoded_once(void **state)
{
    (void)state;
    static const struct {
        const char *raw, *path, *query;
    } cases[] = {
        {"/", "/", ""},
        {"/v1/models", "/v1/models", ""},
        {"/v1/models/", "/v1/models", ""},
        {"/v1/models//", "/v1/models/", ""},
        {"//", "/", ""},
        {"/v2/health/%6cive", "/v2/health/live", ""},
        {"/%256cive", "/%6cive", ""},
        {"/a%2Fb", "/a%2Fb", ""},
        {"/a%2fb", "/a%2Fb", ""},
        {"/a%20b+c", "/a b+c", ""},
        {"/%c3%a4", "/\xc3\xa4", ""},
        {"/../etc/passwd", "/../etc/passwd", ""},
        {"/%2e%2e/x", "/../x", ""},
        {"/x?a=%31&b", "/x", "a=%31&b"},
        {"/x/?q#f", "/x", "q"},
        {"/x#f?q", "/x", ""},
        {"http://host:80/metrics?x", "/metrics", "x"},
        {"HTTPS://host", "/", ""},
        {"http://host?x", "/", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dk_target target;
        struct dk_error error = {0};
        assert_int_equal(dk_target_parse(cases[i].raw, &target, &error), DK_OK);
        assert_string_equal(target.path, cases[i].path);
        assert_string_equal(target.query, cases[i].query);
    }
}

static void test_c38_bad_targets_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",        "*",          "x",        "/%",   "/%f",     "/%zz",  "/%g0",
                                      "/%0",     "/%00",       "/live%00", "/%0a", "/%7f",    "/\x01", "/%ff",
                                      "/%c0%af", "/%ed%a0%80", "/\xff",    "/%c3", "/%c3?%a4"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct dk_target target;
        struct dk_error error = {0};
        assert_int_equal(dk_target_parse(bad[i], &target, &error), DK_BAD_REQUEST);
        assert_true(strlen(error.message) > 0);
    }
}

static void test_long_target_is_refused_with_both_numbers(void **state)
{
    (void)state;
    char raw[DK_TARGET_BYTES + 1];
    struct dk_target target;
    struct dk_error error;
    memset(raw, 'a', sizeof raw);
    raw[0] = '/';
    raw[DK_TARGET_BYTES - 1] = '\0';
    assert_int_equal(dk_target_parse(raw, &target, NULL), DK_OK);
    raw[DK_TARGET_BYTES - 1] = 'a';
    raw[DK_TARGET_BYTES] = '\0';
    assert_int_equal(dk_target_parse(raw, &target, &error), DK_BAD_REQUEST);
    assert_non_null(strstr(error.message, "1024"));
    assert_non_null(strstr(error.message, "1023"));
}

static void test_query_is_walked_pair_by_pair(void **state)
{
    (void)state;
    const char *cursor = "&model=a%62c&&flag&x=1=2&y=+%2B&=v&e=";
    static const struct {
        const char *name, *value;
    } expected[] = {{"model", "abc"}, {"flag", NULL}, {"x", "1=2"}, {"y", " +"}, {"", "v"}, {"e", ""}};
    char name[DK_TARGET_BYTES], value[DK_TARGET_BYTES];
    bool has_value;
    dk_status status;
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        assert_true(dk_query_next(&cursor, name, value, &has_value, &status, NULL));
        assert_string_equal(name, expected[i].name);
        assert_int_equal(has_value, expected[i].value != NULL);
        if (has_value) {
            assert_string_equal(value, expected[i].value);
        }
    }
    assert_false(dk_query_next(&cursor, name, value, &has_value, &status, NULL));
    assert_int_equal(status, DK_OK);
}

static void test_bad_query_ends_the_walk(void **state)
{
    (void)state;
    static const char *const bad[] = {"a=%", "a=%0", "%zz=1", "a=%00", "a=%ff", "%0d=1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *cursor = bad[i];
        char name[DK_TARGET_BYTES], value[DK_TARGET_BYTES];
        bool has_value;
        dk_status status;
        assert_false(dk_query_next(&cursor, name, value, &has_value, &status, NULL));
        assert_int_equal(status, DK_BAD_REQUEST);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_c38_paths_are_decoded_once),
        cmocka_unit_test(test_c38_bad_targets_are_refused),
        cmocka_unit_test(test_long_target_is_refused_with_both_numbers),
        cmocka_unit_test(test_query_is_walked_pair_by_pair),
        cmocka_unit_test(test_bad_query_ends_the_walk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
