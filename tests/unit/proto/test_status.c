/* test_status.c: the status table, the messages beside it, and their copy in PROTOCOL.md. */
#include "tests/unit/proto/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "proto/status.h"

static void test_unknown_status_is_internal(void **state)
{
    (void)state;
    assert_string_equal(dk_status_name((dk_status)12345), "INTERNAL");
    assert_string_equal(dk_status_name((dk_status)-1), "INTERNAL");
    assert_int_equal(dk_status_http((dk_status)DK_STATUS_COUNT), 500);
    assert_string_equal(dk_status_text((dk_status)DK_STATUS_COUNT), dk_status_text(DK_INTERNAL));
}

static void test_fail_sets_status_and_text(void **state)
{
    (void)state;
    struct dk_error error = {0};
    assert_int_equal(dk_fail(&error, DK_BAD_SHAPE, "n is %d, expected %s", 7, "8"), DK_BAD_SHAPE);
    assert_int_equal(error.status, DK_BAD_SHAPE);
    assert_string_equal(error.message, "n is 7, expected 8");
    assert_int_equal(dk_fail(NULL, DK_BUSY, "nobody listens: %d", 1), DK_BUSY);
}

static void test_fail_may_quote_its_own_message(void **state)
{
    (void)state;
    struct dk_error error = {0};
    dk_fail(&error, DK_BAD_FILE, "a hole");
    dk_fail(&error, DK_BAD_FILE, "loading %s: %s", "w", error.message);
    assert_string_equal(error.message, "loading w: a hole");
}

static void test_fail_replaces_control_characters_and_bad_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *given, *expected;
    } cases[] = {
        {"a\nb\r\tc\x1B[31m\x7F", "a?b??c?[31m?"},
        {"gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x98\x80",
         "gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x98\x80"},
        {"\xC3", "?"},
        {"\xC3(", "?("},
        {"\xC0\x80", "??"},           /* overlong */
        {"\xE0\x80\x80", "???"},      /* overlong */
        {"\xED\xA0\x80", "???"},      /* surrogate */
        {"\xF4\x90\x80\x80", "????"}, /* above U+10FFFF */
        {"\xFF\xFE", "??"},
        {"\xC2\x9B"
         "31m",
         "??31m"}, /* C1: control sequence introducer */
        {"\xC2\xA0", "\xC2\xA0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dk_error error = {0};
        dk_fail(&error, DK_BAD_VALUE, "%s", cases[i].given);
        assert_string_equal(error.message, cases[i].expected);
    }
}

static void test_fail_truncates_at_a_character_border(void **state)
{
    (void)state;
    static const char *const characters[] = {"a", "\xC3\xBC", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
    for (size_t c = 0; c < 4; c++) {
        size_t width = strlen(characters[c]);
        for (size_t lead = 0; lead < 4; lead++) {
            char text[2048] = {0};
            memset(text, 'x', lead);
            for (size_t i = 0; i < 400; i++) {
                memcpy(text + lead + i * width, characters[c], width);
            }
            struct dk_error error;
            memset(&error, 0x55, sizeof error);
            dk_fail(&error, DK_BAD_VALUE, "%s", text);
            size_t length = strlen(error.message);
            size_t expected = lead + (DK_MESSAGE_BYTES - 1 - lead) / width * width;
            assert_int_equal(length, expected);
            assert_memory_equal(error.message, text, length);
        }
    }
}

/* Rows of the table look like: | `BAD_JSON` | 400 | the body is not strict JSON | */
static void test_protocol_md_holds_the_same_table(void **state)
{
    (void)state;
    FILE *file = fopen(DK_PROTOCOL_MD, "r");
    assert_non_null(file);
    char line[512];
    unsigned count = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        char name[64];
        char text[256];
        int http;
        if (sscanf(line, "| `%63[A-Z_]` | %d | %255[^|\n]|", name, &http, text) != 3) {
            continue;
        }
        size_t length = strlen(text);
        while (length > 0 && text[length - 1] == ' ') {
            text[--length] = '\0';
        }
        assert_in_range(count, 0, DK_STATUS_COUNT - 1);
        assert_string_equal(name, dk_status_name((dk_status)count));
        assert_int_equal(http, dk_status_http((dk_status)count));
        assert_string_equal(text, dk_status_text((dk_status)count));
        count++;
    }
    fclose(file);
    assert_int_equal(count, DK_STATUS_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_status_is_internal),
        cmocka_unit_test(test_fail_sets_status_and_text),
        cmocka_unit_test(test_fail_may_quote_its_own_message),
        cmocka_unit_test(test_fail_replaces_control_characters_and_bad_utf8),
        cmocka_unit_test(test_fail_truncates_at_a_character_border),
        cmocka_unit_test(test_protocol_md_holds_the_same_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
