/* file.h: files of the client: read whole, read at an offset, and replaced atomically. */
#ifndef DK_CLIENT_FILE_H
#define DK_CLIENT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/status.h"

/* Read all of `path`, or of standard input when `path` is "-", up to `max_bytes` (DK_TOO_LARGE beyond).
 * *out_bytes is allocated (never NULL) and freed by the caller. DK_IO_ERROR names path and errno text;
 * DK_NO_MEMORY. */
dk_status dk_file_read(const char *path, size_t max_bytes, void **out_bytes, size_t *out_length,
                       struct dk_error *error);

/* Open a regular file for reading; anything else is DK_BAD_FILE (a FIFO does not block). */
dk_status dk_file_open_regular(const char *path, int *out_fd, uint64_t *out_bytes, struct dk_error *error);
/* Exactly `length` bytes at `offset`; a file that ends earlier is DK_BAD_FILE. */
dk_status dk_file_pread(int fd, const char *path, void *out, size_t length, uint64_t offset,
                        struct dk_error *error);

/* A file being written beside its final name; it appears there complete or not at all. */
struct dk_file_writer {
    int fd;
    char *path;           /* symbolic links resolved */
    char *temporary_path; /* NULL: `path` is a device or pipe, written directly */
};
/* Creates PATH.XXXXXX.tmp in the same folder, mode 0666 less the umask. A device or pipe (/dev/null) is
 * written as it is, never replaced. DK_IO_ERROR, DK_NO_MEMORY. Thread: one at a time (reads the umask). */
dk_status dk_file_writer_open(const char *path, struct dk_file_writer *out, struct dk_error *error);
dk_status dk_file_writer_append(struct dk_file_writer *writer, const void *bytes, size_t length,
                                struct dk_error *error);
/* Flush to the device and rename over `path`. Closes the writer also on failure. */
dk_status dk_file_writer_commit(struct dk_file_writer *writer, struct dk_error *error);
/* Remove the temporary file; nothing to do after commit. NULL-safe, idempotent. */
void dk_file_writer_abort(struct dk_file_writer *writer);

/* open + append + commit. "-" writes to standard output instead. */
dk_status dk_file_write(const char *path, const void *head, size_t head_length, const void *body,
                        size_t body_length, struct dk_error *error);

/* Make `path` and its missing parents (mode 0777 less the umask). DK_IO_ERROR when it exists and is no
 * folder. */
dk_status dk_folder_make(const char *path, struct dk_error *error);
/* True in *out when the folder has an entry besides "." and "..". */
dk_status dk_folder_is_empty(const char *path, bool *out, struct dk_error *error);

#endif
