/* http_target.c: one pass over the target; libmicrohttpd's own unescaping is switched off. */
#include "server/http_target.h"

#include <string.h>
#include <strings.h>

#include "proto/utf8.h"

enum decode_mode { DECODE_PATH, DECODE_QUERY };

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte of an escape at text[0..length), -1 when it is not one. */
static int escape_value(const char *text, size_t length)
{
    int high = length >= 3 ? hex_value(text[1]) : -1;
    int low = length >= 3 ? hex_value(text[2]) : -1;
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Decodes text[0..length) into `out`, which is never longer. */
static dk_status decode(const char *text, size_t length, enum decode_mode mode, char *out,
                        struct dk_error *error)
{
    size_t used = 0;
    for (size_t i = 0; i < length; i++) {
        int byte = (unsigned char)text[i];
        if (byte == '%') {
            byte = escape_value(text + i, length - i);
            if (byte < 0) {
                return dk_fail(error, DK_BAD_REQUEST, "a bad percent escape in the request target: \"%.*s\"",
                               (int)(length - i < 3 ? length - i : 3), text + i);
            }
            if (byte == '/' && mode == DECODE_PATH) {
                memcpy(out + used, "%2", 2); /* a slash inside a segment separates nothing */
                used += 2;
                byte = 'F';
            }
            i += 2;
        } else if (byte == '+' && mode == DECODE_QUERY) {
            byte = ' ';
        }
        if (byte < 0x20 || byte == 0x7f) {
            return dk_fail(error, DK_BAD_REQUEST, "a control character (%d) in the request target", byte);
        }
        out[used++] = (char)byte;
    }
    out[used] = '\0';
    for (size_t i = 0, step; i < used; i += step) {
        step = dk_utf8_sequence(out + i, used - i);
        if (step == 0) {
            return dk_fail(error, DK_BAD_REQUEST, "the request target is not valid UTF-8 once decoded");
        }
    }
    return DK_OK;
}

/* Behind "http://authority" of an absolute form; `raw` itself otherwise. */
static const char *skip_authority(const char *raw)
{
    size_t scheme = strncasecmp(raw, "http://", 7) == 0 ? 7 : strncasecmp(raw, "https://", 8) == 0 ? 8 : 0;
    if (scheme == 0) {
        return raw;
    }
    const char *path = raw + scheme + strcspn(raw + scheme, "/?");
    return *path == '/' ? path : "/";
}

dk_status dk_target_parse(const char *raw, struct dk_target *out, struct dk_error *error)
{
    if (strlen(raw) >= DK_TARGET_BYTES) {
        return dk_fail(error, DK_BAD_REQUEST, "the request target has %zu bytes, at most %d are allowed",
                       strlen(raw), DK_TARGET_BYTES - 1);
    }
    raw = skip_authority(raw);
    if (raw[0] != '/') {
        return dk_fail(error, DK_BAD_REQUEST, "the request target must start with '/', not \"%.20s\"", raw);
    }
    size_t path_length = strcspn(raw, "?#");
    const char *query = raw[path_length] == '?' ? raw + path_length + 1 : "";
    size_t query_length = strcspn(query, "#");
    path_length -= path_length > 1 && raw[path_length - 1] == '/';
    dk_status status = decode(raw, path_length, DECODE_PATH, out->path, error);
    if (status == DK_OK) {
        memcpy(out->query, query, query_length);
        out->query[query_length] = '\0';
    }
    return status;
}

bool dk_query_next(const char **cursor, char *name, char *value, bool *has_value, dk_status *status,
                   struct dk_error *error)
{
    *status = DK_OK;
    *cursor += strspn(*cursor, "&");
    size_t length = strcspn(*cursor, "&");
    if (length == 0) {
        return false;
    }
    const char *item = *cursor;
    size_t name_length = strcspn(item, "=&");
    *has_value = item[name_length] == '=';
    *status = decode(item, name_length, DECODE_QUERY, name, error);
    if (*status == DK_OK && *has_value) {
        *status = decode(item + name_length + 1, length - name_length - 1, DECODE_QUERY, value, error);
    }
    *cursor += length;
    return *status == DK_OK;
}
