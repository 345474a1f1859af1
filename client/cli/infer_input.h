/* infer_input.h: the rows `infer` sends: from an .npy file, bare values, standard input, or a seed. */
#ifndef DK_CLIENT_CLI_INFER_INPUT_H
#define DK_CLIENT_CLI_INFER_INPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/dtype.h"
#include "proto/status.h"

/* Rows of one input: more would not fit any request. */
enum { DK_INFER_MAX_ROWS = 1 << 20 };

struct dk_infer_input {
    void *x; /* [rows, k] of the asked dtype, row-major; caller frees */
    uint64_t rows;
};

/* `path` "-" is standard input. A file that begins with the .npy magic is read as such, unless `is_raw`;
 * everything else is bare little-endian values of `dtype`, whole rows of `k`; a name ending in .npy must be
 * one. DK_BAD_SHAPE when columns or bytes do not fit `k`; else as dk_file_read and dk_npy_parse. */
dk_status dk_infer_input_load(const char *path, bool is_raw, dk_dtype dtype, uint64_t k,
                              struct dk_infer_input *out, struct dk_error *error);
/* Normal values, the same for equal (seed, rows, k) on every machine. DK_NO_MEMORY. */
dk_status dk_infer_input_random(uint64_t seed, uint64_t rows, dk_dtype dtype, uint64_t k,
                                struct dk_infer_input *out, struct dk_error *error);

#endif
