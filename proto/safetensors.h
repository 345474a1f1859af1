/* safetensors.h: the header of a safetensors file: bytes in, checked tensor views out. Pure: the caller maps
 * the file. (DESIGN.md put this in server/; it lives here because the client's `check` needs the same reader
 * and may not include server/.) Source: the format description of the safetensors project (8-byte
 * little-endian header length, JSON header, data). */
#ifndef DK_PROTO_SAFETENSORS_H
#define DK_PROTO_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/dtype.h"
#include "proto/status.h"

enum {
    DK_ST_MAX_HEADER_BYTES = 100 * 1000 * 1000, /* the reference library's cap */
    DK_ST_MAX_RANK = 8,
    DK_ST_MAX_NAME_BYTES = 255
};

struct dk_st_tensor {
    const char *name;    /* NUL-terminated, owned by the index */
    char dtype_name[16]; /* as written; types we cannot compute with are still listed */
    int dtype;           /* enum dk_dtype, or -1 */
    uint32_t rank;
    uint64_t shape[DK_ST_MAX_RANK];
    uint64_t begin, end;  /* byte offsets inside the data section */
    uint64_t file_offset; /* of the first byte, from the start of the file */
};

struct dk_st_index {
    struct dk_st_tensor *tensors; /* sorted by begin, then end, then name */
    size_t tensor_count;
    uint64_t header_bytes; /* the length word's value */
    uint64_t data_bytes;
    char *names; /* private */
};

/* Parse and check the header of a file of `file_bytes` whose first `available` bytes are at `bytes`
 * (available >= 8 + header length, else DK_BAD_FILE; pass the whole mapping). Refused, each with tensor and
 * numbers in the message: file under 8 bytes; header length 0, above the cap or past the end; header not a
 * strict JSON object; duplicate names; unknown fields in an entry; shape/offset not unsigned integers; begin
 * > end; end past the file; byte count not equal to shape * item size (for known types); holes or overlaps
 * between tensors; bytes after the last tensor; rank > 8.
 * "__metadata__" must be an object of strings. Header may end in spaces. Never reads outside [bytes,
 * bytes+available). */
dk_status dk_st_index_parse(const void *bytes, size_t available, uint64_t file_bytes, struct dk_st_index *out,
                            struct dk_error *error);
void dk_st_index_deinit(struct dk_st_index *index); /* NULL-safe, zeroes */
/* NULL when absent. */
const struct dk_st_tensor *dk_st_index_find(const struct dk_st_index *index, const char *name);

#endif
