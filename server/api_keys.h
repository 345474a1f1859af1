/* api_keys.h: the keys that open the HTTP door: read from a file, compared in constant time, never shown. */
#ifndef DK_SERVER_API_KEYS_H
#define DK_SERVER_API_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/status.h"

/* Several keys at once, so that one can be replaced without a moment in which neither is valid. */
enum { DK_API_KEYS_MAX = 32, DK_API_KEY_MIN_BYTES = 8, DK_API_KEY_MAX_BYTES = 256 };

struct dk_api_keys; /* thread-safe */

/* One key a line: 8 to 256 visible ASCII characters; blank lines and lines that start with '#' are skipped.
 * `path` is copied; NULL: no key is asked for. DK_IO_ERROR, DK_BAD_FILE (not a regular file, no key, too
 * many, a malformed line: its number is told, never its text), DK_NO_MEMORY. Thread: main. */
dk_status dk_api_keys_new(const char *path, struct dk_api_keys **out, struct dk_error *error);
void dk_api_keys_free(struct dk_api_keys *keys); /* NULL-safe */

/* Read the file again. On failure the keys stay as they were. Does nothing without a file. Thread: any. */
dk_status dk_api_keys_reload(struct dk_api_keys *keys, struct dk_error *error);

/* May a request with this Authorization header (NULL: none) enter? DK_UNAUTHORIZED when not. The time does
 * not depend on how much of a key was guessed, nor on which key it is. NULL `keys`: everybody may. Thread:
 * any. */
dk_status dk_api_keys_check(struct dk_api_keys *keys, const char *authorization, struct dk_error *error);

size_t dk_api_keys_count(struct dk_api_keys *keys); /* 0: no key is asked for. Thread: any */

#endif
