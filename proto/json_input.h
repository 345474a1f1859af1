/* json_input.h: what the parts of the JSON reader share: the bytes of one feed and their place in the body.
 */
#ifndef DK_PROTO_JSON_INPUT_H
#define DK_PROTO_JSON_INPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/status.h"

/* Bytes not yet consumed. `end_offset` is the body offset of `end`, so that every error can name its byte
 * whatever the split was. */
struct dk_json_input {
    const char *next, *end;
    uint64_t end_offset;
};

static inline uint64_t dk_json_input_offset(const struct dk_json_input *input, const char *at)
{
    return input->end_offset - (uint64_t)(input->end - at);
}

static inline bool dk_json_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static inline bool dk_json_is_digit(char c)
{
    return (unsigned char)(c - '0') < 10;
}

/* "at byte N: ..." */
dk_status dk_json_fail(struct dk_error *error, uint64_t offset, dk_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5), cold));

/* 'c' for printable ASCII, else 0xNN. `out` holds at least 8 bytes. */
const char *dk_json_byte_text(char byte, char out[8]);

#endif
