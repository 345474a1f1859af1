/* oip_framing.c: the value of Inference-Header-Content-Length. */
#include "proto/oip_framing.h"

#include <stdbool.h>
#include <stddef.h>

enum { VALUE_SHOWN = 80 };

dk_status dk_oip_framing_parse(const char *value, struct dk_oip_framing *out, struct dk_error *error)
{
    if (value == NULL) {
        *out = (struct dk_oip_framing){.kind = DK_OIP_ALL_JSON};
        return DK_OK;
    }
    uint64_t bytes = 0;
    bool is_number = value[0] != '\0';
    for (const char *p = value; *p != '\0' && is_number; p++) {
        is_number = *p >= '0' && *p <= '9' && !__builtin_mul_overflow(bytes, UINT64_C(10), &bytes) &&
                    !__builtin_add_overflow(bytes, (uint64_t)(*p - '0'), &bytes);
    }
    if (!is_number) {
        return dk_fail(error, DK_BAD_VALUE,
                       DK_OIP_HEADER_LENGTH ": expected a number of bytes below 2^64, found \"%.*s\"",
                       (int)VALUE_SHOWN, value);
    }
    *out = (struct dk_oip_framing){.kind = bytes == 0 ? DK_OIP_RAW : DK_OIP_SPLIT, .json_bytes = bytes};
    return DK_OK;
}

dk_status dk_oip_framing_check(const struct dk_oip_framing *framing, uint64_t body_bytes,
                               struct dk_error *error)
{
    if (framing->kind != DK_OIP_SPLIT || framing->json_bytes <= body_bytes) {
        return DK_OK;
    }
    return dk_fail(error, DK_BAD_VALUE,
                   DK_OIP_HEADER_LENGTH ": expected at most the body's %llu bytes, found %llu",
                   (unsigned long long)body_bytes, (unsigned long long)framing->json_bytes);
}
