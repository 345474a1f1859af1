/* http_body.c: feeding a route, plain or through an inflater. */
#include "server/http_body.h"

#include <microhttpd.h>

#include "server/daemon.h"
#include "server/http_inflate.h"
#include "server/http_routes.h"

enum {
    /* So much is decompressed at once, about 1 ms, whatever the ratio. */
    INFLATE_TURN_BYTES = 256 * 1024,
    INFLATE_BLOCK_BYTES = 16 * 1024
};

dk_status dk_http_body_begin(struct dk_http_request *request, struct dk_http_bodies *bodies,
                             struct dk_error *error)
{
    bool has_body = request->head.is_chunked || request->head.content_length > 0;
    if (request->head.coding == DK_CODING_IDENTITY || !has_body || request->route->body == NULL ||
        request->method == DK_METHOD_OPTIONS) {
        return DK_OK;
    }
    uint32_t limit = request->daemon->config->max_in_flight;
    dk_status status;
    if (atomic_fetch_add(&bodies->inflater_count, 1) >= limit) {
        status = dk_fail(error, DK_BUSY, "%u compressed bodies are being read, the limit; try again", limit);
    } else {
        status = dk_inflater_new(request->head.coding, &request->inflater, error);
    }
    if (status != DK_OK) {
        atomic_fetch_sub(&bodies->inflater_count, 1);
    } else {
        request->bodies = bodies;
    }
    return status;
}

void dk_http_body_end(struct dk_http_request *request)
{
    if (request->inflater != NULL) {
        dk_inflater_free(request->inflater);
        request->inflater = NULL;
        atomic_fetch_sub(&request->bodies->inflater_count, 1);
    }
}

void dk_http_yield(struct dk_http_request *request)
{
    MHD_suspend_connection(request->mhd);
    MHD_resume_connection(request->mhd);
}

static dk_status feed_route(struct dk_http_request *request, const char *bytes, size_t length)
{
    request->plain_bytes += length;
    request->error.status = request->route->body(request, bytes, length, &request->error);
    return request->error.status;
}

/* One turn; *consumed bytes were taken. True: what they decompress to is not used up. */
static bool inflate_turn(struct dk_http_request *request, const char *bytes, size_t length, size_t *consumed)
{
    char block[INFLATE_BLOCK_BYTES];
    size_t taken = 0, written = sizeof block;
    *consumed = 0;
    for (size_t total = 0; written == sizeof block && total < INFLATE_TURN_BYTES; total += written) {
        request->error.status = dk_inflater_next(request->inflater, bytes + *consumed, length - *consumed,
                                                 &taken, block, sizeof block, &written, &request->error);
        *consumed += taken;
        if (request->error.status != DK_OK || (written > 0 && feed_route(request, block, written) != DK_OK)) {
            return false;
        }
    }
    return written == sizeof block;
}

size_t dk_http_body_feed(struct dk_http_request *request, const char *bytes, size_t length)
{
    if (request->inflater == NULL) {
        (void)feed_route(request, bytes, length);
        return length;
    }
    size_t consumed;
    bool is_unfinished = inflate_turn(request, bytes, length, &consumed);
    if (request->error.status != DK_OK) {
        dk_http_body_end(request);
        return length;
    }
    if (is_unfinished) {
        dk_http_yield(request);
    }
    return consumed;
}

bool dk_http_body_finish(struct dk_http_request *request)
{
    size_t consumed;
    bool is_unfinished = inflate_turn(request, "", 0, &consumed);
    if (request->error.status == DK_OK && is_unfinished) {
        dk_http_yield(request);
        return false;
    }
    if (request->error.status == DK_OK && !dk_inflater_is_complete(request->inflater)) {
        (void)dk_fail(&request->error, DK_BAD_REQUEST, "the %s body ends early",
                      dk_coding_name(request->head.coding));
    }
    dk_http_body_end(request);
    return true;
}
