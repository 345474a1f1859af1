/* oip_region.c: bodies of the shared-memory extensions. */
#include "proto/oip_region.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "proto/oip_member.h"

enum { BASE64_BYTES = (DK_OIP_CUDA_HANDLE_BYTES + 2) / 3 * 4 };

struct region_context {
    union {
        struct dk_oip_system_region system;
        struct dk_oip_cuda_region cuda;
    } region;
    bool has_key, has_byte_size, has_handle, has_device;
};

static bool has_control(const char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7F) {
            return true;
        }
    }
    return false;
}

/* What shm_open takes: any number of leading slashes, then one name. */
static dk_status read_key(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    struct region_context *reading = context;
    char *key = reading->region.system.key;
    dk_status status = dk_oip_read_string(member, key, sizeof reading->region.system.key, error);
    if (status != DK_OK) {
        return status;
    }
    const char *object = key + strspn(key, "/");
    bool is_dots = strcmp(object, ".") == 0 || strcmp(object, "..") == 0;
    if (object[0] == '\0' || strchr(object, '/') != NULL || is_dots || has_control(object)) {
        return dk_oip_fail(member, DK_BAD_VALUE, "the name of a shared memory object, as \"/name\"", error);
    }
    reading->has_key = true;
    return DK_OK;
}

static dk_status read_offset(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    return dk_oip_read_u64(member, &((struct region_context *)context)->region.system.offset, error);
}

static dk_status read_byte_size(struct region_context *reading, const struct dk_oip_member *member,
                                uint64_t *byte_size, struct dk_error *error)
{
    dk_status status = dk_oip_read_u64(member, byte_size, error);
    if (status == DK_OK && (*byte_size == 0 || *byte_size > INT64_MAX)) {
        return dk_oip_fail(member, DK_BAD_VALUE, "1 to 2^63 - 1", error);
    }
    reading->has_byte_size = true;
    return status;
}

static dk_status read_system_size(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    struct region_context *reading = context;
    return read_byte_size(reading, member, &reading->region.system.byte_size, error);
}

static dk_status read_cuda_size(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    struct region_context *reading = context;
    return read_byte_size(reading, member, &reading->region.cuda.byte_size, error);
}

static const struct dk_oip_field system_fields[] = {
    {"key", read_key}, {"offset", read_offset}, {"byte_size", read_system_size}};

dk_status dk_oip_system_region_parse(const char *skeleton, size_t length, struct dk_oip_system_region *out,
                                     struct dk_error *error)
{
    struct dk_oip_member body = dk_oip_body(skeleton, length);
    struct region_context reading = {0};
    const struct dk_oip_system_region *region = &reading.region.system;
    dk_status status = dk_oip_read_object(
        &body, system_fields, sizeof system_fields / sizeof system_fields[0], NULL, &reading, error);
    if (status != DK_OK) {
        return status;
    }
    if (!reading.has_key || !reading.has_byte_size) {
        return dk_oip_fail_missing(&body, reading.has_key ? "byte_size" : "key", error);
    }
    if (region->offset > (uint64_t)INT64_MAX - region->byte_size) {
        return dk_fail(error, DK_BAD_VALUE, "expected offset + byte_size below 2^63, found %llu + %llu",
                       (unsigned long long)region->offset, (unsigned long long)region->byte_size);
    }
    *out = *region;
    out->object = out->key + strspn(out->key, "/");
    return DK_OK;
}

static int base64_value(char c)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c == '\0' ? NULL : strchr(alphabet, c);
    return at == NULL ? -1 : (int)(at - alphabet);
}

/* 64 bytes are 86 characters and "==". */
static bool decode_handle(const char *text, unsigned char out[DK_OIP_CUDA_HANDLE_BYTES])
{
    if (strlen(text) != BASE64_BYTES || strcmp(text + BASE64_BYTES - 2, "==") != 0) {
        return false;
    }
    unsigned bits = 0;
    unsigned bit_count = 0;
    size_t length = 0;
    for (size_t i = 0; i < BASE64_BYTES - 2; i++) {
        int value = base64_value(text[i]);
        if (value < 0) {
            return false;
        }
        bits = (bits << 6 | (unsigned)value) & 0xFFFFU;
        bit_count += 6;
        if (bit_count >= 8) {
            bit_count -= 8;
            out[length++] = (unsigned char)(bits >> bit_count);
        }
    }
    return (bits & ((1U << bit_count) - 1U)) == 0; /* the spare bits of the last character */
}

static dk_status read_base64(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    struct region_context *reading = context;
    char text[DK_OIP_MAX_STRING_BYTES + 1];
    dk_status status = dk_oip_read_string(member, text, sizeof text, error);
    if (status == DK_OK && !decode_handle(text, reading->region.cuda.handle)) {
        return dk_oip_fail(member, DK_BAD_VALUE, "64 bytes in base64", error);
    }
    reading->has_handle = true;
    return status;
}

static dk_status read_handle(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    static const struct dk_oip_field fields[] = {{"b64", read_base64}};
    return dk_oip_read_object(member, fields, 1, NULL, context, error);
}

static dk_status read_device(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    struct region_context *reading = context;
    dk_status status = dk_oip_read_u64(member, &reading->region.cuda.device_id, error);
    if (status == DK_OK && reading->region.cuda.device_id > INT_MAX) {
        return dk_oip_fail(member, DK_BAD_VALUE, "the number of a device", error);
    }
    reading->has_device = true;
    return status;
}

static const struct dk_oip_field cuda_fields[] = {
    {"raw_handle", read_handle}, {"device_id", read_device}, {"byte_size", read_cuda_size}};

dk_status dk_oip_cuda_region_parse(const char *skeleton, size_t length, struct dk_oip_cuda_region *out,
                                   struct dk_error *error)
{
    struct dk_oip_member body = dk_oip_body(skeleton, length);
    struct region_context reading = {0};
    dk_status status = dk_oip_read_object(&body, cuda_fields, sizeof cuda_fields / sizeof cuda_fields[0],
                                          NULL, &reading, error);
    if (status != DK_OK) {
        return status;
    }
    if (!reading.has_handle || !reading.has_device || !reading.has_byte_size) {
        return dk_oip_fail_missing(&body,
                                   !reading.has_handle   ? "raw_handle.b64"
                                   : !reading.has_device ? "device_id"
                                                         : "byte_size",
                                   error);
    }
    *out = reading.region.cuda;
    return DK_OK;
}

void dk_oip_system_regions(struct dk_json_text *text, const struct dk_oip_system_status *regions,
                           size_t count)
{
    dk_json_text_raw(text, "[");
    for (size_t i = 0; i < count; i++) {
        dk_json_text_raw(text, i > 0 ? ",{\"name\":" : "{\"name\":");
        dk_oip_text_string(text, regions[i].name);
        dk_json_text_raw(text, ",\"key\":");
        dk_oip_text_string(text, regions[i].key);
        dk_json_text_raw(text, ",\"offset\":");
        dk_json_text_u64(text, regions[i].offset);
        dk_json_text_raw(text, ",\"byte_size\":");
        dk_json_text_u64(text, regions[i].byte_size);
        dk_json_text_raw(text, "}");
    }
    dk_json_text_raw(text, "]");
}

void dk_oip_cuda_regions(struct dk_json_text *text, const struct dk_oip_cuda_status *regions, size_t count)
{
    dk_json_text_raw(text, "[");
    for (size_t i = 0; i < count; i++) {
        dk_json_text_raw(text, i > 0 ? ",{\"name\":" : "{\"name\":");
        dk_oip_text_string(text, regions[i].name);
        dk_json_text_raw(text, ",\"device_id\":");
        dk_json_text_u64(text, regions[i].device_id);
        dk_json_text_raw(text, ",\"byte_size\":");
        dk_json_text_u64(text, regions[i].byte_size);
        dk_json_text_raw(text, "}");
    }
    dk_json_text_raw(text, "]");
}
