/* json_string.h: strict JSON strings: an incremental check, and the decoding of what passed it. */
#ifndef DK_PROTO_JSON_STRING_H
#define DK_PROTO_JSON_STRING_H

#include <stddef.h>

#include "proto/json_input.h"

/* Inside a string, behind its opening quote. Zero-initialise. */
struct dk_json_string_state {
    unsigned char stage;
    unsigned char hex_count;
    unsigned char utf8_left;           /* continuation bytes still to come */
    unsigned char utf8_low, utf8_high; /* what the next of them may be */
    unsigned code, high_surrogate;
};

/* Check bytes up to the closing quote (consumed) or the end of the input. *out_is_closed says which. Returns
 * NULL, or what is wrong with the byte at input->next: control characters, unknown escapes, \u0000, lone
 * surrogates, malformed UTF-8. */
const char *dk_json_string_check(struct dk_json_string_state *state, struct dk_json_input *input,
                                 bool *out_is_closed);

/* Decode a checked string without its quotes. `out` needs `length` bytes at most; returns the bytes written.
 */
size_t dk_json_string_decode(const char *raw, size_t length, char *out);

#endif
