/* json_writer.h: JSON text out: strings, numbers and tensors, locale-free, into bounded buffers, resumable.
 */
#ifndef DK_PROTO_JSON_WRITER_H
#define DK_PROTO_JSON_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/dtype.h"
#include "proto/status.h"

/* Longest text of one number, comma included. */
enum { DK_JSON_NUMBER_BYTES = 32 };

/* A growing text. Owns `data`; zero-initialise; free with dk_json_text_free. After a failed allocation
 * `failed` is set and further appends do nothing. */
struct dk_json_text {
    char *data; /* NUL-terminated when non-NULL */
    size_t length, capacity;
    bool failed;
};
void dk_json_text_free(struct dk_json_text *text);
void dk_json_text_raw(struct dk_json_text *text, const char *bytes); /* as is */
void dk_json_text_string(struct dk_json_text *text, const char *bytes,
                         size_t length); /* quoted, escaped; invalid UTF-8 becomes U+FFFD */
void dk_json_text_u64(struct dk_json_text *text, uint64_t value);
void dk_json_text_i64(struct dk_json_text *text, int64_t value);
void dk_json_text_double(struct dk_json_text *text,
                         double value); /* shortest round-trip of up to 17 digits; NaN/Inf -> null */

/* Shortest text that reads back to the same fp32 (bf16 and fp16 widened to fp32 first, and the shortest that
 * reads back to the same bf16/fp16 is not attempted). Non-finite values become `null` (documented in
 * PROTOCOL.md). Writes at most DK_JSON_NUMBER_BYTES - 1 bytes, returns the length. */
size_t dk_json_write_float(char *out, float value);

/* Resumable writer of one row-major tensor of `count` elements with rows of `row_length`, as a flat array or
 * as nested rows. State is plain data: memory use does not grow with the tensor. */
struct dk_json_tensor_writer {
    const void *data; /* borrowed */
    dk_dtype dtype;
    uint64_t rows, row_length;
    bool is_nested;
    /* private */
    uint64_t row, column;
    int stage;
    uint64_t non_finite_count; /* elements written as null so far */
};
void dk_json_tensor_writer_init(struct dk_json_tensor_writer *writer, const void *data, dk_dtype dtype,
                                uint64_t rows, uint64_t row_length, bool is_nested);
/* Writes as much as fits, whole tokens only; returns the bytes written; 0 means done. `size` >= 2 *
 * DK_JSON_NUMBER_BYTES. */
size_t dk_json_tensor_writer_next(struct dk_json_tensor_writer *writer, char *out, size_t size);

#endif
