/* api_keys.c: reading the key file and the constant-time comparison. */
#include "server/api_keys.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/log.h"

enum { FILE_BYTES_MAX = 64 * 1024 };

/* Padded with zeros to one length, so that a comparison always looks at the same number of bytes. */
struct key {
    unsigned char bytes[DK_API_KEY_MAX_BYTES];
};

struct key_set {
    size_t count;
    struct key keys[DK_API_KEYS_MAX];
};

struct dk_api_keys {
    char *path;
    pthread_rwlock_t lock; /* `set` */
    struct key_set set;
};

static dk_status read_file(const char *path, char *out, size_t *length, struct dk_error *error)
{
    struct stat info;
    dk_status status = DK_OK;
    /* NONBLOCK: opening a FIFO must not wait for a writer */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return dk_fail(error, DK_IO_ERROR, "%s: cannot open: %s", path, strerrordesc_np(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        (void)close(fd);
        return dk_fail(error, DK_BAD_FILE, "%s: expected a regular file", path);
    }
    if ((info.st_mode & (S_IROTH | S_IWOTH)) != 0)
        dk_log(DK_LOG_WARN, "api_key_file_open",
               "path=%s mode=%04o reason=\"every user may read or write it\"", path,
               (unsigned)(info.st_mode & 07777));
    size_t done = 0;
    while (done <= FILE_BYTES_MAX) {
        ssize_t count = read(fd, out + done, FILE_BYTES_MAX + 1 - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            status = dk_fail(error, DK_IO_ERROR, "%s: cannot read: %s", path, strerrordesc_np(errno));
        if (count <= 0)
            break;
        done += (size_t)count;
    }
    (void)close(fd);
    if (status == DK_OK && done > FILE_BYTES_MAX)
        status = dk_fail(error, DK_BAD_FILE, "%s: more than %d bytes", path, (int)FILE_BYTES_MAX);
    *length = done;
    return status;
}

static bool is_key(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (text[i] <= 0x20 || text[i] >= 0x7f)
            return false;
    }
    return length >= DK_API_KEY_MIN_BYTES && length <= DK_API_KEY_MAX_BYTES;
}

static dk_status add_line(struct key_set *set, const char *line, size_t length, const char *path,
                          unsigned number, struct dk_error *error)
{
    while (length > 0 && (line[length - 1] == ' ' || line[length - 1] == '\t' || line[length - 1] == '\r'))
        length--;
    if (length == 0 || line[0] == '#')
        return DK_OK;
    if (!is_key(line, length))
        return dk_fail(error, DK_BAD_FILE, "%s:%u: expected a key of %d to %d visible ASCII characters", path,
                       number, (int)DK_API_KEY_MIN_BYTES, (int)DK_API_KEY_MAX_BYTES);
    if (set->count == DK_API_KEYS_MAX)
        return dk_fail(error, DK_BAD_FILE, "%s:%u: more than %d keys", path, number, (int)DK_API_KEYS_MAX);
    memcpy(set->keys[set->count++].bytes, line, length);
    return DK_OK;
}

static dk_status parse(const char *text, size_t length, const char *path, struct key_set *out,
                       struct dk_error *error)
{
    dk_status status = DK_OK;
    unsigned number = 1;
    for (size_t at = 0; at < length && status == DK_OK; number++) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t line_length = end != NULL ? (size_t)(end - text) - at : length - at;
        status = add_line(out, text + at, line_length, path, number, error);
        at += line_length + 1;
    }
    if (status == DK_OK && out->count == 0)
        status = dk_fail(error, DK_BAD_FILE, "%s: there is no key in it", path);
    return status;
}

dk_status dk_api_keys_reload(struct dk_api_keys *keys, struct dk_error *error)
{
    if (keys == NULL || keys->path == NULL)
        return DK_OK;
    size_t length = 0;
    struct key_set *fresh = calloc(1, sizeof *fresh);
    char *text = malloc(FILE_BYTES_MAX + 1);
    dk_status status = fresh == NULL || text == NULL
                           ? dk_fail(error, DK_NO_MEMORY, "%s: no memory", keys->path)
                           : read_file(keys->path, text, &length, error);
    if (status == DK_OK)
        status = parse(text, length, keys->path, fresh, error);
    if (status == DK_OK) {
        (void)pthread_rwlock_wrlock(&keys->lock);
        keys->set = *fresh;
        (void)pthread_rwlock_unlock(&keys->lock);
    }
    if (text != NULL)
        explicit_bzero(text, FILE_BYTES_MAX + 1);
    if (fresh != NULL)
        explicit_bzero(fresh, sizeof *fresh);
    free(text);
    free(fresh);
    return status;
}

dk_status dk_api_keys_new(const char *path, struct dk_api_keys **out, struct dk_error *error)
{
    struct dk_api_keys *keys = calloc(1, sizeof *keys);
    if (keys == NULL)
        return dk_fail(error, DK_NO_MEMORY, "no memory for the API keys");
    (void)pthread_rwlock_init(&keys->lock, NULL); /* needs no resources on Linux: cannot fail */
    keys->path = path != NULL ? strdup(path) : NULL;
    dk_status status = path != NULL && keys->path == NULL
                           ? dk_fail(error, DK_NO_MEMORY, "no memory for the API keys")
                           : dk_api_keys_reload(keys, error);
    if (status == DK_OK)
        *out = keys;
    else
        dk_api_keys_free(keys);
    return status;
}

void dk_api_keys_free(struct dk_api_keys *keys)
{
    if (keys == NULL)
        return;
    (void)pthread_rwlock_destroy(&keys->lock);
    explicit_bzero(&keys->set, sizeof keys->set);
    free(keys->path);
    free(keys);
}

/* Looks at every byte of every key, whatever it finds; `volatile` keeps the compiler from leaving early. */
static bool is_known(const struct key_set *set, const struct key *given)
{
    unsigned known = 0;
    for (size_t i = 0; i < set->count; i++) {
        volatile unsigned char difference = 0;
        for (size_t b = 0; b < DK_API_KEY_MAX_BYTES; b++)
            difference = (unsigned char)(difference | (set->keys[i].bytes[b] ^ given->bytes[b]));
        known |= difference == 0;
    }
    return known != 0;
}

dk_status dk_api_keys_check(struct dk_api_keys *keys, const char *authorization, struct dk_error *error)
{
    static const char scheme[] = "bearer ";
    if (keys == NULL || keys->path == NULL)
        return DK_OK;
    if (authorization == NULL)
        return dk_fail(error, DK_UNAUTHORIZED, "an API key is required: Authorization: Bearer KEY");
    if (strncasecmp(authorization, scheme, sizeof scheme - 1) != 0)
        return dk_fail(error, DK_UNAUTHORIZED, "the Authorization header is not \"Bearer KEY\"");
    const char *text = authorization + sizeof scheme - 1;
    text += strspn(text, " ");
    struct key given = {{0}};
    size_t length = strlen(text);
    bool is_well_formed = is_key(text, length);
    if (is_well_formed)
        memcpy(given.bytes, text, length);
    (void)pthread_rwlock_rdlock(&keys->lock);
    bool is_good = is_known(&keys->set, &given);
    (void)pthread_rwlock_unlock(&keys->lock);
    explicit_bzero(&given, sizeof given);
    if (!is_good || !is_well_formed)
        return dk_fail(error, DK_UNAUTHORIZED, "the API key is not valid");
    return DK_OK;
}

size_t dk_api_keys_count(struct dk_api_keys *keys)
{
    if (keys == NULL || keys->path == NULL)
        return 0;
    (void)pthread_rwlock_rdlock(&keys->lock);
    size_t count = keys->set.count;
    (void)pthread_rwlock_unlock(&keys->lock);
    return count;
}
