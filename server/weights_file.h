/* weights_file.h: a safetensors file, opened, checked and read into memory of the caller. */
#ifndef DK_SERVER_WEIGHTS_FILE_H
#define DK_SERVER_WEIGHTS_FILE_H

#include "proto/safetensors.h"

/* Nothing is mapped: a mapped file that another process truncates while it is read raises SIGBUS, which a
 * daemon cannot answer with an error; a short pread is one. */
struct dk_weights_file; /* one thread at a time */

/* Open and parse the header. DK_IO_ERROR when it cannot be opened or read, DK_BAD_FILE when it is not a
 * regular file or its header is wrong; every message starts with the path. `path` is borrowed until close. */
dk_status dk_weights_file_open(const char *path, struct dk_weights_file **out, struct dk_error *error);
/* The same of an open file, which is duplicated; `name` takes the place of the path. */
dk_status dk_weights_file_open_fd(int fd, const char *name, struct dk_weights_file **out,
                                  struct dk_error *error);
void dk_weights_file_close(struct dk_weights_file *file); /* NULL-safe */
/* Valid until close. */
const struct dk_st_index *dk_weights_file_index(const struct dk_weights_file *file);
/* Copies the end - begin bytes of `tensor` (of this file's index) to `out`. DK_BAD_FILE when the file was
 * truncated or written since it was opened. */
dk_status dk_weights_file_read(const struct dk_weights_file *file, const struct dk_st_tensor *tensor,
                               void *out, struct dk_error *error);

#endif
