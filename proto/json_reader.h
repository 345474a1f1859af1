/* json_reader.h: strict, incremental, locale-free JSON reader. Number arrays at declared paths go straight
 * into a caller's sink while the body arrives; everything else (the skeleton) is copied out for cJSON, each
 * such array replaced by `null`.
 *
 * Strict: RFC 8259 grammar, valid UTF-8, no control characters in strings, no leading zeros, no trailing
 * junk, no duplicate keys at any depth where skeleton objects are kept, nesting depth <= DK_JSON_MAX_DEPTH,
 * numbers finite in binary64 (1e400 is refused, DK_BAD_VALUE) and at most 1,024 bytes long, valid surrogate
 * pairs only, no NUL in strings (\u0000). The result, the error and its message do not depend on how the body
 * was split. Work and memory per fed byte are bounded; no recursion; nothing is allocated per number. */
#ifndef DK_PROTO_JSON_READER_H
#define DK_PROTO_JSON_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/status.h"

enum {
    DK_JSON_MAX_DEPTH = 32,
    DK_JSON_MAX_TENSOR_RANK = 8,
    DK_JSON_MAX_SKELETON_BYTES = 64 * 1024, /* more: DK_TOO_LARGE */
    DK_JSON_MAX_TENSORS = 16
};

/* What was found at one declared path. For a flat array rank is 1. A nested array must be rectangular (else
 * DK_BAD_SHAPE naming path, row, expected and found count) and hold numbers only at one depth (DK_BAD_SHAPE
 * as well, also for more than DK_JSON_MAX_TENSOR_RANK levels). `[]` is rank 1, shape {0}; `[[]]` is {1,0}.
 * Inside `begin` and `values` rank and extents are 0 as long as they are not known yet. */
struct dk_json_tensor {
    int path_index;      /* index in the reader's list of paths */
    uint32_t indices[4]; /* values matched by each "[]" of the path, outermost first */
    uint32_t rank;
    uint64_t shape[DK_JSON_MAX_TENSOR_RANK];
    uint64_t count; /* product of shape */
};

/* The reader hands numbers over in runs as they are parsed (row-major order). `offset` is the element index
 * of values[0] inside this tensor. Return DK_OK or a status: the reader then stops with that status and
 * message. `begin` is called at the opening bracket and `end` at the matching closing bracket; any may be
 * NULL. */
struct dk_json_sink {
    void *context;
    dk_status (*begin)(void *context, const struct dk_json_tensor *tensor, struct dk_error *error);
    dk_status (*values)(void *context, const struct dk_json_tensor *tensor, uint64_t offset,
                        const double *values, size_t count, struct dk_error *error);
    dk_status (*end)(void *context, const struct dk_json_tensor *tensor, struct dk_error *error);
};

struct dk_json_reader; /* one body at a time; not thread-safe; ~12 KiB, plus the skeleton as it grows */

/* `paths`: at most 32, e.g. {"x", "a", "b"} or {"inputs[].data"}; borrowed, must outlive the reader; `sink`
 * is copied and may be NULL. A number, null, string or object found at a declared path is skeleton; an array
 * there that holds anything but numbers/arrays is DK_BAD_JSON. More than DK_JSON_MAX_TENSORS of them:
 * DK_TOO_LARGE. DK_NO_MEMORY. */
dk_status dk_json_reader_new(const char *const *paths, size_t path_count, const struct dk_json_sink *sink,
                             struct dk_json_reader **out);
/* The same with another limit than DK_JSON_MAX_SKELETON_BYTES (headers of weight files are megabytes). */
dk_status dk_json_reader_new_sized(const char *const *paths, size_t path_count,
                                   const struct dk_json_sink *sink, size_t skeleton_limit,
                                   struct dk_json_reader **out);
void dk_json_reader_free(struct dk_json_reader *reader);  /* NULL-safe */
void dk_json_reader_reset(struct dk_json_reader *reader); /* ready for the next body; keeps its memory */

/* Feed the next bytes, any split. After an error every further call returns the same error. The message names
 * the byte offset of the body. */
dk_status dk_json_reader_feed(struct dk_json_reader *reader, const char *bytes, size_t length,
                              struct dk_error *error);
/* End of body. On success the skeleton is a NUL-terminated strict JSON text owned by the reader until
 * reset/free. */
dk_status dk_json_reader_finish(struct dk_json_reader *reader, const char **skeleton, size_t *skeleton_length,
                                struct dk_error *error);

/* Tensors met so far, in document order. */
size_t dk_json_reader_tensor_count(const struct dk_json_reader *reader);
const struct dk_json_tensor *dk_json_reader_tensor(const struct dk_json_reader *reader, size_t index);

/* The skeleton members of the top-level object that are already complete can be looked at early (so that
 * "model" sent before "x" lets the values be rounded in place): copies the string value of top-level member
 * `key` if it is a string already read. False when absent, not a string, or longer than `size - 1`. */
bool dk_json_reader_peek_string(const struct dk_json_reader *reader, const char *key, char *out, size_t size);

/* The skeleton as far as it has been read: strict JSON that may be cut off at its end. Valid until the next
 * call. */
const char *dk_json_reader_peek_skeleton(const struct dk_json_reader *reader, size_t *length);

/* Locale-free, correctly rounded decimal -> binary64 of a JSON number token. False when the token is not a
 * JSON number or overflows. Fast path for <= 19 digits and small exponents (exact), else strtod_l in the C
 * locale. */
bool dk_json_parse_number(const char *text, size_t length, double *out);

#endif
