/* plan_cache_file.c: where the cache's file lies, reading it without trust, and replacing it in one step. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/plan_cache_entries.h"

/* Everything in `fd`, at most DK_PLAN_CACHE_MAX_BYTES + 1; freed by the caller. NULL: errno says why. */
static char *read_all(int fd, size_t *out_length)
{
    size_t capacity = DK_PLAN_CACHE_MAX_BYTES + 1, length = 0;
    char *text = malloc(capacity);
    while (text && length < capacity) {
        ssize_t got = read(fd, text + length, capacity - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int saved = errno;
            free(text);
            errno = saved;
            return NULL;
        }
        if (got == 0)
            break;
        length += (size_t)got;
    }
    *out_length = length;
    return text;
}

static void load_open(struct dk_plan_cache *cache, int fd, struct dk_plan_cache_report *report)
{
    struct stat about;
    size_t length = 0;
    char *text = NULL;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        (void)snprintf(report->warning, sizeof report->warning, "not a regular file");
        return;
    }
    text = read_all(fd, &length);
    if (!text)
        (void)snprintf(report->warning, sizeof report->warning, "cannot be read: %s", strerrordesc_np(errno));
    else if (length > DK_PLAN_CACHE_MAX_BYTES)
        (void)snprintf(report->warning, sizeof report->warning, "larger than %d bytes",
                       (int)DK_PLAN_CACHE_MAX_BYTES);
    else
        dk_plan_cache_parse(cache, text, length, report);
    free(text);
}

void dk_plan_cache_load(struct dk_plan_cache *cache, const char *path, struct dk_plan_cache_report *report)
{
    *report = (struct dk_plan_cache_report){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a FIFO must not hold up the start */
    if (fd >= 0) {
        load_open(cache, fd, report);
        (void)close(fd);
    } else if (errno != ENOENT) {
        (void)snprintf(report->warning, sizeof report->warning, "cannot be opened: %s",
                       strerrordesc_np(errno));
    }
}

static dk_status fail_errno(struct dk_error *error, const char *what, const char *path)
{
    return dk_fail(error, DK_IO_ERROR, "plan cache: %s %.200s: %s", what, path, strerrordesc_np(errno));
}

/* The rename itself must survive a power cut; a file system without it is no reason to fail. */
static void sync_folder_of(const char *path)
{
    char copy[PATH_MAX];
    if ((size_t)snprintf(copy, sizeof copy, "%s", path) >= sizeof copy)
        return;
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        (void)close(fd);
    }
}

static dk_status write_file(const struct dk_plan_cache *cache, int fd, const char *path,
                            struct dk_error *error)
{
    FILE *file = fdopen(fd, "w");
    if (!file) {
        dk_status status = fail_errno(error, "cannot write", path);
        (void)close(fd);
        return status;
    }
    bool is_written = dk_plan_cache_write(cache, file) && fchmod(fd, 0644) == 0 && fsync(fd) == 0;
    dk_status status = is_written ? DK_OK : fail_errno(error, "cannot write", path);
    if (fclose(file) != 0 && status == DK_OK)
        status = fail_errno(error, "cannot write", path);
    return status;
}

dk_status dk_plan_cache_save(struct dk_plan_cache *cache, const char *path, struct dk_error *error)
{
    char temporary[PATH_MAX];
    struct dk_plan_cache_report ignored; /* whatever is odd in the old file is about to be replaced */
    if ((size_t)snprintf(temporary, sizeof temporary, "%s.XXXXXX", path) >= sizeof temporary)
        return dk_fail(error, DK_IO_ERROR, "plan cache: the path has more than %d bytes", (int)PATH_MAX);
    dk_plan_cache_load(cache, path, &ignored);
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return fail_errno(error, "cannot create", temporary);
    dk_status status = write_file(cache, fd, temporary, error);
    if (status == DK_OK && rename(temporary, path) != 0)
        status = fail_errno(error, "cannot replace", path);
    if (status != DK_OK)
        (void)unlink(temporary);
    else
        sync_folder_of(path);
    return status;
}

bool dk_plan_cache_default_path(char *out, size_t size)
{
    const char *base = getenv("XDG_CACHE_HOME"), *middle = "";
    if (!base || base[0] != '/') { /* the specification: a path that is not absolute is to be ignored */
        base = getenv("HOME");
        middle = "/.cache";
    }
    if (!base || base[0] != '/')
        return false;
    int length = snprintf(out, size, "%s%s/decomposek/plans", base, middle);
    return length > 0 && (size_t)length < size;
}

dk_status dk_plan_cache_make_folder(const char *path, struct dk_error *error)
{
    char copy[PATH_MAX];
    if ((size_t)snprintf(copy, sizeof copy, "%s", path) >= sizeof copy)
        return dk_fail(error, DK_IO_ERROR, "plan cache: the path has more than %d bytes", (int)PATH_MAX);
    for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(copy, 0700) != 0 && errno != EEXIST)
            return fail_errno(error, "cannot create the folder", copy);
        *slash = '/';
    }
    return DK_OK;
}
