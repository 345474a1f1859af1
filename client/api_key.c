/* api_key.c: finding the key in its file. */
#include "client/api_key.h"

#include <stdlib.h>
#include <string.h>

#include "client/file.h"

enum { MIN_BYTES = 8, FILE_BYTES = 64 * 1024 };

bool dk_client_api_key_is_valid(const char *key, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (key[i] <= 0x20 || key[i] >= 0x7f)
            return false;
    return length >= MIN_BYTES && length <= DK_CLIENT_API_KEY_BYTES;
}

static dk_status find_key(const char *text, size_t length, const char *path, char *out,
                          struct dk_error *error)
{
    unsigned number = 1;
    for (size_t at = 0; at < length; number++) {
        const char *line = text + at, *end = memchr(line, '\n', length - at);
        size_t line_length = end ? (size_t)(end - line) : length - at;
        at += line_length + 1;
        while (line_length > 0 && strchr(" \t\r", line[line_length - 1]))
            line_length--;
        if (line_length == 0 || line[0] == '#')
            continue;
        if (!dk_client_api_key_is_valid(line, line_length))
            return dk_fail(error, DK_BAD_FILE, "%s:%u: expected a key of %d to %d visible ASCII characters",
                           path, number, MIN_BYTES, (int)DK_CLIENT_API_KEY_BYTES);
        memcpy(out, line, line_length);
        out[line_length] = 0;
        return DK_OK;
    }
    return dk_fail(error, DK_BAD_FILE, "%s: there is no key in it", path);
}

dk_status dk_client_api_key_read(const char *path, char out[DK_CLIENT_API_KEY_BYTES + 1],
                                 struct dk_error *error)
{
    void *text = NULL;
    size_t length = 0;
    dk_status status = dk_file_read(path, FILE_BYTES, &text, &length, error);
    if (status != DK_OK)
        return status;
    status = find_key(text, length, path, out, error);
    explicit_bzero(text, length);
    free(text);
    return status;
}
