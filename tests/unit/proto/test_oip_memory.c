/* test_oip_memory.c: each allocation of an infer answer, and of its parser, fails once. */
#include "tests/unit/proto/oip_parse.h"

#include <stdlib.h>

/* Linked with --wrap: the library's allocations come here. Negative: never fail. */
static int allocations_left = -1;

static bool must_fail(void)
{
    return allocations_left >= 0 && allocations_left-- == 0;
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
static void fail_each(bool (*run)(void))
{
    for (int n = 0;; n++) {
        allocations_left = n;
        bool is_done = run();
        bool has_failed = allocations_left < 0;
        allocations_left = -1;
        assert_int_equal(is_done, !has_failed);
        if (!has_failed) {
            assert_true(n > 0);
            return;
        }
    }
}

enum { VALUE_COUNT = 300, LONG_NAME_BYTES = 3000 };
static float values[VALUE_COUNT];
static char long_name[LONG_NAME_BYTES + 1]; /* makes the text grow several times */

static struct dk_oip_reply make_reply(struct dk_oip_output outputs[2])
{
    memset(long_name, 'n', LONG_NAME_BYTES);
    for (int i = 0; i < 2; i++) {
        outputs[i] = (struct dk_oip_output){.name = long_name,
                                            .dtype = DK_FP32,
                                            .rows = 1,
                                            .row_length = VALUE_COUNT,
                                            .data = values,
                                            .kind = i == 0 ? DK_OIP_OUTPUT_JSON : DK_OIP_OUTPUT_BINARY};
    }
    return (struct dk_oip_reply){.model_name = "m", .outputs = outputs, .output_count = 2};
}

static bool write_answer(void)
{
    struct dk_oip_output outputs[2];
    const struct dk_oip_reply reply = make_reply(outputs);
    struct dk_oip_reply_writer writer;
    char out[512];
    size_t written;
    dk_oip_reply_writer_init(&writer, &reply);
    do {
        written = dk_oip_reply_writer_next(&writer, out, sizeof out);
    } while (written != 0 && written != SIZE_MAX);
    dk_oip_reply_writer_deinit(&writer);
    return written == 0;
}

static void test_answer_says_that_memory_ran_out(void **state)
{
    (void)state;
    fail_each(write_answer);
}

static bool measure_answer(void)
{
    struct dk_oip_output outputs[2];
    const struct dk_oip_reply reply = make_reply(outputs);
    return dk_oip_reply_json_bytes(&reply) != SIZE_MAX;
}

static void test_length_of_an_answer_says_that_memory_ran_out(void **state)
{
    (void)state;
    fail_each(measure_answer);
}

/* Parsing itself needs no memory beyond the reader's. */
static void test_requests_are_parsed_without_allocation(void **state)
{
    (void)state;
    struct dk_oip_request request;
    struct dk_json_reader *reader;
    struct dk_error error = {0};
    assert_int_equal(dk_json_reader_new(dk_oip_paths, DK_OIP_PATH_COUNT, NULL, &reader), DK_OK);
    assert_int_equal(dk_json_reader_feed(reader, OIP_GOOD, sizeof OIP_GOOD - 1, &error), DK_OK);
    allocations_left = 0;
    dk_status status = dk_oip_request_parse(reader, &request, &error);
    bool was_untouched = allocations_left == 0;
    allocations_left = -1;
    assert_int_equal(status, DK_OK);
    assert_true(was_untouched);
    dk_json_reader_free(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answer_says_that_memory_ran_out),
        cmocka_unit_test(test_length_of_an_answer_says_that_memory_ran_out),
        cmocka_unit_test(test_requests_are_parsed_without_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
