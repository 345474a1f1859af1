/* checkpoint_file.h: one safetensors file opened for inspection: its index, and scans of its values. */
#ifndef DK_CLIENT_CHECKPOINT_FILE_H
#define DK_CLIENT_CHECKPOINT_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/safetensors.h"
#include "proto/status.h"

/* Read with pread, never mapped: a file that another process truncates gives an error, not SIGBUS. */
struct dk_checkpoint_file {
    const char *path; /* kept */
    int fd;
    uint64_t file_bytes;
    struct dk_st_index index;
};

/* Regular files only. The message names the file. DK_BAD_FILE, DK_IO_ERROR, DK_NO_MEMORY. */
dk_status dk_checkpoint_file_open(const char *path, struct dk_checkpoint_file *out, struct dk_error *error);
void dk_checkpoint_file_close(struct dk_checkpoint_file *file);

struct dk_value_counts {
    bool is_scanned; /* false for types other than F64, F32, F16 and BF16 */
    uint64_t nan_count, infinite_count;
};
/* Reads the whole tensor, a chunk at a time. */
dk_status dk_checkpoint_file_scan(const struct dk_checkpoint_file *file, const struct dk_st_tensor *tensor,
                                  struct dk_value_counts *out, struct dk_error *error);

#endif
