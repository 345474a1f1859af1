/* oip_framing.h: where the JSON of an infer body ends and its binary tensors begin. All byte counts are of
 * the decompressed body. */
#ifndef DK_PROTO_OIP_FRAMING_H
#define DK_PROTO_OIP_FRAMING_H

#include <stdint.h>

#include "proto/status.h"

#define DK_OIP_HEADER_LENGTH "Inference-Header-Content-Length"

enum dk_oip_framing_kind {
    DK_OIP_ALL_JSON, /* no header: the whole body is JSON */
    DK_OIP_RAW,      /* N = 0: the whole body is the one tensor */
    DK_OIP_SPLIT     /* N > 0: N bytes of JSON, then the binary tensors */
};

struct dk_oip_framing {
    enum dk_oip_framing_kind kind;
    uint64_t json_bytes; /* N; meaningless for DK_OIP_ALL_JSON */
};

/* `value` is the header's text, NULL when absent. Digits only, in 64 bits; anything else is DK_BAD_VALUE. */
dk_status dk_oip_framing_parse(const char *value, struct dk_oip_framing *out, struct dk_error *error);
/* DK_BAD_VALUE when N is beyond a body of `body_bytes`: as soon as that is known, at the latest at the
 * body's end. */
dk_status dk_oip_framing_check(const struct dk_oip_framing *framing, uint64_t body_bytes,
                               struct dk_error *error);

#endif
