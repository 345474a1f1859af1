/* http_gzip.c: one-shot zlib. */
#include "server/http_gzip.h"

#include <limits.h>
#include <stdlib.h>
#include <zlib.h>

enum { ZLIB_WINDOW_BITS = 15, GZIP_WINDOW_BITS = 15 + 16, MEMORY_LEVEL = 8 };

bool dk_gzip_text(struct dk_json_text *text)
{
    return dk_compress_text(text, DK_CODING_GZIP);
}

bool dk_compress_text(struct dk_json_text *text, enum dk_coding coding)
{
    z_stream stream = {0};
    int window_bits = coding == DK_CODING_GZIP ? GZIP_WINDOW_BITS : ZLIB_WINDOW_BITS;
    if (coding == DK_CODING_IDENTITY) {
        return true;
    }
    /* The fastest level: metrics text shrinks to a tenth by it already. */
    if (text->failed || text->length > UINT_MAX / 2 ||
        deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, window_bits, MEMORY_LEVEL, Z_DEFAULT_STRATEGY) !=
            Z_OK) {
        return false;
    }
    size_t capacity = deflateBound(&stream, text->length);
    char *data = malloc(capacity);
    stream.next_in = (unsigned char *)text->data;
    stream.avail_in = (unsigned)text->length;
    stream.next_out = (unsigned char *)data;
    stream.avail_out = (unsigned)capacity;
    bool is_done = data != NULL && deflate(&stream, Z_FINISH) == Z_STREAM_END;
    size_t length = stream.total_out;
    (void)deflateEnd(&stream);
    if (!is_done) {
        free(data);
        return false;
    }
    dk_json_text_free(text);
    *text = (struct dk_json_text){.data = data, .length = length, .capacity = capacity};
    return true;
}
