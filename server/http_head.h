/* http_head.h: what a request's headers say about its body and its answer, checked before a byte of body. */
#ifndef DK_SERVER_HTTP_HEAD_H
#define DK_SERVER_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/oip_coding.h"
#include "proto/status.h"

struct MHD_Connection;

struct dk_http_head {
    const char *content_type, *accept, *accept_encoding, *authorization, *traceparent,
        *json_length /* Inference-Header-Content-Length */,
        *expect; /* borrowed from the connection; NULL when absent */
    uint64_t content_length;
    bool has_content_length, is_chunked;
    enum dk_coding coding;    /* Content-Encoding of the body */
    bool wants_continue;      /* Expect: 100-continue */
    bool is_framing_doubtful; /* where the body ends is not certain: the connection must be closed */
};

/* Refuses what libmicrohttpd lets through: Content-Length twice or beside Transfer-Encoding, header names
 * with white space (both ways of smuggling), other codings than chunked, gzip, deflate and identity
 * (DK_UNSUPPORTED_MEDIA), a second Inference-Header-Content-Length, and unknown expectations
 * (DK_EXPECTATION_FAILED). *out is filled also on failure. Thread: HTTP. */
dk_status dk_http_head_read(struct MHD_Connection *connection, struct dk_http_head *out,
                            struct dk_error *error);

/* The same check one header at a time, pure. Zero-initialise; after the last header call _finish. */
struct dk_http_head_check {
    struct dk_http_head head;
    uint32_t content_length_count, transfer_encoding_count, authorization_count, content_encoding_count,
        traceparent_count;
    struct dk_error error; /* the first refusal */
};
void dk_http_head_check_add(struct dk_http_head_check *check, const char *name, size_t name_length,
                            const char *value, size_t value_length);
void dk_http_head_check_finish(struct dk_http_head_check *check);

enum dk_body_kind { DK_BODY_JSON, DK_BODY_RAW };
/* Absent, application/json and curl's default application/x-www-form-urlencoded are JSON,
 * application/octet-stream is raw, anything else (or a charset other than utf-8) DK_UNSUPPORTED_MEDIA. */
dk_status dk_body_kind_parse(const char *content_type, enum dk_body_kind *out, struct dk_error *error);

/* Quality 0..1000 that an Accept header gives to `type` ("application/json"): the most specific range that
 * matches counts. Absent header: 1000. *is_named (may be NULL): the type stands there itself, not only a
 * wildcard. */
unsigned dk_accept_quality(const char *accept, const char *type, bool *is_named);

#endif
