/* test_api_keys.c: what a key file may hold, who may enter, and rotation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/api_keys.h"
#include "server/log.h"

static char path[64];
static struct dk_error error;

static int make_path(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/dk_keys_XXXXXX");
    int fd = mkstemp(path);
    dk_log_init(DK_LOG_ERROR, DK_LOG_FORMAT_KV);
    return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_keys(const char *text, size_t length)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static struct dk_api_keys *open_keys(const char *text)
{
    struct dk_api_keys *keys = NULL;
    write_keys(text, strlen(text));
    assert_int_equal(dk_api_keys_new(path, &keys, &error), DK_OK);
    return keys;
}

static void test_without_a_file_everybody_may_enter(void **state)
{
    (void)state;
    struct dk_api_keys *keys = NULL;
    assert_int_equal(dk_api_keys_new(NULL, &keys, &error), DK_OK);
    assert_int_equal(dk_api_keys_count(keys), 0);
    assert_int_equal(dk_api_keys_check(keys, NULL, &error), DK_OK);
    assert_int_equal(dk_api_keys_check(NULL, "Bearer x", &error), DK_OK);
    assert_int_equal(dk_api_keys_reload(keys, &error), DK_OK);
    dk_api_keys_free(keys);
    dk_api_keys_free(NULL);
}

static void test_every_key_of_the_file_opens(void **state)
{
    (void)state;
    struct dk_api_keys *keys =
        open_keys("# operators\nfirst-key\r\n\n  \nsecond+key/with=signs  \nthird-key");
    assert_int_equal(dk_api_keys_count(keys), 3);
    static const char *const good[] = {"Bearer first-key", "bearer first-key",
                                       "BEARER  second+key/with=signs", "Bearer third-key"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_int_equal(dk_api_keys_check(keys, good[i], &error), DK_OK);
    dk_api_keys_free(keys);
}

static void test_anything_else_is_refused_and_not_quoted(void **state)
{
    (void)state;
    struct dk_api_keys *keys = open_keys("first-key\n");
    static const char *const bad[] = {"",
                                      "Bearer",
                                      "Bearer ",
                                      "Bearer first-ke",
                                      "Bearer first-key2",
                                      "Bearer First-key",
                                      "Bearer first-key first-key",
                                      "Bearer first-key ",
                                      "Basic first-key",
                                      "first-key",
                                      "Bearer\tfirst-key",
                                      "Bearer # operators"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(dk_api_keys_check(keys, bad[i], &error), DK_UNAUTHORIZED);
        assert_null(strstr(error.message, "irst-key"));
    }
    assert_int_equal(dk_api_keys_check(keys, NULL, &error), DK_UNAUTHORIZED);
    char longer[600] = "Bearer ";
    memset(longer + 7, 'x', 500);
    assert_int_equal(dk_api_keys_check(keys, longer, &error), DK_UNAUTHORIZED);
    dk_api_keys_free(keys);
}

static void test_longest_key_opens(void **state)
{
    (void)state;
    char text[DK_API_KEY_MAX_BYTES + 1], header[DK_API_KEY_MAX_BYTES + 16];
    memset(text, 'k', DK_API_KEY_MAX_BYTES);
    text[DK_API_KEY_MAX_BYTES] = '\0';
    struct dk_api_keys *keys = open_keys(text);
    snprintf(header, sizeof header, "Bearer %s", text);
    assert_int_equal(dk_api_keys_check(keys, header, &error), DK_OK);
    header[strlen(header) - 1] = '\0';
    assert_int_equal(dk_api_keys_check(keys, header, &error), DK_UNAUTHORIZED);
    dk_api_keys_free(keys);
}

static void test_bad_files_are_refused_without_their_text(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t length;
        const char *message;
    } bad[] = {
        {"", 0, "no key"},
        {"# only a comment\n", 17, "no key"},
        {"good-key-1\nshort\n", 17, ":2:"},
        {"two words here\n", 15, ":1:"},
        {"nul\0inside-key\n", 15, ":1:"},
        {"\xC3\xBCmlaut-key\n", 13, ":1:"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct dk_api_keys *keys = NULL;
        write_keys(bad[i].text, bad[i].length);
        assert_int_equal(dk_api_keys_new(path, &keys, &error), DK_BAD_FILE);
        assert_non_null(strstr(error.message, bad[i].message));
        assert_null(strstr(error.message, "short"));
        assert_null(keys);
    }
    struct dk_api_keys *keys = NULL;
    assert_int_equal(dk_api_keys_new("/tmp", &keys, &error), DK_BAD_FILE);
    assert_int_equal(dk_api_keys_new("/nonexistent/keys", &keys, &error), DK_IO_ERROR);
}

static void test_too_many_keys_or_bytes_are_refused(void **state)
{
    (void)state;
    size_t size = 100000, length = 0;
    char *text = malloc(size);
    assert_non_null(text);
    for (int i = 0; i <= DK_API_KEYS_MAX; i++)
        length += (size_t)snprintf(text + length, size - length, "key-number-%d\n", i);
    struct dk_api_keys *keys = NULL;
    write_keys(text, length);
    assert_int_equal(dk_api_keys_new(path, &keys, &error), DK_BAD_FILE);
    assert_non_null(strstr(error.message, ":33:"));
    memset(text, '\n', size);
    write_keys(text, size);
    assert_int_equal(dk_api_keys_new(path, &keys, &error), DK_BAD_FILE);
    free(text);
}

static void test_reload_rotates_and_a_bad_file_keeps_the_old_keys(void **state)
{
    (void)state;
    struct dk_api_keys *keys = open_keys("first-key\nlater-key\n");
    write_keys("later-key\n", 10);
    assert_int_equal(dk_api_keys_reload(keys, &error), DK_OK);
    assert_int_equal(dk_api_keys_check(keys, "Bearer first-key", &error), DK_UNAUTHORIZED);
    assert_int_equal(dk_api_keys_check(keys, "Bearer later-key", &error), DK_OK);
    write_keys("bad\n", 4);
    assert_int_equal(dk_api_keys_reload(keys, &error), DK_BAD_FILE);
    assert_int_equal(dk_api_keys_check(keys, "Bearer later-key", &error), DK_OK);
    assert_int_equal(dk_api_keys_count(keys), 1);
    dk_api_keys_free(keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_a_file_everybody_may_enter),
        cmocka_unit_test(test_every_key_of_the_file_opens),
        cmocka_unit_test(test_anything_else_is_refused_and_not_quoted),
        cmocka_unit_test(test_longest_key_opens),
        cmocka_unit_test(test_bad_files_are_refused_without_their_text),
        cmocka_unit_test(test_too_many_keys_or_bytes_are_refused),
        cmocka_unit_test(test_reload_rotates_and_a_bad_file_keeps_the_old_keys),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
