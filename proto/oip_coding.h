/* oip_coding.h: content codings of HTTP bodies by name. */
#ifndef DK_PROTO_OIP_CODING_H
#define DK_PROTO_OIP_CODING_H

#include "proto/status.h"

enum dk_coding { DK_CODING_IDENTITY, DK_CODING_GZIP, DK_CODING_DEFLATE, DK_CODING_COUNT };

/* "identity", "gzip", "deflate" (the zlib format, RFC 9110) */
const char *dk_coding_name(enum dk_coding coding);

/* A Content-Encoding value; NULL or blank is identity. Case does not matter; "x-gzip" is gzip. Several
 * codings, or unknown ones, are DK_UNSUPPORTED_MEDIA. */
dk_status dk_coding_parse(const char *value, enum dk_coding *out, struct dk_error *error);
/* An Accept-Encoding value, NULL when absent: the coding it names with the highest q, gzip before deflate
 * when equal; identity when it names neither (or prefers identity), and for "*", which asks for nothing in
 * particular. Malformed elements are ignored. */
enum dk_coding dk_coding_choose(const char *value);

#endif
