/* test_client_check.c: `decomposek check` on sound, lying and strange safetensors files (class C56). */
#include "tests/unit/client/run_cli.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <sys/stat.h>

static char folder[64], path[128];

static int set_up(void **state)
{
    (void)state;
    make_temporary_folder(folder);
    snprintf(path, sizeof path, "%s/w.safetensors", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remove_folder(folder);
    return 0;
}

/* Length word (that of `header` unless `length` says otherwise), header, `data_bytes` bytes of data. */
static void write_file(uint64_t length, const char *header, const void *data, size_t data_bytes)
{
    unsigned char bytes[4096];
    size_t header_bytes = strlen(header);
    assert_true(8 + header_bytes + data_bytes <= sizeof bytes);
    if (length == UINT64_MAX)
        length = header_bytes;
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(length >> (8 * i));
    memcpy(bytes + 8, header, header_bytes);
    if (data_bytes > 0)
        memcpy(bytes + 8 + header_bytes, data, data_bytes);
    write_bytes(path, bytes, 8 + header_bytes + data_bytes);
}

static const float two[2] = {1, NAN};
#define TWO_HEADER "{\"w\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]}}"

static void test_sound_file_is_listed(void **state)
{
    (void)state;
    write_file(UINT64_MAX, TWO_HEADER "   ", two, 8);
    struct cli_result result = RUN("check", path);
    check_exit(&result, 0);
    check_contains(result.out, "w       F32    [1, 2]      8\n");
    check_contains(result.out, "ok (1 tensors, 8 bytes of data)");
    assert_null(strstr(result.out, "NAN"));
    assert_string_equal(result.err, "");
}

static void test_deep_warns_of_nan_and_stays_ok(void **state)
{
    (void)state;
    write_file(UINT64_MAX, TWO_HEADER, two, 8);
    struct cli_result result = RUN("check", "--deep", path);
    check_exit(&result, 0);
    check_contains(result.out, "warning: 1 NaN and 0 infinite values");
    result = RUN("check", "--deep", "--json", path);
    check_exit(&result, 0);
    cJSON *report = cJSON_Parse(result.out);
    const cJSON *file = cJSON_GetArrayItem(cJSON_GetObjectItem(report, "files"), 0);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(file, "ok")));
    const cJSON *tensor = cJSON_GetArrayItem(cJSON_GetObjectItem(file, "tensors"), 0);
    assert_int_equal(cJSON_GetObjectItem(tensor, "nan")->valueint, 1);
    cJSON_Delete(report);
}

static void check_refused(const char *part)
{
    struct cli_result result = RUN("check", "--deep", path);
    check_exit(&result, 1);
    assert_string_equal(result.out, "");
    check_contains(result.err, path);
    check_contains(result.err, part);
}

static void test_c56_lying_headers_are_refused_with_file_and_reason(void **state)
{
    (void)state;
    static const struct {
        uint64_t length;
        const char *header, *part;
    } cases[] = {
        {0, "", "0"},
        {UINT64_C(1) << 63, TWO_HEADER, "9223372036854775808"},
        {100000001, TWO_HEADER, "100000001"},
        {1000, TWO_HEADER, "1000"},
        {UINT64_MAX, "[]", "expected '{'"},
        {UINT64_MAX, "{", ""},
        {UINT64_MAX, "{\"w\":{\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[0,8]}}", "\"w\""},
        {UINT64_MAX, "{\"w\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[8,0]}}", "\"w\""},
        {UINT64_MAX, "{\"w\":{\"dtype\":\"F32\",\"shape\":[1,4],\"data_offsets\":[0,16]}}", "\"w\""},
        {UINT64_MAX, "{\"w\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[4,8]}}", "\"w\""},
        {UINT64_MAX, "{\"w\":{\"dtype\":\"F32\",\"shape\":[-1,2],\"data_offsets\":[0,8]}}", "\"w\""},
        {UINT64_MAX, "{\"w\":{\"dtype\":\"F32\",\"shape\":[1.5,2],\"data_offsets\":[0,8]}}", "\"w\""},
        {UINT64_MAX, "{\"w\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}}",
         "\"w\""},
        {UINT64_MAX, "{\"w\":{\"shape\":[1,2],\"data_offsets\":[0,8]}}", "\"w\""},
        {UINT64_MAX, "{\"w\":7}", "\"w\""},
        {UINT64_MAX,
         "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"v\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         "\""},
        {UINT64_MAX,
         "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         "w"},
        {UINT64_MAX,
         "{\"__metadata__\":{\"a\":1},\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         "__metadata__"},
        {UINT64_MAX, "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_file(cases[i].length, cases[i].header, two, 8);
        check_refused(cases[i].part);
    }
}

static void test_c56_tiny_files_are_refused(void **state)
{
    (void)state;
    for (size_t length = 0; length <= 8; length++) {
        write_bytes(path, "\1\0\0\0\0\0\0\0", length);
        check_refused("");
    }
}

static void test_every_truncation_is_refused(void **state)
{
    (void)state;
    write_file(UINT64_MAX, TWO_HEADER, two, 8);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    for (off_t length = info.st_size - 1; length >= 0; length -= 5) {
        assert_int_equal(truncate(path, length), 0);
        check_refused("");
    }
}

static void test_only_regular_files_are_opened(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(path, 0600), 0);
    check_refused("not a regular file");
    struct cli_result result = RUN("check", folder);
    check_exit(&result, 1);
    check_contains(result.err, "not a regular file");
}

static void test_one_bad_file_among_good_ones_fails_the_whole(void **state)
{
    (void)state;
    write_file(UINT64_MAX, TWO_HEADER, two, 8);
    struct cli_result result = RUN("check", path, "/nonexistent.safetensors", path, "--json");
    check_exit(&result, 1);
    check_contains(result.err, "/nonexistent.safetensors");
    cJSON *report = cJSON_Parse(result.out);
    const cJSON *files = cJSON_GetObjectItem(report, "files");
    assert_int_equal(cJSON_GetArraySize(files), 3);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(cJSON_GetArrayItem(files, 0), "ok")));
    const cJSON *bad = cJSON_GetArrayItem(files, 1);
    assert_true(cJSON_IsFalse(cJSON_GetObjectItem(bad, "ok")));
    assert_string_equal(cJSON_GetObjectItem(bad, "status")->valuestring, "IO_ERROR");
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(cJSON_GetArrayItem(files, 2), "ok")));
    cJSON_Delete(report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sound_file_is_listed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_deep_warns_of_nan_and_stays_ok, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_c56_lying_headers_are_refused_with_file_and_reason, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_c56_tiny_files_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_truncation_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_only_regular_files_are_opened, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_one_bad_file_among_good_ones_fails_the_whole, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
