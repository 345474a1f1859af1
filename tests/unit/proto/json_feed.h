/* json_feed.h: run a whole body through the reader, split as the test wants, and keep everything it said. */
#ifndef DK_TESTS_JSON_FEED_H
#define DK_TESTS_JSON_FEED_H

#include "tests/unit/proto/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "proto/json_reader.h"

enum { FEED_MAX_VALUES = 4096, FEED_MAX_SKELETON = 4096 };

struct feed_result {
    dk_status status;
    char message[DK_MESSAGE_BYTES];
    char skeleton[FEED_MAX_SKELETON];
    size_t tensor_count;
    struct dk_json_tensor tensors[DK_JSON_MAX_TENSORS];
    size_t begin_count, end_count;
    uint64_t offset; /* expected next, inside the current tensor */
    size_t value_count;
    double values[FEED_MAX_VALUES]; /* of all tensors, in order */
};

static const char *const feed_default_paths[] = {"x", "a", "inputs[].data"};
enum { FEED_DEFAULT_PATH_COUNT = 3 };

static inline dk_status feed_begin(void *context, const struct dk_json_tensor *tensor, struct dk_error *error)
{
    (void)tensor;
    (void)error;
    struct feed_result *result = context;
    result->begin_count++;
    result->offset = 0;
    return DK_OK;
}

static inline dk_status feed_values(void *context, const struct dk_json_tensor *tensor, uint64_t offset,
                                    const double *values, size_t count, struct dk_error *error)
{
    (void)tensor;
    (void)error;
    struct feed_result *result = context;
    assert_int_equal(offset, result->offset);
    assert_true(count > 0);
    result->offset += count;
    for (size_t i = 0; i < count && result->value_count < FEED_MAX_VALUES; i++) {
        result->values[result->value_count++] = values[i];
    }
    return DK_OK;
}

static inline dk_status feed_end(void *context, const struct dk_json_tensor *tensor, struct dk_error *error)
{
    (void)error;
    struct feed_result *result = context;
    result->end_count++;
    assert_int_equal(tensor->count, result->offset);
    return DK_OK;
}

/* Each part is copied to a block of its own size, so that AddressSanitizer sees a read past its end. */
static inline dk_status feed_part(struct dk_json_reader *reader, const char *bytes, size_t length,
                                  struct dk_error *error)
{
    char *copy = malloc(length == 0 ? 1 : length);
    assert_non_null(copy);
    memcpy(copy, bytes, length);
    dk_status status = dk_json_reader_feed(reader, copy, length, error);
    free(copy);
    return status;
}

/* `next_part(state, left)` gives the length of the next part, 1..left. */
static inline void feed_split(const char *body, size_t length, size_t (*next_part)(void *state, size_t left),
                              void *state, struct feed_result *result)
{
    const struct dk_json_sink sink = {result, feed_begin, feed_values, feed_end};
    struct dk_json_reader *reader;
    struct dk_error error = {0};
    const char *skeleton = NULL;
    size_t skeleton_length = 0;
    memset(result, 0, sizeof *result);
    assert_int_equal(dk_json_reader_new(feed_default_paths, FEED_DEFAULT_PATH_COUNT, &sink, &reader), DK_OK);
    for (size_t at = 0; at < length;) {
        size_t part = next_part(state, length - at);
        result->status = feed_part(reader, body + at, part, &error);
        at += part;
    }
    dk_status finished = dk_json_reader_finish(reader, &skeleton, &skeleton_length, &error);
    if (result->status != DK_OK) {
        assert_int_equal(finished, result->status); /* errors stick */
    }
    result->status = finished;
    if (finished == DK_OK) {
        assert_int_equal(strlen(skeleton), skeleton_length);
        assert_true(skeleton_length < FEED_MAX_SKELETON);
        memcpy(result->skeleton, skeleton, skeleton_length + 1);
    } else {
        assert_int_equal(error.status, finished);
        memcpy(result->message, error.message, sizeof error.message);
    }
    result->tensor_count = dk_json_reader_tensor_count(reader);
    for (size_t i = 0; i < result->tensor_count; i++) {
        result->tensors[i] = *dk_json_reader_tensor(reader, i);
    }
    dk_json_reader_free(reader);
}

static inline size_t feed_all_at_once(void *state, size_t left)
{
    (void)state;
    return left;
}

/* `state` is a size_t: the length of the first part; then all the rest. */
static inline size_t feed_two_parts(void *state, size_t left)
{
    size_t *first = state;
    size_t part = *first == 0 || *first > left ? left : *first;
    *first = 0;
    return part;
}

/* `state` is a uint64_t seed: parts of 1..7 bytes. */
static inline size_t feed_random_parts(void *state, size_t left)
{
    uint64_t *seed = state;
    *seed = *seed * 6364136223846793005U + 1442695040888963407U;
    size_t part = 1 + (size_t)(*seed >> 33) % 7;
    return part < left ? part : left;
}

static inline void feed(const char *body, struct feed_result *result)
{
    feed_split(body, strlen(body), feed_all_at_once, NULL, result);
}

/* The same body cut at every position, byte by byte, and at random places must say exactly the same. */
static inline void feed_every_way(const char *body, size_t length, struct feed_result *result)
{
    struct feed_result *other = malloc(sizeof *other);
    assert_non_null(other);
    feed_split(body, length, feed_all_at_once, NULL, result);
    for (size_t cut = 1; cut < length; cut++) {
        size_t first = cut;
        feed_split(body, length, feed_two_parts, &first, other);
        assert_string_equal(other->message, result->message);
        assert_memory_equal(other, result, sizeof *result);
    }
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint64_t state = seed;
        feed_split(body, length, feed_random_parts, &state, other);
        assert_string_equal(other->message, result->message);
        assert_memory_equal(other, result, sizeof *result);
    }
    free(other);
}

#endif
