/* oip_member.h: walk over the skeleton of a v2 body: members and elements, each knowing its full name for
 * messages. No tree, no allocation; integers are exact. */
#ifndef DK_PROTO_OIP_MEMBER_H
#define DK_PROTO_OIP_MEMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/json_writer.h"
#include "proto/status.h"

/* Longest string that is read; longer ones are refused (or ignored, where the member is). */
enum { DK_OIP_MAX_STRING_BYTES = 256 };

/* A value and how it is reached. `raw` is its strict JSON text without white space. */
struct dk_oip_member {
    const struct dk_oip_member *parent; /* NULL: the body */
    const char *key;                    /* decoded; NULL: an element (or the body) */
    size_t key_length;
    size_t index; /* of an element */
    const char *raw;
    size_t length;
};

typedef dk_status (*dk_oip_reader)(void *context, const struct dk_oip_member *member, struct dk_error *error);

struct dk_oip_field {
    const char *key;
    dk_oip_reader read;
};

static inline struct dk_oip_member dk_oip_body(const char *skeleton, size_t length)
{
    return (struct dk_oip_member){.raw = skeleton, .length = length};
}

/* Give each member of the object to its field; those of no field go to `other` (NULL: they are ignored).
 * Stops at the first error. Not an object: DK_BAD_REQUEST. */
dk_status dk_oip_read_object(const struct dk_oip_member *object, const struct dk_oip_field *fields,
                             size_t field_count, dk_oip_reader other, void *context, struct dk_error *error);
/* `expected` says in a message what the array is of: "an array of inputs". */
dk_status dk_oip_read_array(const struct dk_oip_member *array, const char *expected, dk_oip_reader each,
                            void *context, struct dk_error *error);
/* An `other` for parameters: a string, number or boolean that may be ignored; not "triton_...". */
dk_status dk_oip_read_other_parameter(void *context, const struct dk_oip_member *member,
                                      struct dk_error *error);

/* Values. *out is untouched on failure. The text must fit in `size` - 1 bytes, size <=
 * DK_OIP_MAX_STRING_BYTES
 * + 1. */
dk_status dk_oip_read_string(const struct dk_oip_member *member, char *out, size_t size,
                             struct dk_error *error);
dk_status dk_oip_read_u64(const struct dk_oip_member *member, uint64_t *out, struct dk_error *error);
dk_status dk_oip_read_bool(const struct dk_oip_member *member, bool *out, struct dk_error *error);

/* "inputs[0].shape: expected <expected>, found -1" */
dk_status dk_oip_fail(const struct dk_oip_member *member, dk_status status, const char *expected,
                      struct dk_error *error);
/* "inputs[0].shape is missing" */
dk_status dk_oip_fail_missing(const struct dk_oip_member *object, const char *key, struct dk_error *error);

/* "inputs[0].shape"; the body is "the body". Returns `out`. */
enum { DK_OIP_PATH_BYTES = 128 };
const char *dk_oip_member_path(const struct dk_oip_member *member, char out[DK_OIP_PATH_BYTES]);

/* Writer's side: a quoted, escaped C string. */
void dk_oip_text_string(struct dk_json_text *text, const char *value);

#endif
