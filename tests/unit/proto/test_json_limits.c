/* test_json_limits.c: what a hostile body can cost: depth, skeleton size, key collisions, token length, and
 * work that grows with the body only. */
#include "tests/unit/proto/json_feed.h"

#include <malloc.h>
#include <stdio.h>

static struct feed_result result;

/* `count` copies of `unit`, between `head` and `tail`. The caller frees. */
static char *repeat(const char *head, const char *unit, size_t count, const char *tail)
{
    size_t head_length = strlen(head);
    size_t unit_length = strlen(unit);
    char *body = malloc(head_length + unit_length * count + strlen(tail) + 1);
    assert_non_null(body);
    memcpy(body, head, head_length);
    for (size_t i = 0; i < count; i++) {
        memcpy(body + head_length + i * unit_length, unit, unit_length);
    }
    memcpy(body + head_length + unit_length * count, tail, strlen(tail) + 1);
    return body;
}

static void expect(char *body, dk_status status, const char *part)
{
    feed(body, &result);
    if (result.status != status || strstr(result.message, part) == NULL) {
        fail_msg("%.60s: got %s \"%s\", expected %s with \"%s\"", body, dk_status_name(result.status),
                 result.message, dk_status_name(status), part);
    }
    free(body);
}

static void test_c31_deep_nesting_is_refused(void **state)
{
    (void)state;
    enum { DEEP = 1000000 };
    /* The offset in the message shows that the reader stopped there instead of reading on. */
    expect(repeat("{\"x\":", "[", DEEP, ""), DK_BAD_SHAPE, "at byte 13: x: arrays are nested deeper than 8");
    expect(repeat("{\"k\":", "[", DEEP, ""), DK_BAD_JSON, "at byte 36: nested deeper than 32");
    expect(repeat("{\"k\":", "{\"a\":", DEEP, ""), DK_BAD_JSON, "at byte 160: nested deeper than 32");
    expect(repeat("{\"parameters\":", "[{\"a\":", DEEP, ""), DK_BAD_JSON, "nested deeper than 32");
    expect(repeat("{\"inputs\":[{\"data\":", "[", DEEP, ""), DK_BAD_SHAPE,
           "inputs[0].data: arrays are nested deeper than 8");
    expect(repeat("", "{\"x\":", DEEP, ""), DK_BAD_JSON, "nested deeper than 32");
    expect(repeat("", "[", DEEP, ""), DK_BAD_JSON, "at byte 0: expected a JSON object");
}

static void test_c31_balanced_nests_at_the_limit(void **state)
{
    (void)state;
    char body[256];
    for (int depth = 30; depth <= 33; depth++) {
        (void)snprintf(body, sizeof body, "{\"k\":%.*s%.*s}", depth - 1,
                       "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", depth - 1,
                       "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]");
        feed(body, &result);
        assert_int_equal(result.status, depth <= DK_JSON_MAX_DEPTH ? DK_OK : DK_BAD_JSON);
    }
}

static void test_skeleton_size_is_limited(void **state)
{
    (void)state;
    /* {"k":""} is 8 bytes */
    for (size_t extra = 0; extra < 3; extra++) {
        size_t fill = DK_JSON_MAX_SKELETON_BYTES - 8 - 1 + extra;
        char *body = repeat("{ \"k\": \"", "a", fill, "\"}");
        struct dk_json_reader *reader;
        const char *skeleton;
        size_t length;
        struct dk_error error = {0};
        assert_int_equal(dk_json_reader_new(feed_default_paths, 1, NULL, &reader), DK_OK);
        (void)dk_json_reader_feed(reader, body, strlen(body), &error);
        dk_status status = dk_json_reader_finish(reader, &skeleton, &length, &error);
        assert_int_equal(status, extra <= 1 ? DK_OK : DK_TOO_LARGE);
        if (status == DK_OK) {
            assert_int_equal(length, DK_JSON_MAX_SKELETON_BYTES - 1 + extra);
        } else {
            /* Two spaces were dropped, so the body's byte is two further. */
            assert_string_equal(error.message,
                                "at byte 65538: what is not a number array exceeds 65536 bytes");
        }
        dk_json_reader_free(reader);
        free(body);
    }
    expect(repeat("{\"k\":[", "1,", 100000, "1]}"), DK_TOO_LARGE, "exceeds 65536 bytes");
    expect(repeat("{\"", "k", 100000, "\":1}"), DK_TOO_LARGE, "exceeds 65536 bytes");
    expect(repeat("{\"k\":\"", "\\u00e9", 20000, "\"}"), DK_TOO_LARGE, "exceeds 65536 bytes");
}

static void test_the_limit_falls_on_the_same_byte_for_every_split(void **state)
{
    (void)state;
    static const char body[] = "{\"k\":\"abcdefgh\",\"l\":[1234,true],\"x\":[1],\"m\":\"z\"}";
    for (size_t limit = 0; limit <= sizeof body; limit++) {
        char first[DK_MESSAGE_BYTES] = "";
        for (size_t part = 1; part <= sizeof body; part++) {
            struct dk_json_reader *reader;
            struct dk_error error = {0};
            assert_int_equal(dk_json_reader_new_sized(feed_default_paths, 1, NULL, limit, &reader), DK_OK);
            for (size_t at = 0; at < sizeof body - 1; at += part) {
                size_t left = sizeof body - 1 - at;
                (void)dk_json_reader_feed(reader, body + at, left < part ? left : part, &error);
            }
            if (part == 1) {
                memcpy(first, error.message, sizeof first);
            }
            assert_string_equal(error.message, first);
            dk_json_reader_free(reader);
        }
        assert_int_equal(first[0] != '\0',
                         limit < sizeof "{\"k\":\"abcdefgh\",\"l\":[1234,true],\"x\":null,\"m\":\"z\"}" - 1);
    }
}

static void test_long_number_tokens(void **state)
{
    (void)state;
    expect(repeat("{\"x\":[0.", "1", 1022, "]}"), DK_OK, "");
    expect(repeat("{\"x\":[0.", "1", 1023, "]}"), DK_BAD_JSON, "at byte 6: number 0.1111");
    expect(repeat("{\"x\":[", "1", 1000000, "]}"), DK_BAD_JSON, "is longer than 1024 bytes");
    expect(repeat("{\"x\":[1", "-", 1000000, "]}"), DK_BAD_JSON, "is longer than 1024 bytes");
    expect(repeat("{\"k\":", "1", 1000000, "}"), DK_BAD_JSON, "is longer than 1024 bytes");
    expect(repeat("{\"x\":[1,1", "0", 1000000, ""), DK_BAD_JSON, "at byte 8: number 1000");
    static char body[3000];
    for (size_t digits = 1020; digits <= 1026; digits++) {
        (void)snprintf(body, sizeof body, "{\"x\":[%0*d.5,2]}", (int)digits, 0);
        body[6] = '1';
        static struct feed_result other;
        feed(body, &result);
        for (size_t first = 1; first < strlen(body); first += 3) {
            size_t cut = first;
            feed_split(body, strlen(body), feed_two_parts, &cut, &other);
            assert_string_equal(other.message, result.message);
            assert_memory_equal(&other, &result, sizeof result);
        }
    }
}

static void test_tensor_count_is_limited(void **state)
{
    (void)state;
    expect(repeat("{\"inputs\":[{\"data\":[1]}", ",{\"data\":[1]}", DK_JSON_MAX_TENSORS - 1, "]}"), DK_OK,
           "");
    expect(repeat("{\"inputs\":[{\"data\":[1]}", ",{\"data\":[1]}", DK_JSON_MAX_TENSORS, "]}"), DK_TOO_LARGE,
           "more than 16 number arrays");
}

/* As many keys as a skeleton can hold, all different, in a big object: a duplicate at the very end is found.
 */
static void test_many_keys(void **state)
{
    (void)state;
    static char body[128 * 1024];
    enum { KEYS = 8000 };
    for (int duplicate = 0; duplicate <= 1; duplicate++) {
        size_t length = 0;
        for (int i = 0; i < KEYS; i++) {
            int value = duplicate == 1 && i == KEYS - 1 ? 17 : i;
            length += (size_t)snprintf(body + length, sizeof body - length, "%c\"%x\":{}", i == 0 ? '{' : ',',
                                       (unsigned)value);
        }
        memcpy(body + length, "}", 2);
        struct dk_json_reader *reader;
        struct dk_error error = {0};
        assert_int_equal(dk_json_reader_new_sized(NULL, 0, NULL, sizeof body * 2, &reader), DK_OK);
        assert_int_equal(dk_json_reader_feed(reader, body, length + 1, &error),
                         duplicate == 1 ? DK_BAD_JSON : DK_OK);
        if (duplicate == 1) {
            assert_non_null(strstr(error.message, "duplicate key \"11\""));
        }
        dk_json_reader_free(reader);
    }
}

static dk_status count_values(void *context, const struct dk_json_tensor *tensor, uint64_t offset,
                              const double *values, size_t count, struct dk_error *error)
{
    (void)tensor;
    (void)values;
    (void)error;
    uint64_t *total = context;
    *total = offset + count;
    return DK_OK;
}

/* T = 512 rows of 7168: no memory beyond the reader's own, however many numbers pass. */
static void test_c40_memory_does_not_grow_with_the_tensor(void **state)
{
    (void)state;
    enum { ROWS = 512, COLUMNS = 7168 };
    uint64_t total = 0;
    const struct dk_json_sink sink = {.context = &total, .values = count_values};
    struct dk_json_reader *reader;
    char *row = repeat("[1.25", ",-0.0078125", COLUMNS - 1, "],");
    size_t row_length = strlen(row);
    assert_int_equal(dk_json_reader_new(feed_default_paths, 1, &sink, &reader), DK_OK);
    assert_int_equal(dk_json_reader_feed(reader, "{\"x\":[", 6, NULL), DK_OK);
    assert_int_equal(dk_json_reader_feed(reader, row, row_length, NULL), DK_OK);
    size_t before = mallinfo2().uordblks;
    for (int i = 1; i < ROWS; i++) {
        size_t length = i == ROWS - 1 ? row_length - 1 : row_length;
        assert_int_equal(dk_json_reader_feed(reader, row, length, NULL), DK_OK);
    }
    assert_int_equal(mallinfo2().uordblks, before);
    const char *skeleton;
    size_t length;
    assert_int_equal(dk_json_reader_feed(reader, "]}", 2, NULL), DK_OK);
    assert_int_equal(dk_json_reader_finish(reader, &skeleton, &length, NULL), DK_OK);
    assert_int_equal(total, (uint64_t)ROWS * COLUMNS);
    assert_int_equal(dk_json_reader_tensor(reader, 0)->shape[0], ROWS);
    dk_json_reader_free(reader);
    free(row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_c31_deep_nesting_is_refused),
        cmocka_unit_test(test_c31_balanced_nests_at_the_limit),
        cmocka_unit_test(test_skeleton_size_is_limited),
        cmocka_unit_test(test_the_limit_falls_on_the_same_byte_for_every_split),
        cmocka_unit_test(test_long_number_tokens),
        cmocka_unit_test(test_tensor_count_is_limited),
        cmocka_unit_test(test_many_keys),
        cmocka_unit_test(test_c40_memory_does_not_grow_with_the_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
