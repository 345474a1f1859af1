/* json_cursor.h: walk over a skeleton (strict, without white space, as the reader writes it) without a tree.
 * The text may be cut off at its end; then a step fails instead of reading on. */
#ifndef DK_PROTO_JSON_CURSOR_H
#define DK_PROTO_JSON_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dk_json_cursor {
    const char *next, *end;
};

/* Every function: false leaves the cursor where it was. */
bool dk_json_cursor_take(struct dk_json_cursor *cursor, char byte);
/* The raw string between the quotes (see dk_json_string_decode). */
bool dk_json_cursor_string(struct dk_json_cursor *cursor, const char **raw, size_t *length);
/* Any complete value. */
bool dk_json_cursor_skip(struct dk_json_cursor *cursor);
/* A token of digits only that fits in 64 bits; exact. */
bool dk_json_cursor_u64(struct dk_json_cursor *cursor, uint64_t *out);

#endif
