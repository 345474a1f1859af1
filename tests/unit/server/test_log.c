/* test_log.c: one line per call, escaped values, JSON and key=value, the rate limit. */
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include <cjson/cJSON.h>

#include "server/clock.h"
#include "server/log.h"

static char captured[1 << 16];
static int saved_stderr, capture_fd;

static void capture_start(void)
{
    fflush(stderr);
    saved_stderr = dup(STDERR_FILENO);
    capture_fd = memfd_create("log", MFD_CLOEXEC);
    assert_true(saved_stderr >= 0 && capture_fd >= 0);
    assert_true(dup2(capture_fd, STDERR_FILENO) >= 0);
}

static const char *capture_end(void)
{
    assert_true(dup2(saved_stderr, STDERR_FILENO) >= 0);
    ssize_t length = pread(capture_fd, captured, sizeof captured - 1, 0);
    assert_true(length >= 0);
    captured[length] = '\0';
    close(saved_stderr);
    close(capture_fd);
    return captured;
}

static size_t count_lines(const char *text)
{
    size_t lines = 0;
    for (; *text != '\0'; text++)
        lines += *text == '\n';
    return lines;
}

static void test_key_value_line_has_time_level_event_and_pairs(void **state)
{
    (void)state;
    dk_log_init(DK_LOG_INFO, DK_LOG_FORMAT_KV);
    capture_start();
    dk_log(DK_LOG_INFO, "model_loaded", "name=%s n=%llu bytes=%zu delta=%d", "gate", 256ull, (size_t)3670016,
           -5);
    const char *line = capture_end();
    int year, month, day, hour, minute, second, ms, taken = 0;
    assert_int_equal(sscanf(line, "time=%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &year, &month, &day, &hour, &minute,
                            &second, &ms, &taken),
                     7);
    assert_string_equal(line + taken,
                        " level=info event=model_loaded name=gate n=256 bytes=3670016 delta=-5\n");
}

static void test_json_line_parses_and_keeps_numbers_as_numbers(void **state)
{
    (void)state;
    dk_log_init(DK_LOG_INFO, DK_LOG_FORMAT_JSON);
    capture_start();
    dk_log(DK_LOG_WARN, "x", "name=%s n=%llu ratio=%.3f nan=%f reason=\"%s of %d\" hex=%x", "007", 256ull,
           0.5, (double)NAN, "one", 2, 255u);
    const char *line = capture_end();
    assert_int_equal(count_lines(line), 1);
    cJSON *json = cJSON_Parse(line);
    assert_non_null(json);
    assert_string_equal(cJSON_GetObjectItem(json, "level")->valuestring, "warn");
    assert_string_equal(cJSON_GetObjectItem(json, "name")->valuestring, "007"); /* a string stays one */
    assert_true(cJSON_GetObjectItem(json, "n")->valuedouble == 256.0);
    assert_true(cJSON_GetObjectItem(json, "ratio")->valuedouble == 0.5);
    assert_string_equal(cJSON_GetObjectItem(json, "nan")->valuestring, "nan");
    assert_string_equal(cJSON_GetObjectItem(json, "reason")->valuestring, "one of 2");
    assert_string_equal(cJSON_GetObjectItem(json, "hex")->valuestring, "ff");
    cJSON_Delete(json);
}

static const char hostile[] = "a\nlevel=error event=forged x=\"y\" \\ \r\t\x1b[31m \xc2\x9b \xe2\x80\xa8 "
                              "\xff\xc3 \xed\xa0\x80 \xc3\xa9";

static void test_client_text_cannot_forge_a_line_or_a_key(void **state)
{
    (void)state;
    dk_log_init(DK_LOG_INFO, DK_LOG_FORMAT_KV);
    capture_start();
    dk_log(DK_LOG_INFO, "request", "path=%s after=%d", hostile, 1);
    const char *line = capture_end();
    assert_int_equal(count_lines(line), 1);
    assert_non_null(strstr(line,
                           "path=\"a\\nlevel=error event=forged x=\\\"y\\\" \\\\ \\u000d\\u0009\\u001b[31m "
                           "\\u009b \\u2028 \\xff\\xc3 \\xed\\xa0\\x80 \xc3\xa9\" after=1\n"));
}

static void test_client_text_cannot_break_json(void **state)
{
    (void)state;
    dk_log_init(DK_LOG_INFO, DK_LOG_FORMAT_JSON);
    capture_start();
    dk_log(DK_LOG_INFO, "request", "path=%s after=%d", hostile, 1);
    const char *line = capture_end();
    assert_int_equal(count_lines(line), 1);
    cJSON *json = cJSON_Parse(line);
    assert_non_null(json);
    assert_int_equal(cJSON_GetArraySize(json), 5);
    assert_string_equal(cJSON_GetObjectItem(json, "path")->valuestring,
                        "a\nlevel=error event=forged x=\"y\" \\ \r\t\x1b[31m \xc2\x9b \xe2\x80\xa8 "
                        "\xef\xbf\xbd\xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd \xc3\xa9");
    cJSON_Delete(json);
}

static void test_long_values_are_cut_and_the_line_stays_whole(void **state)
{
    (void)state;
    static char huge[20000];
    memset(huge, 'a', sizeof huge - 1);
    for (int format = DK_LOG_FORMAT_KV; format <= DK_LOG_FORMAT_JSON; format++) {
        dk_log_init(DK_LOG_INFO, (enum dk_log_format)format);
        capture_start();
        dk_log(DK_LOG_INFO, "x", "a=%s b=%s c=%s d=%s e=%s f=%d", huge, huge, huge, huge, huge, 1);
        const char *line = capture_end();
        size_t length = strlen(line);
        assert_true(length <= 4096 && line[length - 1] == '\n');
        assert_int_equal(count_lines(line), 1);
        assert_non_null(strstr(line, "aaa..."));
        assert_non_null(strstr(line, "truncated"));
        if (format == DK_LOG_FORMAT_JSON) {
            cJSON *json = cJSON_Parse(line);
            assert_non_null(json);
            assert_true(cJSON_IsTrue(cJSON_GetObjectItem(json, "truncated")));
            assert_true(cJSON_GetObjectItem(json, "f")->valuedouble == 1.0); /* small pairs still fit */
            cJSON_Delete(json);
        }
    }
}

static void test_cut_in_a_character_leaves_no_half_of_it(void **state)
{
    (void)state;
    static char text[3000];
    for (size_t i = 0; i + 3 < sizeof text; i += 3)
        memcpy(text + i, "\xe2\x82\xac", 3); /* euro */
    dk_log_init(DK_LOG_INFO, DK_LOG_FORMAT_KV);
    capture_start();
    dk_log(DK_LOG_INFO, "x", "a=%s", text);
    const char *line = capture_end();
    assert_non_null(strstr(line, "\xe2\x82\xac...\""));
    assert_null(strstr(line, "\\x"));
}

static void test_empty_and_null_strings_are_visible(void **state)
{
    (void)state;
    dk_log_init(DK_LOG_INFO, DK_LOG_FORMAT_KV);
    const char *volatile none = NULL;
    capture_start();
    dk_log(DK_LOG_INFO, "x", "a=%s b=%s c=%.*s d=%5d%%", "", none, 2, "xyz", 7);
    assert_non_null(strstr(capture_end(), " a=\"\" b=(null) c=xy d=\"    7%\"\n"));
}

static void test_levels_below_the_limit_write_nothing(void **state)
{
    (void)state;
    dk_log_init(DK_LOG_WARN, DK_LOG_FORMAT_KV);
    capture_start();
    dk_log(DK_LOG_INFO, "x", "a=%d", 1);
    dk_log(DK_LOG_DEBUG, "x", "a=%d", 1);
    dk_log(DK_LOG_WARN, "y", "a=%d", 1);
    dk_log(DK_LOG_ERROR, "z", "a=%d", 1);
    assert_int_equal(count_lines(capture_end()), 2);
    assert_false(dk_log_enabled(DK_LOG_INFO));
    assert_true(dk_log_enabled(DK_LOG_ERROR));
}

static void test_errno_survives_a_line(void **state)
{
    (void)state;
    dk_log_init(DK_LOG_INFO, DK_LOG_FORMAT_KV);
    capture_start();
    int before = dup(STDERR_FILENO);
    close(STDERR_FILENO);
    errno = ENOENT;
    dk_log(DK_LOG_INFO, "x", "a=%d", 1);
    int after = errno;
    dup2(before, STDERR_FILENO);
    close(before);
    capture_end();
    assert_int_equal(after, ENOENT);
}

static void test_c42_numbers_keep_the_point_under_a_comma_locale(void **state)
{
    (void)state;
    const char *names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE"};
    const char *taken = NULL;
    for (size_t i = 0; i < 3 && taken == NULL; i++)
        taken = setlocale(LC_ALL, names[i]);
    if (taken == NULL)
        skip();
    dk_log_init(DK_LOG_INFO, DK_LOG_FORMAT_KV);
    capture_start();
    dk_log(DK_LOG_INFO, "x", "a=%.2f b=%g", 0.25, 1.5);
    const char *line = capture_end();
    setlocale(LC_ALL, "C");
    assert_non_null(strstr(line, " a=0.25 b=1.5\n"));
}

static void *log_many(void *context)
{
    for (int i = 0; i < 200; i++)
        dk_log(DK_LOG_INFO, "x", "thread=%s i=%d pad=%0100d", (const char *)context, i, 0);
    return NULL;
}

static void test_lines_of_threads_do_not_mix_in_a_pipe(void **state)
{
    (void)state;
    dk_log_init(DK_LOG_INFO, DK_LOG_FORMAT_KV);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_true(fcntl(ends[1], F_SETPIPE_SZ, 1 << 20) > 0);
    int saved = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, log_many, "t"), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[1]);
    FILE *lines = fdopen(ends[0], "r");
    char line[4096];
    int count = 0;
    for (; fgets(line, sizeof line, lines) != NULL; count++) {
        assert_memory_equal(line, "time=", 5);
        assert_int_equal(line[strlen(line) - 1], '\n');
        assert_ptr_equal(strstr(line + 1, "time="), NULL);
    }
    fclose(lines);
    assert_int_equal(count, 800);
}

struct limit_test {
    struct dk_log_limit limit;
    _Atomic unsigned allowed;
};

static void *try_many(void *context)
{
    struct limit_test *test = context;
    for (int i = 0; i < 2000; i++)
        test->allowed += dk_log_allow(&test->limit, 5);
    return NULL;
}

static void test_limit_holds_across_threads(void **state)
{
    (void)state;
    struct limit_test test = {0};
    pthread_t threads[4];
    uint64_t begin_second = dk_clock_now_ns() / 1000000000u;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, try_many, &test), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    uint64_t seconds = dk_clock_now_ns() / 1000000000u - begin_second + 1;
    assert_true(test.allowed >= 5);
    assert_true(test.allowed <= 5 * seconds);
}

static void test_limit_opens_again_in_the_next_second(void **state)
{
    (void)state;
    struct dk_log_limit limit = {0};
    limit.window = (dk_clock_now_ns() / 1000000000u) << 16 | 9; /* used up a second ago */
    assert_true(dk_log_allow(&limit, 5));
    assert_false(dk_log_allow(&limit, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_key_value_line_has_time_level_event_and_pairs),
        cmocka_unit_test(test_json_line_parses_and_keeps_numbers_as_numbers),
        cmocka_unit_test(test_client_text_cannot_forge_a_line_or_a_key),
        cmocka_unit_test(test_client_text_cannot_break_json),
        cmocka_unit_test(test_long_values_are_cut_and_the_line_stays_whole),
        cmocka_unit_test(test_cut_in_a_character_leaves_no_half_of_it),
        cmocka_unit_test(test_empty_and_null_strings_are_visible),
        cmocka_unit_test(test_levels_below_the_limit_write_nothing),
        cmocka_unit_test(test_errno_survives_a_line),
        cmocka_unit_test(test_c42_numbers_keep_the_point_under_a_comma_locale),
        cmocka_unit_test(test_lines_of_threads_do_not_mix_in_a_pipe),
        cmocka_unit_test(test_limit_holds_across_threads),
        cmocka_unit_test(test_limit_opens_again_in_the_next_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
