/* http_gzip.h: a text answer, compressed for clients that ask for it. */
#ifndef DK_SERVER_HTTP_GZIP_H
#define DK_SERVER_HTTP_GZIP_H

#include <stdbool.h>

#include "proto/json_writer.h"
#include "proto/oip_coding.h"

/* Replaces the text by its gzip or deflate (zlib) form; DK_CODING_IDENTITY does nothing. False (text
 * untouched) when memory is out. Thread: any. */
bool dk_compress_text(struct dk_json_text *text, enum dk_coding coding);
/* Replaces the text by its gzip form. False (text untouched) when memory is out. Thread: any. */
bool dk_gzip_text(struct dk_json_text *text);

#endif
