/* test_json_locale.c: a program that called setlocale() with a decimal comma reads and writes the same JSON.
 */
#include "tests/unit/proto/cmocka_all.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_writer.h"
#include "proto/native_api.h"

static const char *const comma_locales[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR"};

/* True when printf() now writes a comma: the test would prove nothing otherwise. */
static bool set_comma_locale(void)
{
    (void)setenv("LOCPATH", DK_COMMA_LOCALE_DIR, 1);
    for (size_t i = 0; i < 2 * sizeof comma_locales / sizeof comma_locales[0]; i++) {
        if (i == sizeof comma_locales / sizeof comma_locales[0]) {
            (void)unsetenv("LOCPATH");
        }
        char text[8];
        if (setlocale(LC_ALL, comma_locales[i % (sizeof comma_locales / sizeof comma_locales[0])]) != NULL) {
            (void)snprintf(text, sizeof text, "%.1f", 0.5);
            if (strcmp(text, "0,5") == 0) {
                return true;
            }
        }
    }
    return false;
}

/* Everything that reads or writes numbers, as one text. `values` covers each path of the reader. */
static void exercise(char *out, size_t size)
{
    static const char *const numbers[] = {"0.5",
                                          "1e-3",
                                          "1234567.875",
                                          "0.1234567890123456789012345",
                                          "1.5e-300",
                                          "12345678901234567e-5",
                                          "-2.2250738585072014e-308",
                                          "1e400",
                                          "0,5"};
    size_t length = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        double value = 0;
        bool is_number = dk_json_parse_number(numbers[i], strlen(numbers[i]), &value);
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        length +=
            (size_t)snprintf(out + length, size - length, "%d %llx\n", is_number, (unsigned long long)bits);
        struct dk_json_text text = {0};
        dk_json_text_double(&text, value);
        dk_json_text_double(&text, -value / 3);
        length += (size_t)snprintf(out + length, size - length, "%s ", text.data);
        dk_json_text_free(&text);
        length += dk_json_write_float(out + length, (float)value / 3);
    }
    /* A number in the skeleton passes through cJSON as well. */
    static const char body[] = "{\"model\":1.5,\"x\":[[0.5,1e-3],[2.5,-3.25]]}";
    struct dk_json_reader *reader;
    struct dk_error error = {0};
    struct dk_matmul_request request;
    const char *skeleton;
    size_t skeleton_length;
    assert_int_equal(dk_json_reader_new(dk_native_paths, DK_NATIVE_TENSOR_COUNT, NULL, &reader), DK_OK);
    assert_int_equal(dk_json_reader_feed(reader, body, sizeof body - 1, &error), DK_OK);
    assert_int_equal(dk_json_reader_finish(reader, &skeleton, &skeleton_length, &error), DK_OK);
    assert_int_equal(dk_matmul_request_parse(skeleton, skeleton_length, &request, &error), DK_BAD_REQUEST);
    dk_json_reader_free(reader);
    length += (size_t)snprintf(out + length, size - length, "\n%s\n", error.message);
    static const float y[2] = {0.5F, 1e-20F};
    const struct dk_matmul_reply reply = {
        .model = "m", .rows = 1, .n = 2, .y = y, .kernel_ns = 1234, .variant = "v", .backend = "cpu"};
    struct dk_matmul_reply_writer writer;
    dk_matmul_reply_writer_init(&writer, &reply);
    length += dk_matmul_reply_writer_next(&writer, out + length, size - length - 1);
    out[length] = '\0';
    dk_matmul_reply_writer_deinit(&writer);
}

static void test_c42_decimal_comma_locale_changes_nothing(void **state)
{
    (void)state;
    static char expected[4096];
    static char got[4096];
    exercise(expected, sizeof expected);
    assert_non_null(strstr(expected, "[0.5,1e-20]"));
    assert_non_null(strstr(expected, "model: expected a string, found 1.5"));
    assert_non_null(strstr(expected, "\"kernel\":1.234"));
    if (!set_comma_locale()) {
        print_message("no locale with a decimal comma here, and localedef could not make one\n");
        skip();
    }
    exercise(got, sizeof got);
    assert_string_equal(got, expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_c42_decimal_comma_locale_changes_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
