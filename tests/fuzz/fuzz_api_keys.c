/* fuzz_api_keys.c: bytes up to the first 0xFF are a key file, the rest an Authorization header. Who may enter
 * has to stand in the file.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/api_keys.h"
#include "server/log.h"

static void require(int condition, const char *text)
{
    if (!condition) {
        fprintf(stderr, "violated: %s\n", text);
        abort();
    }
}
#define REQUIRE(condition) require(condition, #condition)

/* Does a line of the file consist of these bytes, and blanks behind them at most? */
static int stands_in_file(const char *file, size_t length, const char *key)
{
    size_t key_length = strlen(key);
    for (size_t at = 0; at < length;) {
        const char *end = memchr(file + at, '\n', length - at);
        size_t line = end != NULL ? (size_t)(end - file) - at : length - at, rest = key_length;
        if (line >= key_length && memcmp(file + at, key, key_length) == 0) {
            while (rest < line && strchr(" \t\r", file[at + rest]) != NULL && file[at + rest] != '\0')
                rest++;
            if (rest == line)
                return 1;
        }
        at += line + 1;
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        dk_log_init(DK_LOG_ERROR, DK_LOG_FORMAT_KV);
        fd = memfd_create("keys", MFD_CLOEXEC);
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    const uint8_t *border = size > 0 ? memchr(data, 0xFF, size) : NULL;
    size_t file_length = border != NULL ? (size_t)(border - data) : size;
    REQUIRE(ftruncate(fd, 0) == 0 && pwrite(fd, data, file_length, 0) == (ssize_t)file_length);
    char *header = border != NULL ? strndup((const char *)border + 1, size - file_length - 1) : NULL;
    struct dk_api_keys *keys = NULL;
    struct dk_error error = {0};
    dk_status status = dk_api_keys_new(path, &keys, &error);
    REQUIRE((status == DK_OK) == (keys != NULL));
    if (status == DK_OK) {
        REQUIRE(dk_api_keys_count(keys) >= 1 && dk_api_keys_count(keys) <= DK_API_KEYS_MAX);
        if (dk_api_keys_check(keys, header, &error) == DK_OK) {
            REQUIRE(header != NULL && strncasecmp(header, "bearer ", 7) == 0);
            const char *key = header + 7 + strspn(header + 7, " ");
            REQUIRE(strlen(key) >= DK_API_KEY_MIN_BYTES && key[0] != '#');
            REQUIRE(stands_in_file((const char *)data, file_length, key));
        } else {
            REQUIRE(error.status == DK_UNAUTHORIZED);
        }
        REQUIRE(dk_api_keys_reload(keys, &error) == DK_OK);
    } else {
        REQUIRE(status == DK_BAD_FILE && error.message[0] != '\0');
    }
    dk_api_keys_free(keys);
    free(header);
    return 0;
}
