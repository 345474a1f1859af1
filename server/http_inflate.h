/* http_inflate.h: a compressed body, decompressed as it arrives, a bounded amount at a time. */
#ifndef DK_SERVER_HTTP_INFLATE_H
#define DK_SERVER_HTTP_INFLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/oip_coding.h"
#include "proto/status.h"

struct dk_inflater; /* about 40 KiB */

/* DK_CODING_GZIP (RFC 1952, also several members) or DK_CODING_DEFLATE (the zlib format of RFC 1950, as
 * RFC 9110 has it). DK_NO_MEMORY. */
dk_status dk_inflater_new(enum dk_coding coding, struct dk_inflater **out, struct dk_error *error);
void dk_inflater_free(struct dk_inflater *inflater); /* NULL-safe */

/* Decompress from bytes[0..length) into out[0..size): *consumed and *written say how much. Ends when either
 * is used up; *written == size means that more may be pending even with no byte left. DK_BAD_REQUEST: not
 * such a stream, or bytes behind its end. */
dk_status dk_inflater_next(struct dk_inflater *inflater, const char *bytes, size_t length, size_t *consumed,
                           char *out, size_t size, size_t *written, struct dk_error *error);
/* The stream has ended, so the body may end here. */
bool dk_inflater_is_complete(const struct dk_inflater *inflater);

#endif
