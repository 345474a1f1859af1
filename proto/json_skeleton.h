/* json_skeleton.h: what of a body is not a number array: its text, its open containers, and their keys. */
#ifndef DK_PROTO_JSON_SKELETON_H
#define DK_PROTO_JSON_SKELETON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/json_keys.h"
#include "proto/json_path.h"
#include "proto/json_reader.h"

/* One open container. */
struct dk_json_frame {
    bool is_object;
    uint32_t path_mask; /* paths whose steps so far lead into this container */
    uint32_t element;   /* index of the current element of an array */
    size_t key_count;   /* keys on the stack when it was opened */
};

/* Every `at` is the body offset of the byte concerned, for the message. */
struct dk_json_skeleton {
    char *text; /* strict JSON without white space; grows up to `limit` */
    size_t length, capacity, limit;
    struct dk_json_frame frames[DK_JSON_MAX_DEPTH];
    uint32_t depth;
    uint32_t value_mask; /* paths that the value to come may be on */
    struct dk_json_keys keys;
    struct dk_json_path paths[DK_JSON_MAX_PATHS];
    size_t path_count;
};

void dk_json_skeleton_init(struct dk_json_skeleton *skeleton, const char *const *paths, size_t path_count,
                           size_t limit);
void dk_json_skeleton_deinit(struct dk_json_skeleton *skeleton);
void dk_json_skeleton_reset(struct dk_json_skeleton *skeleton);

/* Append as is. DK_TOO_LARGE, DK_NO_MEMORY. */
dk_status dk_json_skeleton_keep(struct dk_json_skeleton *skeleton, uint64_t at, const char *bytes,
                                size_t length, struct dk_error *error);
/* A bracket opens or closes, a comma separates elements of the top array. */
dk_status dk_json_skeleton_push(struct dk_json_skeleton *skeleton, bool is_object, uint64_t at,
                                struct dk_error *error);
dk_status dk_json_skeleton_pop(struct dk_json_skeleton *skeleton, uint64_t at, struct dk_error *error);
void dk_json_skeleton_next_element(struct dk_json_skeleton *skeleton);
/* The last `raw_length` bytes before the closing quote, already kept, are a key of the top object.
 * DK_BAD_JSON when it is a duplicate. */
dk_status dk_json_skeleton_end_key(struct dk_json_skeleton *skeleton, size_t raw_start, uint64_t at,
                                   struct dk_error *error);

static inline struct dk_json_frame *dk_json_skeleton_top(struct dk_json_skeleton *skeleton)
{
    return &skeleton->frames[skeleton->depth - 1];
}

/* Index of the path that ends at the value to come, or -1; its "[]" indices go to `indices`. */
int dk_json_skeleton_complete_path(const struct dk_json_skeleton *skeleton, uint32_t indices[4]);

/* See dk_json_reader_peek_string. */
bool dk_json_skeleton_peek_string(const struct dk_json_skeleton *skeleton, const char *key, char *out,
                                  size_t size);

#endif
