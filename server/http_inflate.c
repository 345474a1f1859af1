/* http_inflate.c: zlib's inflate behind bounds. */
#include "server/http_inflate.h"

#include <stdlib.h>
#include <zlib.h>

enum {
    ZLIB_WINDOW_BITS = 15,
    GZIP_WINDOW_BITS = 15 + 16,
    STEP_BYTES_MAX = 1 << 30 /* fits zlib's counters */
};

struct dk_inflater {
    z_stream stream;
    enum dk_coding coding;
    bool has_ended; /* at the end of a stream; a further gzip member may follow */
};

dk_status dk_inflater_new(enum dk_coding coding, struct dk_inflater **out, struct dk_error *error)
{
    struct dk_inflater *inflater = calloc(1, sizeof *inflater);
    int bits = coding == DK_CODING_GZIP ? GZIP_WINDOW_BITS : ZLIB_WINDOW_BITS;
    if (inflater == NULL || inflateInit2(&inflater->stream, bits) != Z_OK) {
        free(inflater);
        return dk_fail(error, DK_NO_MEMORY, "out of memory for a compressed body");
    }
    inflater->coding = coding;
    *out = inflater;
    return DK_OK;
}

void dk_inflater_free(struct dk_inflater *inflater)
{
    if (inflater != NULL) {
        (void)inflateEnd(&inflater->stream);
        free(inflater);
    }
}

static dk_status bad_stream(const struct dk_inflater *inflater, const char *what, struct dk_error *error)
{
    return dk_fail(error, DK_BAD_REQUEST, "the body is not valid %s: %s", dk_coding_name(inflater->coding),
                   what);
}

dk_status dk_inflater_next(struct dk_inflater *inflater, const char *bytes, size_t length, size_t *consumed,
                           char *out, size_t size, size_t *written, struct dk_error *error)
{
    z_stream *stream = &inflater->stream;
    size_t input = length < STEP_BYTES_MAX ? length : STEP_BYTES_MAX;
    size_t room = size < STEP_BYTES_MAX ? size : STEP_BYTES_MAX;
    stream->next_in = (unsigned char *)bytes; /* zlib only reads; its member lacks const */
    stream->avail_in = (unsigned)input;
    stream->next_out = (unsigned char *)out;
    stream->avail_out = (unsigned)room;
    int code = Z_OK;
    while (code == Z_OK && stream->avail_out > 0) {
        if (inflater->has_ended) {
            if (stream->avail_in == 0) {
                break;
            }
            if (inflater->coding != DK_CODING_GZIP) {
                return bad_stream(inflater, "bytes follow its end", error);
            }
            (void)inflateReset(stream);
            inflater->has_ended = false;
        }
        code = inflate(stream, Z_NO_FLUSH);
        if (code == Z_STREAM_END) {
            inflater->has_ended = true;
            code = Z_OK;
        }
    }
    *consumed = input - stream->avail_in;
    *written = room - stream->avail_out;
    if (code == Z_MEM_ERROR) {
        return dk_fail(error, DK_NO_MEMORY, "out of memory for a compressed body");
    }
    if (code != Z_OK && code != Z_BUF_ERROR) { /* Z_BUF_ERROR: nothing to do with what there is */
        return bad_stream(inflater,
                          code == Z_NEED_DICT   ? "it wants a dictionary"
                          : stream->msg != NULL ? stream->msg
                                                : "broken",
                          error);
    }
    return DK_OK;
}

bool dk_inflater_is_complete(const struct dk_inflater *inflater)
{
    return inflater->has_ended;
}
