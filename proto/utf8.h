/* utf8.h: one well-formed UTF-8 sequence at a time (no overlong forms, no surrogates, at most U+10FFFF). */
#ifndef DK_PROTO_UTF8_H
#define DK_PROTO_UTF8_H

#include <stddef.h>

/* Length 1..4 of the well-formed sequence at the start of bytes[0..length), 0 when there is none (malformed,
 * cut off, or length == 0). */
size_t dk_utf8_sequence(const char *bytes, size_t length);

/* Length of the longest prefix that does not end in the middle of a sequence; malformed bytes count as
 * complete. */
size_t dk_utf8_whole_prefix(const char *bytes, size_t length);

#endif
