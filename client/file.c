/* file.c: whole reads, positioned reads, and atomic replacement. */
#include "client/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static dk_status io_error(struct dk_error *error, const char *doing, const char *path)
{
    int number = errno;
    return dk_fail(error, DK_IO_ERROR, "cannot %s '%s': %s", doing, path, strerror(number));
}

/* --- reading ------------------------------------------------------------------------------------------- */

/* Read until the end of `fd`; `hint` is the expected size. One byte more than `max_bytes` is asked for, so
 * that a stream of exactly the limit is told from a longer one. */
static dk_status read_all(int fd, const char *path, size_t hint, size_t max_bytes, void **out_bytes,
                          size_t *out_length, struct dk_error *error)
{
    size_t capacity = hint < max_bytes ? hint + 1 : max_bytes + 1, length = 0;
    char *bytes = malloc(capacity);
    if (!bytes)
        return dk_fail(error, DK_NO_MEMORY, "no memory for %zu bytes of '%s'", capacity, path);
    for (;;) {
        if (length > max_bytes) {
            free(bytes);
            return dk_fail(error, DK_TOO_LARGE, "'%s' is larger than %zu bytes", path, max_bytes);
        }
        if (length == capacity) {
            size_t larger = capacity < 65536            ? 65536
                            : capacity <= max_bytes / 2 ? capacity * 2
                                                        : max_bytes + 1;
            char *moved = realloc(bytes, larger);
            if (!moved) {
                free(bytes);
                return dk_fail(error, DK_NO_MEMORY, "no memory for %zu bytes of '%s'", larger, path);
            }
            bytes = moved;
            capacity = larger;
        }
        ssize_t got = read(fd, bytes + length, capacity - length);
        if (got == 0)
            break;
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            dk_status status = io_error(error, "read", path);
            free(bytes);
            return status;
        }
        length += (size_t)got;
    }
    *out_bytes = bytes;
    *out_length = length;
    return DK_OK;
}

dk_status dk_file_read(const char *path, size_t max_bytes, void **out_bytes, size_t *out_length,
                       struct dk_error *error)
{
    if (strcmp(path, "-") == 0)
        return read_all(STDIN_FILENO, "standard input", 65536, max_bytes, out_bytes, out_length, error);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return io_error(error, "open", path);
    dk_status status;
    struct stat info;
    if (fstat(fd, &info) != 0)
        status = io_error(error, "stat", path);
    else if (S_ISREG(info.st_mode) && (uint64_t)info.st_size > max_bytes)
        status = dk_fail(error, DK_TOO_LARGE, "'%s' is larger than %zu bytes", path, max_bytes);
    else
        status = read_all(fd, path, S_ISREG(info.st_mode) ? (size_t)info.st_size : 65536, max_bytes,
                          out_bytes, out_length, error);
    close(fd);
    return status;
}

dk_status dk_file_open_regular(const char *path, int *out_fd, uint64_t *out_bytes, struct dk_error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return io_error(error, "open", path);
    struct stat info;
    dk_status status = DK_OK;
    if (fstat(fd, &info) != 0)
        status = io_error(error, "stat", path);
    else if (!S_ISREG(info.st_mode))
        status = dk_fail(error, DK_BAD_FILE, "'%s' is not a regular file", path);
    if (status != DK_OK) {
        close(fd);
        return status;
    }
    *out_fd = fd;
    *out_bytes = (uint64_t)info.st_size;
    return DK_OK;
}

dk_status dk_file_pread(int fd, const char *path, void *out, size_t length, uint64_t offset,
                        struct dk_error *error)
{
    size_t done = 0;
    while (done < length) {
        uint64_t at = offset + done;
        ssize_t got = pread(fd, (char *)out + done, length - done, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return io_error(error, "read", path);
        if (got == 0)
            return dk_fail(error, DK_BAD_FILE, "'%s' became shorter while it was read: nothing at byte %llu",
                           path, (unsigned long long)at);
        done += (size_t)got;
    }
    return DK_OK;
}

/* --- writing ------------------------------------------------------------------------------------------- */

static dk_status write_all(int fd, const char *path, const void *bytes, size_t length, struct dk_error *error)
{
    size_t done = 0;
    while (done < length) {
        ssize_t put = write(fd, (const char *)bytes + done, length - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return io_error(error, "write", path);
        done += (size_t)put;
    }
    return DK_OK;
}

static void writer_free(struct dk_file_writer *writer)
{
    free(writer->path);
    free(writer->temporary_path);
    *writer = (struct dk_file_writer){.fd = -1};
}

/* Only the process-wide call tells the umask; the client has one thread. */
static mode_t current_umask(void)
{
    mode_t mask = umask(0);
    umask(mask);
    return mask;
}

static dk_status create_temporary(struct dk_file_writer *writer, struct dk_error *error)
{
    if (asprintf(&writer->temporary_path, "%s.XXXXXX.tmp", writer->path) < 0) {
        writer->temporary_path = NULL;
        return dk_fail(error, DK_NO_MEMORY, "no memory to open '%s'", writer->path);
    }
    writer->fd = mkostemps(writer->temporary_path, 4, O_CLOEXEC);
    if (writer->fd < 0) {
        dk_status status = io_error(error, "create", writer->path);
        free(writer->temporary_path); /* nothing was created: nothing to unlink */
        writer->temporary_path = NULL;
        return status;
    }
    if (fchmod(writer->fd, 0666 & ~current_umask()) != 0)
        return io_error(error, "set the mode of", writer->path);
    return DK_OK;
}

static dk_status open_directly(struct dk_file_writer *writer, struct dk_error *error)
{
    writer->fd = open(writer->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    return writer->fd < 0 ? io_error(error, "open", writer->path) : DK_OK;
}

dk_status dk_file_writer_open(const char *path, struct dk_file_writer *out, struct dk_error *error)
{
    struct stat info;
    bool is_there = stat(path, &info) == 0;
    struct dk_file_writer writer = {.fd = -1, .path = is_there ? realpath(path, NULL) : strdup(path)};
    if (!writer.path)
        return io_error(error, "open", path);
    dk_status status =
        is_there && !S_ISREG(info.st_mode) ? open_directly(&writer, error) : create_temporary(&writer, error);
    if (status != DK_OK) {
        dk_file_writer_abort(&writer);
        return status;
    }
    *out = writer;
    return DK_OK;
}

dk_status dk_file_writer_append(struct dk_file_writer *writer, const void *bytes, size_t length,
                                struct dk_error *error)
{
    return write_all(writer->fd, writer->path, bytes, length, error);
}

/* Make the rename itself durable. Some file systems refuse fsync on a folder (EINVAL): the data is safe then.
 */
static dk_status sync_folder_of(const char *path, struct dk_error *error)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    if (!folder)
        return dk_fail(error, DK_NO_MEMORY, "no memory to flush the folder of '%s'", path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dk_status status = DK_OK;
    if (fd < 0)
        status = io_error(error, "open", folder);
    else if (fsync(fd) != 0 && errno != EINVAL)
        status = io_error(error, "flush", folder);
    if (fd >= 0)
        close(fd);
    free(folder);
    return status;
}

dk_status dk_file_writer_commit(struct dk_file_writer *writer, struct dk_error *error)
{
    dk_status status = DK_OK;
    bool is_direct = writer->temporary_path == NULL;
    if (!is_direct && fsync(writer->fd) != 0 && errno != EINVAL)
        status = io_error(error, "flush", writer->path);
    if (close(writer->fd) != 0 && status == DK_OK)
        status = io_error(error, "close", writer->path);
    writer->fd = -1;
    if (status == DK_OK && !is_direct && rename(writer->temporary_path, writer->path) != 0)
        status = io_error(error, "rename into", writer->path);
    if (status != DK_OK) {
        dk_file_writer_abort(writer);
        return status;
    }
    if (!is_direct)
        status = sync_folder_of(writer->path, error);
    writer_free(writer);
    return status;
}

void dk_file_writer_abort(struct dk_file_writer *writer)
{
    if (!writer || !writer->path)
        return;
    if (writer->fd >= 0)
        close(writer->fd);
    if (writer->temporary_path)
        unlink(writer->temporary_path);
    writer_free(writer);
}

static dk_status write_to_stdout(const void *head, size_t head_length, const void *body, size_t body_length,
                                 struct dk_error *error)
{
    if (fflush(stdout) != 0)
        return io_error(error, "write", "standard output");
    dk_status status = write_all(STDOUT_FILENO, "standard output", head, head_length, error);
    return status == DK_OK ? write_all(STDOUT_FILENO, "standard output", body, body_length, error) : status;
}

dk_status dk_file_write(const char *path, const void *head, size_t head_length, const void *body,
                        size_t body_length, struct dk_error *error)
{
    if (strcmp(path, "-") == 0)
        return write_to_stdout(head, head_length, body, body_length, error);
    struct dk_file_writer writer;
    dk_status status = dk_file_writer_open(path, &writer, error);
    if (status != DK_OK)
        return status;
    if ((status = dk_file_writer_append(&writer, head, head_length, error)) != DK_OK ||
        (status = dk_file_writer_append(&writer, body, body_length, error)) != DK_OK) {
        dk_file_writer_abort(&writer);
        return status;
    }
    return dk_file_writer_commit(&writer, error);
}

/* --- folders ------------------------------------------------------------------------------------------- */

static dk_status make_one_folder(const char *path, struct dk_error *error)
{
    struct stat info;
    if (mkdir(path, 0777) == 0)
        return DK_OK;
    if (errno != EEXIST)
        return io_error(error, "create folder", path);
    if (stat(path, &info) != 0)
        return io_error(error, "stat", path);
    if (!S_ISDIR(info.st_mode)) {
        errno = ENOTDIR;
        return io_error(error, "create folder", path);
    }
    return DK_OK;
}

dk_status dk_folder_make(const char *path, struct dk_error *error)
{
    char *partial = strdup(path);
    if (!partial)
        return dk_fail(error, DK_NO_MEMORY, "no memory to create folder '%s'", path);
    dk_status status = DK_OK;
    for (char *slash = partial; status == DK_OK && (slash = strchr(slash + 1, '/'));) {
        *slash = 0;
        status = make_one_folder(partial, error);
        *slash = '/';
    }
    if (status == DK_OK)
        status = make_one_folder(partial, error);
    free(partial);
    return status;
}

dk_status dk_folder_is_empty(const char *path, bool *out, struct dk_error *error)
{
    DIR *folder = opendir(path);
    if (!folder)
        return io_error(error, "open folder", path);
    bool is_empty = true;
    struct dirent *entry;
    errno = 0;
    while (is_empty && (entry = readdir(folder)))
        is_empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    dk_status status = is_empty && errno != 0 ? io_error(error, "read folder", path) : DK_OK;
    closedir(folder);
    if (status == DK_OK)
        *out = is_empty;
    return status;
}
