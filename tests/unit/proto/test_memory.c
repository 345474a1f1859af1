/* test_memory.c: each allocation fails once: the caller gets DK_NO_MEMORY, nothing leaks, nothing is half
 * done. */
#include "tests/unit/proto/cmocka_all.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/native_api.h"
#include "proto/safetensors.h"

/* Linked with --wrap: the library's allocations come here. Negative: never fail. */
static int allocations_left = -1;

static bool must_fail(void)
{
    if (allocations_left < 0) {
        return false;
    }
    return allocations_left-- == 0;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t size);

void *__wrap_malloc(size_t size)
{
    return must_fail() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return must_fail() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *block, size_t size)
{
    return must_fail() ? NULL : __real_realloc(block, size);
}

/* Run with the first, the second, ... allocation failing until one run needs no more. */
static void fail_each(dk_status (*run)(struct dk_error *error))
{
    for (int n = 0;; n++) {
        struct dk_error error = {0};
        allocations_left = n;
        dk_status status = run(&error);
        bool has_failed = allocations_left < 0;
        allocations_left = -1;
        if (!has_failed) {
            assert_int_equal(status, DK_OK);
            assert_true(n > 0);
            return;
        }
        assert_int_equal(status, DK_NO_MEMORY);
    }
}

static dk_status read_body(struct dk_error *error)
{
    static char body[16 * 1024];
    struct dk_json_reader *reader;
    const char *skeleton;
    size_t length = 0;
    /* Enough keys and text that everything grows several times. */
    for (int i = 0; i < 200; i++) {
        length += (size_t)snprintf(body + length, sizeof body - length,
                                   "%c\"a rather long key %d\":\"value\"", i == 0 ? '{' : ',', i);
    }
    memcpy(body + length, ",\"x\":[1]}", 10);
    dk_status status = dk_json_reader_new(dk_native_paths, DK_NATIVE_TENSOR_COUNT, NULL, &reader);
    if (status == DK_OK) {
        status = dk_json_reader_feed(reader, body, strlen(body), error);
        if (status == DK_OK) {
            status = dk_json_reader_finish(reader, &skeleton, &length, error);
        } else {
            assert_int_equal(dk_json_reader_finish(reader, &skeleton, &length, error), status);
        }
        dk_json_reader_free(reader);
    }
    return status;
}

static dk_status read_header(struct dk_error *error)
{
    static unsigned char file[8 * 1024];
    char *header = (char *)file + 8;
    size_t length = 0;
    for (int i = 0; i < 40; i++) {
        length += (size_t)snprintf(header + length, sizeof file - 8 - length,
                                   "%c\"tensor%d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                                   i == 0 ? '{' : ',', i, i, i + 1);
    }
    header[length++] = '}';
    file[0] = (unsigned char)length;
    file[1] = (unsigned char)(length >> 8);
    struct dk_st_index index;
    dk_status status = dk_st_index_parse(file, 8 + length, 8 + length + 40, &index, error);
    if (status == DK_OK) {
        dk_st_index_deinit(&index);
    } else {
        assert_non_null(strstr(error->message, "memory"));
    }
    return status;
}

static dk_status parse_request(struct dk_error *error)
{
    static const char skeleton[] = "{\"model\":\"gate\",\"x\":null,\"id\":\"7\"}";
    struct dk_matmul_request request;
    cJSON_Hooks hooks = {__wrap_malloc, free};
    cJSON_InitHooks(&hooks);
    dk_status status = dk_matmul_request_parse(skeleton, sizeof skeleton - 1, &request, error);
    cJSON_InitHooks(NULL);
    return status;
}

static dk_status write_reply(struct dk_error *error)
{
    (void)error;
    static const float y[1] = {1};
    const struct dk_matmul_reply reply = {
        .model = "m", .rows = 1, .n = 1, .y = y, .variant = "v", .backend = "cpu"};
    struct dk_matmul_reply_writer writer;
    char out[512];
    size_t written;
    dk_matmul_reply_writer_init(&writer, &reply);
    do {
        written = dk_matmul_reply_writer_next(&writer, out, sizeof out);
    } while (written != 0 && written != SIZE_MAX);
    dk_matmul_reply_writer_deinit(&writer);
    return written == 0 ? DK_OK : DK_NO_MEMORY;
}

static void test_reader_survives_each_failing_allocation(void **state)
{
    (void)state;
    fail_each(read_body);
}

static void test_safetensors_survives_each_failing_allocation(void **state)
{
    (void)state;
    fail_each(read_header);
}

static void test_request_survives_each_failing_allocation(void **state)
{
    (void)state;
    fail_each(parse_request);
}

static void test_reply_survives_each_failing_allocation(void **state)
{
    (void)state;
    fail_each(write_reply);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reader_survives_each_failing_allocation),
        cmocka_unit_test(test_safetensors_survives_each_failing_allocation),
        cmocka_unit_test(test_request_survives_each_failing_allocation),
        cmocka_unit_test(test_reply_survives_each_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
