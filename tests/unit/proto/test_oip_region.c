/* test_oip_region.c: registration bodies of shared memory, and the lists of regions. */
#include "tests/unit/proto/oip_parse.h"

/* A body through the reader, as the daemon does it, then through `parse`. */
#define PARSED(parse, body, out, error)                                                                      \
    do {                                                                                                     \
        struct dk_json_reader *reader;                                                                       \
        const char *skeleton;                                                                                \
        size_t length;                                                                                       \
        assert_int_equal(dk_json_reader_new(NULL, 0, NULL, &reader), DK_OK);                                 \
        assert_int_equal(dk_json_reader_feed(reader, body, strlen(body), error), DK_OK);                     \
        assert_int_equal(dk_json_reader_finish(reader, &skeleton, &length, error), DK_OK);                   \
        status = parse(skeleton, length, out, error);                                                        \
        dk_json_reader_free(reader);                                                                         \
    } while (0)

static void accept_system(const char *body, struct dk_oip_system_region *region)
{
    struct dk_error error = {0};
    dk_status status;
    PARSED(dk_oip_system_region_parse, body, region, &error);
    if (status != DK_OK) {
        fail_msg("refused: %s\n%s", body, error.message);
    }
}

static void refuse_system(const char *body, dk_status expected, const char *text)
{
    struct dk_oip_system_region region;
    struct dk_oip_system_region untouched;
    struct dk_error error = {0};
    dk_status status;
    memset(&region, 0x55, sizeof region);
    memset(&untouched, 0x55, sizeof untouched);
    PARSED(dk_oip_system_region_parse, body, &region, &error);
    if (status != expected || strstr(error.message, text) == NULL) {
        fail_msg("%s\n%s, expected %s with \"%s\": %s", body, dk_status_name(status),
                 dk_status_name(expected), text, error.message);
    }
    assert_memory_equal(&region, &untouched, sizeof region);
}

static void test_system_region(void **state)
{
    (void)state;
    struct dk_oip_system_region region;
    accept_system("{\"key\":\"/in_0\",\"offset\":64,\"byte_size\":4096,\"more\":[]}", &region);
    assert_string_equal(region.key, "/in_0");
    assert_string_equal(region.object, "in_0");
    assert_true(region.offset == 64 && region.byte_size == 4096);
    accept_system("{\"key\":\"k\",\"byte_size\":9223372036854775807}", &region);
    assert_string_equal(region.object, "k");
    assert_true(region.offset == 0 && region.byte_size == INT64_MAX);
    accept_system("{\"byte_size\":1,\"key\":\"//k\"}", &region);
    assert_string_equal(region.key, "//k");
    assert_string_equal(region.object, "k");
    accept_system("{\"byte_size\":1,\"key\":\"/\\u00e9 ...\"}", &region);
    assert_string_equal(region.object, "\xC3\xA9 ...");
}

static void test_keys_cannot_leave_the_folder_of_shared_memory(void **state)
{
    (void)state;
    static const char *const keys[] = {"",     "/",        "//",   "/a/b", "a/",     "/../x",
                                       "..",   "/..",      "//..", ".",    "/a\\/b", "a\\u002fb",
                                       "/\\n", "a\\u007f", "//./", "/./a", "\\u002f"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char body[128];
        (void)snprintf(body, sizeof body, "{\"key\":\"%s\",\"byte_size\":1}", keys[i]);
        refuse_system(body, DK_BAD_VALUE, "key: expected the name of a shared memory object");
    }
    char body[512];
    (void)snprintf(body, sizeof body, "{\"key\":\"%0256d\",\"byte_size\":1}", 1);
    refuse_system(body, DK_BAD_VALUE, "key: expected a string of at most 255 bytes");
}

static void test_c46_sizes_are_in_range(void **state)
{
    (void)state;
    refuse_system("{\"key\":\"/k\",\"byte_size\":0}", DK_BAD_VALUE,
                  "byte_size: expected 1 to 2^63 - 1, found 0");
    refuse_system("{\"key\":\"/k\",\"byte_size\":9223372036854775808}", DK_BAD_VALUE, "byte_size");
    refuse_system("{\"key\":\"/k\",\"byte_size\":18446744073709551616}", DK_BAD_REQUEST, "byte_size");
    refuse_system("{\"key\":\"/k\",\"byte_size\":-1}", DK_BAD_REQUEST, "byte_size");
    refuse_system("{\"key\":\"/k\",\"byte_size\":\"1\"}", DK_BAD_REQUEST, "byte_size");
    refuse_system("{\"key\":\"/k\",\"byte_size\":1.0}", DK_BAD_REQUEST, "byte_size");
    refuse_system("{\"key\":\"/k\",\"byte_size\":8,\"offset\":-1}", DK_BAD_REQUEST, "offset");
    refuse_system("{\"key\":\"/k\",\"byte_size\":8,\"offset\":9223372036854775800}", DK_BAD_VALUE,
                  "expected offset + byte_size below 2^63, found 9223372036854775800 + 8");
    refuse_system("{\"key\":\"/k\",\"byte_size\":8,\"offset\":18446744073709551615}", DK_BAD_VALUE, "offset");
}

static void test_system_region_members(void **state)
{
    (void)state;
    refuse_system("{}", DK_BAD_REQUEST, "key is missing");
    refuse_system("{\"key\":\"/k\"}", DK_BAD_REQUEST, "byte_size is missing");
    refuse_system("{\"key\":7,\"byte_size\":1}", DK_BAD_REQUEST, "key: expected a string, found 7");
    refuse_system("{\"key\":null,\"byte_size\":1}", DK_BAD_REQUEST, "key: expected a string, found null");
}

#define SIXTEEN "AAECAwQFBgcICQoL"
#define HANDLE  SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN "DA0OAw=="
_Static_assert(sizeof HANDLE - 1 == 88, "64 bytes");

static dk_status parse_cuda(const char *body, struct dk_oip_cuda_region *region, struct dk_error *error)
{
    dk_status status;
    PARSED(dk_oip_cuda_region_parse, body, region, error);
    return status;
}

static void test_cuda_region(void **state)
{
    (void)state;
    struct dk_oip_cuda_region region;
    struct dk_error error;
    assert_int_equal(parse_cuda("{\"raw_handle\":{\"b64\":\"" HANDLE "\"},\"device_id\":3,\"byte_size\":64}",
                                &region, &error),
                     DK_OK);
    for (size_t i = 0; i < 60; i++) {
        assert_int_equal(region.handle[i], i % 12);
    }
    assert_memory_equal(region.handle + 60, "\x0C\x0D\x0E\x03", 4);
    assert_true(region.device_id == 3 && region.byte_size == 64);
}

static void test_cuda_handles_are_64_bytes_of_base64(void **state)
{
    (void)state;
    static const char *const handles[] = {"",
                                          "AAAA",
                                          SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN "DA0OAwAA",
                                          SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN "DA0OAw=A",
                                          SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN "DA0O-w==",
                                          SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN "DA0OAx==",
                                          SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN "DA0OAw",
                                          SIXTEEN SIXTEEN SIXTEEN SIXTEEN SIXTEEN "DA0OAw==\\n"};
    for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++) {
        char body[256];
        struct dk_oip_cuda_region region;
        struct dk_error error;
        (void)snprintf(body, sizeof body, "{\"raw_handle\":{\"b64\":\"%s\"},\"device_id\":0,\"byte_size\":1}",
                       handles[i]);
        assert_int_equal(parse_cuda(body, &region, &error), DK_BAD_VALUE);
        assert_non_null(strstr(error.message, "raw_handle.b64: expected 64 bytes in base64"));
    }
}

static void test_cuda_region_members(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        dk_status status;
        const char *text;
    } cases[] = {
        {"{\"device_id\":0,\"byte_size\":1}", DK_BAD_REQUEST, "raw_handle.b64 is missing"},
        {"{\"raw_handle\":{},\"device_id\":0,\"byte_size\":1}", DK_BAD_REQUEST, "raw_handle.b64 is missing"},
        {"{\"raw_handle\":\"" HANDLE "\"}", DK_BAD_REQUEST, "raw_handle: expected an object"},
        {"{\"raw_handle\":{\"b64\":5}}", DK_BAD_REQUEST, "raw_handle.b64: expected a string, found 5"},
        {"{\"raw_handle\":{\"b64\":\"" HANDLE "\"},\"byte_size\":1}", DK_BAD_REQUEST, "device_id is missing"},
        {"{\"raw_handle\":{\"b64\":\"" HANDLE "\"},\"device_id\":0}", DK_BAD_REQUEST, "byte_size is missing"},
        {"{\"device_id\":-1}", DK_BAD_REQUEST, "device_id: expected an unsigned integer"},
        {"{\"device_id\":2147483648}", DK_BAD_VALUE, "device_id: expected the number of a device"},
        {"{\"byte_size\":0}", DK_BAD_VALUE, "byte_size: expected 1 to 2^63 - 1, found 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dk_oip_cuda_region region;
        struct dk_error error = {0};
        assert_int_equal(parse_cuda(cases[i].body, &region, &error), cases[i].status);
        if (strstr(error.message, cases[i].text) == NULL) {
            fail_msg("expected \"%s\", found: %s", cases[i].text, error.message);
        }
    }
}

static void test_lists_of_regions_are_arrays(void **state)
{
    (void)state;
    static const struct dk_oip_system_status system[] = {{"in", "/k\"", 0, 4096},
                                                         {"out", "//o", 64, UINT64_MAX}};
    static const struct dk_oip_cuda_status cuda[] = {{"g", 1, 64}, {"h", 0, 1}};
    struct dk_json_text text = {0};
    dk_oip_system_regions(&text, system, 2);
    assert_string_equal(text.data,
                        "[{\"name\":\"in\",\"key\":\"/k\\\"\",\"offset\":0,\"byte_size\":4096},{\"name\":"
                        "\"out\",\"key\":\"//o\",\"offset\":64,\"byte_size\":18446744073709551615}]");
    text.length = 0;
    dk_oip_cuda_regions(&text, cuda, 2);
    assert_string_equal(text.data,
                        "[{\"name\":\"g\",\"device_id\":1,\"byte_size\":64},{\"name\":\"h\",\"device_id\":"
                        "0,\"byte_size\":1}]");
    text.length = 0;
    dk_oip_system_regions(&text, NULL, 0);
    dk_oip_cuda_regions(&text, NULL, 0);
    assert_string_equal(text.data, "[][]");
    dk_json_text_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_system_region),
        cmocka_unit_test(test_keys_cannot_leave_the_folder_of_shared_memory),
        cmocka_unit_test(test_c46_sizes_are_in_range),
        cmocka_unit_test(test_system_region_members),
        cmocka_unit_test(test_cuda_region),
        cmocka_unit_test(test_cuda_handles_are_64_bytes_of_base64),
        cmocka_unit_test(test_cuda_region_members),
        cmocka_unit_test(test_lists_of_regions_are_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
