/* http_reply.h: the head of an HTTP/1.1 answer, as far as a client needs it that knows what it asked for. */
#ifndef DK_CLIENT_HTTP_REPLY_H
#define DK_CLIENT_HTTP_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A head longer than this is refused. */
enum { DK_HTTP_REPLY_MAX_HEAD = 8192 };

struct dk_http_reply_head {
    uint32_t status;          /* 200..599 */
    size_t head_bytes;        /* the empty line included */
    uint64_t body_bytes;      /* Content-Length */
    uint64_t inference_bytes; /* Inference-Header-Content-Length, at most body_bytes; 0 without */
    uint64_t kernel_ns;       /* of X-Decomposek-Timing-Us; 0 when the server does not say */
    bool is_last;             /* the server closes the connection after it */
};

enum dk_http_reply_parse { DK_HTTP_REPLY_MORE, DK_HTTP_REPLY_COMPLETE, DK_HTTP_REPLY_BAD };

/* Read the head that begins at bytes[0]; MORE until its empty line is there. *out is written only when it is
 * COMPLETE. Strict where the borders of the answer depend on it: a body without Content-Length (chunked, or
 * to the end of the connection), two lengths, folded lines and interim answers are BAD: none of them is
 * asked for. No allocation. */
enum dk_http_reply_parse dk_http_reply_parse(const char *bytes, size_t length,
                                             struct dk_http_reply_head *out);

#endif
