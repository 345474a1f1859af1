/* safetensors_entry.h: one member of a safetensors header: "name": {"dtype", "shape", "data_offsets"}. */
#ifndef DK_PROTO_SAFETENSORS_ENTRY_H
#define DK_PROTO_SAFETENSORS_ENTRY_H

#include "proto/json_cursor.h"
#include "proto/safetensors.h"

/* The cursor is at the value of tensor->name. Sets all but file_offset; checks everything that concerns this
 * tensor alone. DK_BAD_FILE. */
dk_status dk_st_entry_parse(struct dk_json_cursor *cursor, uint64_t data_bytes, struct dk_st_tensor *tensor,
                            struct dk_error *error);
/* The cursor is at the value of "__metadata__": an object of strings. */
dk_status dk_st_metadata_check(struct dk_json_cursor *cursor, struct dk_error *error);

#endif
