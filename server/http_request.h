/* http_request.h: one HTTP request while it is being read, computed and answered. */
#ifndef DK_SERVER_HTTP_REQUEST_H
#define DK_SERVER_HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/status.h"
#include "server/http_head.h"
#include "server/http_pattern.h"
#include "server/http_target.h"
#include "server/matmul.h"

struct MHD_Connection;
struct dk_daemon;
struct dk_http;
struct dk_http_bodies;
struct dk_http_connection;
struct dk_inflater;
struct dk_route;

enum dk_http_method {
    DK_METHOD_GET = 1,
    DK_METHOD_HEAD = 2,
    DK_METHOD_POST = 4,
    DK_METHOD_OPTIONS = 8,
    DK_METHOD_PUT = 16,
    DK_METHOD_DELETE = 32,
    DK_METHOD_OTHER = 64
};

enum dk_http_stage {
    DK_STAGE_NONE, /* between requests */
    DK_STAGE_LINE, /* request line seen */
    DK_STAGE_READ, /* head accepted or refused; the body arrives */
    DK_STAGE_WORK  /* pushed to the executor; suspended */
};

/* Of a refused body this much is read so that the connection can be used again; more, and it is closed. */
enum { DK_HTTP_DISCARD_BYTES = 1024 * 1024 };

/* Lives in its connection and is reset for every request. Thread: the connection's HTTP thread. */
struct dk_http_request {
    struct dk_http *http;
    struct dk_daemon *daemon;
    struct dk_http_connection *connection;
    struct MHD_Connection *mhd;
    enum dk_http_stage stage;
    enum dk_http_method method;
    const struct dk_route *route; /* NULL: refused before routing */
    struct dk_http_head head;
    struct dk_target target;
    struct dk_path_parameters parameters; /* of the path, checked before route->begin */
    uint64_t arrived_ns;                  /* head complete */
    uint64_t body_bytes;                  /* received */
    uint64_t plain_bytes; /* given to route->body: received, and decompressed if they were compressed */
    struct dk_inflater *inflater;  /* of a compressed body; NULL otherwise */
    struct dk_http_bodies *bodies; /* where the inflater is counted */
    uint64_t discarded_bytes;      /* received after the refusal */
    struct dk_error error;         /* first refusal; DK_OK while all is well */
    bool is_counted;               /* in dk_http.active_count */
    bool should_close;             /* say Connection: close */
    struct dk_matmul matmul;       /* state of POST /v1/matmul */
    void *route_state;             /* of any other route; NULL at the start, freed by its end() */
};

/* Bytes of the decompressed body, when the head tells: 0 without a body; UINT64_MAX: unknown. */
static inline uint64_t dk_http_plain_length(const struct dk_http_request *request)
{
    const struct dk_http_head *head = &request->head;
    return head->is_chunked || (head->coding != DK_CODING_IDENTITY && head->content_length > 0)
               ? UINT64_MAX
               : head->content_length;
}

#endif
