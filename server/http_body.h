/* http_body.h: bytes of a body on their way to the route, decompressed on the way when they are compressed.
 */
#ifndef DK_SERVER_HTTP_BODY_H
#define DK_SERVER_HTTP_BODY_H

#include <stdatomic.h>

#include "server/http_request.h"

/* What all bodies share. Zero-initialise. */
struct dk_http_bodies {
    _Atomic uint32_t inflater_count; /* each holds 40 KiB: at most config.max_in_flight */
};

/* Head accepted; `bodies` is kept. DK_BUSY, DK_NO_MEMORY. All functions: the request's HTTP thread. */
dk_status dk_http_body_begin(struct dk_http_request *request, struct dk_http_bodies *bodies,
                             struct dk_error *error);
/* Next received bytes -> route->body, counted in plain_bytes; the outcome is in request->error. Returns how
 * many were taken; for the rest the handler is called again: decompressing is bounded work, too. */
size_t dk_http_body_feed(struct dk_http_request *request, const char *bytes, size_t length);
/* All bytes have been fed. False: what they decompress to is not used up; the handler is called again. */
bool dk_http_body_finish(struct dk_http_request *request);
void dk_http_body_end(struct dk_http_request *request); /* idempotent */

/* Let the other connections of this thread have their turn: libmicrohttpd calls the handler again, with what
 * was not taken, or without bytes when all were. */
void dk_http_yield(struct dk_http_request *request);

#endif
