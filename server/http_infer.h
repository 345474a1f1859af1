/* http_infer.h: the state of POST /v2/models/{m}/infer and its ways to answer. */
#ifndef DK_SERVER_HTTP_INFER_H
#define DK_SERVER_HTTP_INFER_H

#include <microhttpd.h>

#include "server/http_request.h"
#include "server/infer.h"

/* request->route_state of the route. */
struct dk_http_infer {
    struct dk_infer infer;
    int metrics_model; /* -1: unknown */
    bool is_admitted;  /* the body was in order: only shared memory remains to be copied */
};

/* The answer of a succeeded job, whose shared memory has been written; infer->job may be gone afterwards. */
enum MHD_Result dk_http_infer_reply(struct dk_http_request *request, struct dk_infer *infer);

#endif
