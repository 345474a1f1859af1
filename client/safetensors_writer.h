/* safetensors_writer.h: write a safetensors file tensor by tensor, atomically. The reader is
 * proto/safetensors.h. */
#ifndef DK_CLIENT_SAFETENSORS_WRITER_H
#define DK_CLIENT_SAFETENSORS_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "client/file.h"
#include "proto/dtype.h"
#include "proto/json_writer.h"
#include "proto/status.h"

struct dk_st_entry {
    const char *name; /* borrowed */
    dk_dtype dtype;
    uint32_t rank;
    uint64_t shape[2];
};
uint64_t dk_st_entry_bytes(const struct dk_st_entry *entry);

/* Length word and header for these entries laid out in order without gaps; the data begins at a multiple
 * of 8. Appended to `out`; check out->failed. */
void dk_st_header_write(struct dk_json_text *out, const struct dk_st_entry *entries, size_t count);

struct dk_st_writer {
    struct dk_file_writer file;
    uint64_t left_bytes; /* of data still to be appended */
};
/* DK_IO_ERROR, DK_NO_MEMORY. Then append exactly the bytes of all entries, in order, and commit; or abort. */
dk_status dk_st_writer_open(const char *path, const struct dk_st_entry *entries, size_t count,
                            struct dk_st_writer *out, struct dk_error *error);
dk_status dk_st_writer_append(struct dk_st_writer *writer, const void *bytes, size_t length,
                              struct dk_error *error);
dk_status dk_st_writer_commit(struct dk_st_writer *writer, struct dk_error *error);
void dk_st_writer_abort(struct dk_st_writer *writer);

#endif
