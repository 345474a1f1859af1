/* test_json_reader.c: the grammar, strictness, and that no split of the body changes anything. */
#include "tests/unit/proto/json_feed.h"

#include <stdio.h>

static void expect_ok(const char *body, const char *skeleton)
{
    static struct feed_result result;
    feed_every_way(body, strlen(body), &result);
    if (result.status != DK_OK) {
        fail_msg("refused: %s: %s", body, result.message);
    }
    assert_string_equal(result.skeleton, skeleton);
}

static void expect_refused_bytes(const char *body, size_t length, dk_status status, const char *part)
{
    static struct feed_result result;
    feed_every_way(body, length, &result);
    if (result.status != status || strstr(result.message, part) == NULL) {
        fail_msg("%s: got %s \"%s\", expected %s with \"%s\"", body, dk_status_name(result.status),
                 result.message, dk_status_name(status), part);
    }
}

static void expect_refused(const char *body, const char *part)
{
    expect_refused_bytes(body, strlen(body), DK_BAD_JSON, part);
}

static void test_skeleton_is_the_body_without_space_and_tensors(void **state)
{
    (void)state;
    expect_ok("{}", "{}");
    expect_ok(" \t\r\n{ } \n", "{}");
    expect_ok("{\"model\": \"gate\", \"x\": [1, 2, 3]}", "{\"model\":\"gate\",\"x\":null}");
    expect_ok("{\"x\":[[1,2],[3,4]],\"a\":[5],\"k\":[1, [true , false], null, {\"q\" : {}}]}",
              "{\"x\":null,\"a\":null,\"k\":[1,[true,false],null,{\"q\":{}}]}");
    expect_ok("{\"n\":-12.50e+3,\"s\":\"a \\\"b\\\" \\u00e9 \\ud83d\\ude00 \xC3\xA9\"}",
              "{\"n\":-12.50e+3,\"s\":\"a \\\"b\\\" \\u00e9 \\ud83d\\ude00 \xC3\xA9\"}");
    expect_ok("{\"\":0,\"e\":\"\",\"esc\":\"\\b\\f\\n\\r\\t\\/\\\\\\\"\"}",
              "{\"\":0,\"e\":\"\",\"esc\":\"\\b\\f\\n\\r\\t\\/\\\\\\\"\"}");
}

static void test_values_at_a_declared_path_that_are_no_arrays_stay(void **state)
{
    (void)state;
    expect_ok("{\"x\":3}", "{\"x\":3}");
    expect_ok("{\"x\":null}", "{\"x\":null}");
    expect_ok("{\"x\":\"abc\"}", "{\"x\":\"abc\"}");
    expect_ok("{\"x\":{\"x\":[1,2]}}", "{\"x\":{\"x\":[1,2]}}");
    expect_ok("{\"y\":{\"x\":[1]},\"z\":[[1,2]]}", "{\"y\":{\"x\":[1]},\"z\":[[1,2]]}");
    expect_ok("{\"inputs\":{\"data\":[1,2]}}", "{\"inputs\":{\"data\":[1,2]}}");
    expect_ok("{\"inputs\":[[{\"data\":[1,2]}]]}", "{\"inputs\":[[{\"data\":[1,2]}]]}");
}

static void test_top_level_must_be_one_object(void **state)
{
    (void)state;
    expect_refused("", "the body is empty");
    expect_refused("   ", "ends before");
    expect_refused("[1,2]", "at byte 0: expected a JSON object, found '['");
    expect_refused("\"x\"", "expected a JSON object");
    expect_refused("1", "expected a JSON object");
    expect_refused("null", "expected a JSON object");
    expect_refused("{}{}", "at byte 2: expected the end of the body, found '{'");
    expect_refused("{} x", "expected the end of the body");
    expect_refused("{}]", "expected the end of the body");
    expect_refused("{},", "expected the end of the body");
    expect_refused_bytes("{}\0", 3, DK_BAD_JSON, "found 0x00");
    expect_refused("\xEF\xBB\xBF{}", "byte order mark");
    expect_refused_bytes("\xFF\xFE{\0}\0", 6, DK_BAD_JSON, "found 0xFF");
}

static void test_cut_off_bodies(void **state)
{
    (void)state;
    static const char body[] =
        "{\"m\":\"g\\u00e9\\ud83d\\ude00\xC3\xA9\",\"n\":-1.5e+3,\"t\":true,\"x\":[[1.5e2],[-2]],\"o\":[{}]}";
    for (size_t length = 1; length < sizeof body - 1; length++) {
        static struct feed_result result;
        feed_every_way(body, length, &result);
        assert_int_equal(result.status, DK_BAD_JSON);
        assert_non_null(strstr(result.message, "ends before"));
    }
    expect_ok(body,
              "{\"m\":\"g\\u00e9\\ud83d\\ude00\xC3\xA9\",\"n\":-1.5e+3,\"t\":true,\"x\":null,\"o\":[{}]}");
}

static void test_structure_mistakes(void **state)
{
    (void)state;
    expect_refused("{\"a\":1,}", "at byte 7: expected a key in double quotes, found '}'");
    expect_refused("{,}", "expected a key in double quotes or '}', found ','");
    expect_refused("{\"k\" 1}", "expected ':', found '1'");
    expect_refused("{\"k\":}", "expected a value, found '}'");
    expect_refused("{\"k\":1 \"l\":2}", "expected ',' or '}', found '\"'");
    expect_refused("{k:1}", "found 'k'");
    expect_refused("{'k':1}", "found '''");
    expect_refused("{\"k\":'v'}", "found '''");
    expect_refused("{\"k\":[1,]}", "expected a value, found ']'");
    expect_refused("{\"k\":[,1]}", "expected a value or ']', found ','");
    expect_refused("{\"k\":[1 2]}", "expected ',' or ']', found '2'");
    expect_refused("{\"k\":[1}", "expected ',' or ']', found '}'");
    expect_refused("{\"k\":1]", "expected ',' or '}', found ']'");
    expect_refused("{\"k\"]", "expected ':'");
    expect_refused("{]", "found ']'");
    expect_refused("{\"k\":[}", "found '}'");
    expect_refused("{/* c */}", "found '/'");
    expect_refused("{\"k\":1} // c", "found '/'");
    expect_refused("{\"k\":1}#", "found '#'");
    expect_refused("{1:2}", "found '1'");
    expect_refused("{\"k\"::1}", "expected a value, found ':'");
    expect_refused("{\"k\":\v1}", "found 0x0B");
    expect_refused("{\xC2\xA0}", "found 0xC2"); /* no-break space is not JSON space */
}

static void test_literals(void **state)
{
    (void)state;
    expect_ok("{\"k\":[true,false,null],\"l\":true , \"m\":null}",
              "{\"k\":[true,false,null],\"l\":true,\"m\":null}");
    expect_refused("{\"x\":[true]}", "x[0]: expected a number, '[' or ']', found 't'");
}

static void test_unknown_literals(void **state)
{
    (void)state;
    static const char *const words[] = {"True",     "tru",       "truee", "nul",       "NULL",  "none", "NaN",
                                        "Infinity", "-Infinity", "-inf",  "undefined", "falsy", "nullx"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        char body[64];
        (void)snprintf(body, sizeof body, "{\"k\":%s}", words[i]);
        expect_refused(body, "");
        (void)snprintf(body, sizeof body, "{\"x\":[%s]}", words[i]);
        expect_refused(body, "");
    }
}

static void test_number_mistakes_in_skeleton_and_tensor(void **state)
{
    (void)state;
    static const char *const numbers[] = {"01",    "-01",  "1.",  ".5", "+1", "1e", "1e+", "--1", "1.2.3",
                                          "1e5e5", "0x10", "1_0", "1-", "-",  "00", "-.5", "1.e3"};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char body[64];
        (void)snprintf(body, sizeof body, "{\"k\":%s}", numbers[i]);
        expect_refused(body, "");
        (void)snprintf(body, sizeof body, "{\"x\":[0,%s]}", numbers[i]);
        expect_refused(body, "");
        (void)snprintf(body, sizeof body, "{\"x\":[[%s ,1]]}", numbers[i]);
        expect_refused(body, "");
    }
    expect_refused("{\"x\":[1,01]}", "at byte 8: 01 is not a JSON number");
    expect_refused("{\"k\":-}", "at byte 5: - is not a JSON number");
    expect_refused_bytes("{\"x\":[1e400]}", 13, DK_BAD_VALUE, "at byte 6: number 1e400 is beyond the range");
    expect_refused_bytes("{\"k\":-1e400}", 12, DK_BAD_VALUE, "number -1e400 is beyond the range");
}

static void test_string_mistakes(void **state)
{
    (void)state;
    expect_refused("{\"k\":\"a\tb\"}", "control character in a string must be escaped, found 0x09");
    expect_refused("{\"k\":\"a\nb\"}", "control character");
    expect_refused("{\"k\x01\":1}", "control character");
    expect_refused_bytes("{\"k\":\"\0\"}", 9, DK_BAD_JSON, "control character");
    expect_refused("{\"k\":\"\\x41\"}", "unknown escape in a string, found 'x'");
    expect_refused("{\"k\":\"\\'\"}", "unknown escape");
    expect_refused("{\"k\":\"\\u12G4\"}", "four hexadecimal digits, found 'G'");
    expect_refused("{\"k\":\"\\u123\"}", "four hexadecimal digits");
    expect_refused("{\"k\":\"\\u0000\"}", "\\u0000 is not allowed");
    expect_refused("{\"k\\u0000\":1}", "\\u0000 is not allowed");
    expect_refused("{\"k\":\"\\ud800\"}", "lone surrogate");
    expect_refused("{\"k\":\"\\ud800x\"}", "lone surrogate");
    expect_refused("{\"k\":\"\\ud800\\n\"}", "lone surrogate");
    expect_refused("{\"k\":\"\\ud800\\ud800\"}", "lone surrogate");
    expect_refused("{\"k\":\"\\ud800\\u0041\"}", "lone surrogate");
    expect_refused("{\"k\":\"\\udc00\"}", "lone surrogate");
    static const char *const bad_utf8[] = {"\x80",
                                           "\xBF",
                                           "\xC0\x80",
                                           "\xC1\xBF",
                                           "\xC3",
                                           "\xC3(",
                                           "\xE0\x80\x80",
                                           "\xE0\x9F\xBF",
                                           "\xED\xA0\x80",
                                           "\xED\xBF\xBF",
                                           "\xE2\x82",
                                           "\xF0\x80\x80\x80",
                                           "\xF0\x8F\xBF\xBF",
                                           "\xF4\x90\x80\x80",
                                           "\xF5\x80\x80\x80",
                                           "\xFF",
                                           "\xE2\x28\xA1",
                                           "\xF0\x9F\x98",
                                           "\xFE"};
    for (size_t i = 0; i < sizeof bad_utf8 / sizeof bad_utf8[0]; i++) {
        char body[64];
        (void)snprintf(body, sizeof body, "{\"k\":\"a%s\"}", bad_utf8[i]);
        expect_refused(body, "malformed UTF-8");
    }
    expect_ok("{\"k\":"
              "\"\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF\xF0\x90\x80\x80\xF4\x8F\xBF"
              "\xBF\x7F\"}",
              "{\"k\":"
              "\"\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF\xF0\x90\x80\x80\xF4\x8F\xBF"
              "\xBF\x7F\"}");
}

static void test_duplicate_keys(void **state)
{
    (void)state;
    expect_refused("{\"k\":1,\"k\":1}", "duplicate key \"k\"");
    expect_refused("{\"x\":[1],\"x\":[1]}", "duplicate key \"x\"");
    expect_refused("{\"k\":1,\"\\u006b\":2}", "duplicate key \"k\"");
    expect_refused("{\"\\u006B\":1,\"\\u006b\":2}", "duplicate key \"k\"");
    expect_refused("{\"\xC3\xA9\":1,\"\\u00e9\":2}", "duplicate key \"\xC3\xA9\"");
    expect_refused("{\"\xF0\x9F\x98\x80\":1,\"\\ud83d\\ude00\":2}", "duplicate key");
    expect_refused("{\"a/b\":1,\"a\\/b\":2}", "duplicate key \"a/b\"");
    expect_refused("{\"\\b\\f\\n\\r\\t\":1,\"\\u0008\\u000c\\u000A\\u000d\\u0009\":2}", "duplicate key");
    expect_refused("{\"\xE2\x82\xAC\":1,\"\\u20ac\":2}", "duplicate key");
    expect_refused("{\"\":1,\"\":2}", "duplicate key \"\"");
    expect_refused("{\"p\":{\"k\":1,\"k\":2}}", "duplicate key");
    expect_refused("{\"p\":[{\"q\":{\"k\":1,\"z\":{},\"k\":2}}]}", "duplicate key");
    expect_refused("{\"inputs\":[{\"data\":[1],\"data\":[2]}]}", "duplicate key");
    expect_refused("{\"k\":1,\"p\":{\"k\":1},\"k\":3}", "duplicate key");
    expect_ok("{\"k\":1,\"p\":{\"k\":1,\"q\":{\"k\":2}},\"q\":[{\"k\":1},{\"k\":1}],\"K\":0,\"k \":0}",
              "{\"k\":1,\"p\":{\"k\":1,\"q\":{\"k\":2}},\"q\":[{\"k\":1},{\"k\":1}],\"K\":0,\"k \":0}");
}

static void test_escaped_spelling_of_a_path_is_the_path(void **state)
{
    (void)state;
    expect_ok("{\"\\u0078\":[1,2]}", "{\"\\u0078\":null}");
}

static void test_reset_serves_the_next_body(void **state)
{
    (void)state;
    static struct feed_result result;
    const struct dk_json_sink sink = {&result, feed_begin, feed_values, feed_end};
    static const char *const bodies[] = {
        "{\"x\":[1,2],\"k\":\"v\"}", "{\"x\":[[1,2],[3", "{\"k\":tru!}", "{\"x\":[7],\"k\":1}", "[",
        "{\"a\":[1],\"x\":[2]}"};
    static const dk_status expected[] = {DK_OK, DK_BAD_JSON, DK_BAD_JSON, DK_OK, DK_BAD_JSON, DK_OK};
    struct dk_json_reader *reader;
    assert_int_equal(dk_json_reader_new(feed_default_paths, FEED_DEFAULT_PATH_COUNT, &sink, &reader), DK_OK);
    for (size_t i = 0; i < 6; i++) {
        const char *skeleton;
        size_t length;
        struct dk_error error = {0};
        (void)dk_json_reader_feed(reader, bodies[i], strlen(bodies[i]), &error);
        assert_int_equal(dk_json_reader_finish(reader, &skeleton, &length, &error), expected[i]);
        assert_int_equal(error.status, expected[i]);
        if (i == 5) {
            assert_int_equal(dk_json_reader_tensor_count(reader), 2);
            assert_string_equal(skeleton, "{\"a\":null,\"x\":null}");
        }
        dk_json_reader_reset(reader);
    }
    dk_json_reader_free(reader);
    dk_json_reader_free(NULL);
}

static void test_peek_sees_complete_strings_only(void **state)
{
    (void)state;
    static const char body[] =
        "{\"n\":[{\"model\":\"no\"},\"model\"],\"o\":{\"model\":\"no\"},\"l\":true,\"mod\\u0065l\":"
        "\"g\\u0061te\",\"x\":[1],\"d\":5}";
    const size_t complete_at = (size_t)(strstr(body, "te\"") + 3 - body);
    struct dk_json_reader *reader;
    char text[5];
    struct dk_error error;
    assert_int_equal(dk_json_reader_new(feed_default_paths, FEED_DEFAULT_PATH_COUNT, NULL, &reader), DK_OK);
    for (size_t i = 0; i < sizeof body - 1; i++) {
        assert_int_equal(dk_json_reader_peek_string(reader, "model", text, sizeof text), i >= complete_at);
        assert_int_equal(dk_json_reader_feed(reader, body + i, 1, &error), DK_OK);
    }
    assert_true(dk_json_reader_peek_string(reader, "model", text, sizeof text));
    assert_string_equal(text, "gate");
    assert_false(dk_json_reader_peek_string(reader, "model", text, 4)); /* no room for the NUL */
    assert_false(dk_json_reader_peek_string(reader, "d", text, sizeof text));
    assert_false(dk_json_reader_peek_string(reader, "x", text, sizeof text));
    assert_false(dk_json_reader_peek_string(reader, "absent", text, sizeof text));
    dk_json_reader_free(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_skeleton_is_the_body_without_space_and_tensors),
        cmocka_unit_test(test_values_at_a_declared_path_that_are_no_arrays_stay),
        cmocka_unit_test(test_top_level_must_be_one_object),
        cmocka_unit_test(test_cut_off_bodies),
        cmocka_unit_test(test_structure_mistakes),
        cmocka_unit_test(test_literals),
        cmocka_unit_test(test_unknown_literals),
        cmocka_unit_test(test_number_mistakes_in_skeleton_and_tensor),
        cmocka_unit_test(test_string_mistakes),
        cmocka_unit_test(test_duplicate_keys),
        cmocka_unit_test(test_escaped_spelling_of_a_path_is_the_path),
        cmocka_unit_test(test_reset_serves_the_next_body),
        cmocka_unit_test(test_peek_sees_complete_strings_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
