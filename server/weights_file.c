/* weights_file.c: reading a safetensors file with pread only. */
#include "server/weights_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LENGTH_WORD_BYTES = 8, READ_BYTES = 1 << 30 };

struct dk_weights_file {
    const char *path;
    int fd;
    uint64_t bytes;
    struct timespec modified;
    struct dk_st_index index;
};

static const char *file_kind(mode_t mode)
{
    return S_ISDIR(mode)    ? "directory"
           : S_ISFIFO(mode) ? "FIFO"
           : S_ISSOCK(mode) ? "socket"
           : S_ISCHR(mode)  ? "character device"
           : S_ISBLK(mode)  ? "block device"
                            : "special file";
}

/* Reads up to `size` bytes; *got is less only at the end of the file. */
static dk_status read_at(const struct dk_weights_file *file, uint64_t offset, void *out, size_t size,
                         size_t *got, struct dk_error *error)
{
    size_t done = 0;
    while (done < size) {
        size_t part = size - done < READ_BYTES ? size - done : READ_BYTES;
        unsigned long long at = offset + done;
        ssize_t count = pread(file->fd, (char *)out + done, part, (off_t)at);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return dk_fail(error, DK_IO_ERROR, "%s: cannot read at byte %llu: %s", file->path, at,
                           strerrordesc_np(errno));
        if (count == 0)
            break;
        done += (size_t)count;
    }
    *got = done;
    return DK_OK;
}

static uint64_t little_endian(const unsigned char *bytes)
{
    uint64_t value = 0;
    for (int i = LENGTH_WORD_BYTES - 1; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

/* How much of the head to read: never more than the file has nor than a valid header may. */
static size_t head_bytes(uint64_t header_bytes, uint64_t file_bytes)
{
    if (header_bytes > DK_ST_MAX_HEADER_BYTES || file_bytes < LENGTH_WORD_BYTES ||
        header_bytes > file_bytes - LENGTH_WORD_BYTES)
        return LENGTH_WORD_BYTES; /* the parser refuses it from the length word alone */
    return (size_t)header_bytes + LENGTH_WORD_BYTES;
}

static dk_status read_index(struct dk_weights_file *file, struct dk_error *error)
{
    unsigned char word[LENGTH_WORD_BYTES] = {0};
    struct dk_error inner = {0};
    size_t got = 0;
    dk_status status = read_at(file, 0, word, sizeof word, &got, error);
    if (status != DK_OK)
        return status;
    size_t wanted = got < sizeof word ? got : head_bytes(little_endian(word), file->bytes);
    unsigned char *head = malloc(wanted + 1);
    if (head == NULL)
        return dk_fail(error, DK_NO_MEMORY, "%s: no memory for a header of %zu bytes", file->path, wanted);
    status = read_at(file, 0, head, wanted, &got, error);
    if (status == DK_OK) {
        status = dk_st_index_parse(head, got, file->bytes, &file->index, &inner);
        if (status != DK_OK)
            (void)dk_fail(error, status, "%s: %s", file->path, inner.message);
    }
    free(head);
    return status;
}

/* `fd`: a file to duplicate, or -1 to open file->path. */
static dk_status open_regular(struct dk_weights_file *file, int fd, struct dk_error *error)
{
    struct stat info;
    /* NONBLOCK: opening a FIFO must not wait for a writer */
    file->fd = fd < 0 ? open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
                      : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (file->fd < 0)
        return dk_fail(error, DK_IO_ERROR, "%s: cannot open: %s", file->path, strerrordesc_np(errno));
    if (fstat(file->fd, &info) != 0)
        return dk_fail(error, DK_IO_ERROR, "%s: cannot stat: %s", file->path, strerrordesc_np(errno));
    if (!S_ISREG(info.st_mode))
        return dk_fail(error, DK_BAD_FILE, "%s: is a %s, expected a regular file", file->path,
                       file_kind(info.st_mode));
    file->bytes = (uint64_t)info.st_size;
    file->modified = info.st_mtim;
    return DK_OK;
}

static dk_status open_file(const char *path, int fd, struct dk_weights_file **out, struct dk_error *error)
{
    struct dk_weights_file *file = calloc(1, sizeof *file);
    if (file == NULL)
        return dk_fail(error, DK_NO_MEMORY, "%s: no memory", path);
    file->path = path;
    dk_status status = open_regular(file, fd, error);
    if (status == DK_OK)
        status = read_index(file, error);
    if (status == DK_OK)
        *out = file;
    else
        dk_weights_file_close(file);
    return status;
}

dk_status dk_weights_file_open(const char *path, struct dk_weights_file **out, struct dk_error *error)
{
    return open_file(path, -1, out, error);
}

dk_status dk_weights_file_open_fd(int fd, const char *name, struct dk_weights_file **out,
                                  struct dk_error *error)
{
    return open_file(name, fd, out, error);
}

void dk_weights_file_close(struct dk_weights_file *file)
{
    if (file == NULL)
        return;
    dk_st_index_deinit(&file->index);
    if (file->fd >= 0)
        (void)close(file->fd);
    free(file);
}

const struct dk_st_index *dk_weights_file_index(const struct dk_weights_file *file)
{
    return &file->index;
}

static bool has_changed(const struct dk_weights_file *file)
{
    struct stat info;
    return fstat(file->fd, &info) != 0 || (uint64_t)info.st_size != file->bytes ||
           info.st_mtim.tv_sec != file->modified.tv_sec || info.st_mtim.tv_nsec != file->modified.tv_nsec;
}

dk_status dk_weights_file_read(const struct dk_weights_file *file, const struct dk_st_tensor *tensor,
                               void *out, struct dk_error *error)
{
    size_t size = (size_t)(tensor->end - tensor->begin), got = 0;
    dk_status status = read_at(file, tensor->file_offset, out, size, &got, error);
    if (status != DK_OK)
        return status;
    if (got < size)
        return dk_fail(error, DK_BAD_FILE,
                       "%s: tensor '%s': expected %zu bytes, found %zu: the file was truncated while loading",
                       file->path, tensor->name, size, got);
    if (has_changed(file))
        return dk_fail(error, DK_BAD_FILE,
                       "%s: tensor '%s': the file was written while loading; replace files by rename",
                       file->path, tensor->name);
    return DK_OK;
}
