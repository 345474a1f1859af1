/* http_target.h: the request target: path and query, percent-decoded exactly once, pure. */
#ifndef DK_SERVER_HTTP_TARGET_H
#define DK_SERVER_HTTP_TARGET_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/status.h"

enum { DK_TARGET_BYTES = 1024 }; /* longest target; names are 64 bytes, so this is ample */

struct dk_target {
    char path[DK_TARGET_BYTES];  /* decoded, without one trailing slash; an encoded slash stays "%2F" */
    char query[DK_TARGET_BYTES]; /* still encoded, without '?'; "" when absent */
};

/* `raw` as it stood in the request line; an absolute form (http://host/path) loses scheme and authority.
 * DK_BAD_REQUEST: too long, not starting with '/', a bad escape, a NUL or control character, invalid UTF-8.
 * Dot segments are kept as they are: no route has one and nothing here reaches a file system. */
dk_status dk_target_parse(const char *raw, struct dk_target *out, struct dk_error *error);

/* Next `name=value` of a query; false at the end. `value` is NULL-able through *has_value (no '='). '+' is a
 * space. DK_BAD_REQUEST in *status for a bad escape or control character; then the walk ends. Both buffers
 * hold DK_TARGET_BYTES. */
bool dk_query_next(const char **cursor, char *name, char *value, bool *has_value, dk_status *status,
                   struct dk_error *error);

#endif
