/* npy.h: matrices in NumPy's .npy files (format versions 1 to 3): bytes in, checked view out, and the header
 * of a file to write. Pure: the caller reads and writes files. Source: NEP 1 and numpy.lib.format. */
#ifndef DK_CLIENT_NPY_H
#define DK_CLIENT_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/dtype.h"
#include "proto/status.h"

enum {
    DK_NPY_MAX_HEADER_BYTES = 64 * 1024, /* of the dictionary text */
    DK_NPY_HEADER_BYTES = 128            /* what dk_npy_header writes */
};

enum dk_npy_type { DK_NPY_F2, DK_NPY_F4, DK_NPY_F8 };

struct dk_npy {
    enum dk_npy_type type;
    bool is_fortran;     /* columns are contiguous */
    uint64_t rows, cols; /* [K] is one row; [0] is no row */
    uint32_t rank;       /* as written: 1 or 2 */
    size_t data_offset;  /* of the first value, from the start of the file */
};

/* True when `bytes` starts with the magic of the format. */
bool dk_npy_has_magic(const void *bytes, size_t length);

/* Parse and check a whole file. Taken: '<f2', '<f4', '<f8' (and '=', on this little-endian machine), C or
 * Fortran order, one or two dimensions, exactly as many data bytes as the shape says. DK_BAD_FILE
 * (structure), DK_BAD_DTYPE (big-endian, integer, structured, object...), DK_BAD_SHAPE (rank), each with what
 * was found. Never reads outside [bytes, bytes + length). */
dk_status dk_npy_parse(const void *bytes, size_t length, struct dk_npy *out, struct dk_error *error);

/* Convert the values of `npy`, found in the same `bytes`, to `dtype` in C order, rounding once to nearest
 * even. `out`: rows * cols * dk_dtype_bytes(dtype) bytes. DK_BAD_VALUE with the coordinate when a finite
 * value becomes infinite; NaN and infinities pass. `dtype` is fp32, bf16 or fp16. */
dk_status dk_npy_convert(const struct dk_npy *npy, const void *bytes, dk_dtype dtype, void *out,
                         struct dk_error *error);

/* Header of a C-order [rows, cols] file of '<f4' (DK_FP32) or '<f2' (DK_FP16). */
void dk_npy_header(char out[DK_NPY_HEADER_BYTES], dk_dtype dtype, uint64_t rows, uint64_t cols);

#endif
