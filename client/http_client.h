/* http_client.h: one kept-alive HTTP/1.1 connection to a daemon, over TCP or a UNIX socket. */
#ifndef DK_CLIENT_HTTP_CLIENT_H
#define DK_CLIENT_HTTP_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "proto/status.h"

struct dk_http_options {
    const char *url;         /* http://host[:port][/prefix]; no query, no credentials */
    const char *unix_socket; /* NULL: TCP. The URL's host is then only the Host header */
    const char *api_key;     /* NULL: none; else sent as Authorization: Bearer, visible ASCII */
    double timeout_s;        /* of one whole exchange */
};

struct dk_http_client; /* not thread-safe */

/* Copies what it needs. Proxies of the environment are not used: the daemon is near, and a proxy would answer
 * for 127.0.0.1 with its own. DK_BAD_VALUE quotes the URL; DK_NO_MEMORY. */
dk_status dk_http_client_new(const struct dk_http_options *options, struct dk_http_client **out,
                             struct dk_error *error);
void dk_http_client_free(struct dk_http_client *client); /* NULL-safe */

struct dk_http_request {
    const char *method;       /* "GET" or "POST" */
    const char *path;         /* "/v1/models", with query; already percent-encoded */
    const char *content_type; /* NULL without body */
    const char *accept;       /* NULL: any */
    const void *body;         /* borrowed */
    size_t body_bytes;
    size_t max_answer_bytes; /* a longer answer is DK_TOO_LARGE */
};

struct dk_http_response {
    long http_status;
    char *body; /* NUL-terminated; caller frees with dk_http_response_deinit */
    size_t body_bytes;
    uint64_t round_trip_ns; /* from sending to the last byte of the answer, measured here */
};

/* DK_OK only for a 2xx answer. Otherwise nothing is left in *out and the status is the one the server named
 * in its error body (or that its HTTP code implies), the message the server's, prefixed by the code. No
 * answer: DK_UNAVAILABLE (refused, reset, unknown host), DK_TIMEOUT. Redirects are not followed. */
dk_status dk_http_client_send(struct dk_http_client *client, const struct dk_http_request *request,
                              struct dk_http_response *out, struct dk_error *error);
void dk_http_response_deinit(struct dk_http_response *response);

/* A header of the last answer, or NULL. Valid until the next send. */
const char *dk_http_client_header(struct dk_http_client *client, const char *name);

#endif
