/* api_key.h: the key a daemon asks for, from a file or a text, checked before it goes into a header. */
#ifndef DK_CLIENT_API_KEY_H
#define DK_CLIENT_API_KEY_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/status.h"

enum { DK_CLIENT_API_KEY_BYTES = 256 }; /* longest key; arrays hold one more for NUL */

/* 8 to 256 visible ASCII characters, as the daemon takes them. */
bool dk_client_api_key_is_valid(const char *key, size_t length);
/* The first key of the file the daemon may use as well: one a line, blank lines and '#' lines skipped.
 * DK_IO_ERROR; DK_BAD_FILE tells the line, never its text. */
dk_status dk_client_api_key_read(const char *path, char out[DK_CLIENT_API_KEY_BYTES + 1],
                                 struct dk_error *error);

#endif
