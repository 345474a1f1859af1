/* oip_region.h: bodies of the shared-memory extensions: registration requests and status lists. */
#ifndef DK_PROTO_OIP_REGION_H
#define DK_PROTO_OIP_REGION_H

#include <stddef.h>
#include <stdint.h>

#include "proto/json_writer.h"
#include "proto/status.h"

enum { DK_OIP_MAX_KEY_BYTES = 255, DK_OIP_CUDA_HANDLE_BYTES = 64 };

/* POST /v2/systemsharedmemory/region/{r}/register: {"key","offset"?,"byte_size"}. */
struct dk_oip_system_region {
    char key[DK_OIP_MAX_KEY_BYTES + 1]; /* as sent */
    const char *object;                 /* inside `key`: without its leading slashes; never "", "." or ".." */
    uint64_t offset, byte_size;         /* byte_size > 0; the sum fits in 63 bits (off_t) */
};

/* POST /v2/cudasharedmemory/region/{r}/register: {"raw_handle":{"b64"},"device_id","byte_size"}. */
struct dk_oip_cuda_region {
    unsigned char handle[DK_OIP_CUDA_HANDLE_BYTES];
    uint64_t device_id; /* fits in an int */
    uint64_t byte_size; /* > 0 */
};

/* `skeleton` comes from dk_json_reader_finish. Members the protocol does not name are ignored. DK_BAD_REQUEST
 * (missing, wrong type), DK_BAD_VALUE. *out is untouched on failure; `object` points into *out. */
dk_status dk_oip_system_region_parse(const char *skeleton, size_t length, struct dk_oip_system_region *out,
                                     struct dk_error *error);
dk_status dk_oip_cuda_region_parse(const char *skeleton, size_t length, struct dk_oip_cuda_region *out,
                                   struct dk_error *error);

struct dk_oip_system_status {
    const char *name, *key;
    uint64_t offset, byte_size;
};
struct dk_oip_cuda_status {
    const char *name;
    uint64_t device_id, byte_size;
};

/* Always an array: [{"name","key","offset","byte_size"}], [{"name","device_id","byte_size"}]. */
void dk_oip_system_regions(struct dk_json_text *text, const struct dk_oip_system_status *regions,
                           size_t count);
void dk_oip_cuda_regions(struct dk_json_text *text, const struct dk_oip_cuda_status *regions, size_t count);

#endif
