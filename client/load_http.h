/* load_http.h: HTTP/1.1 for the load generator: kept-alive sockets under epoll, prepared request bytes.
 *
 * Not libcurl: a small request costs it about 31 us of processor time, as much as it costs the daemon, and
 * this 8; a load generator must not be the bottleneck. The price is that only answers with a Content-Length
 * are read. */
#ifndef DK_CLIENT_LOAD_HTTP_H
#define DK_CLIENT_LOAD_HTTP_H

#include <netdb.h>
#include <sys/socket.h>

#include "client/http_client.h"
#include "client/load.h"

/* Where to connect. Plain data. */
struct dk_load_http_target {
    struct sockaddr_storage address;
    socklen_t address_bytes;
    char host[300];      /* for the Host header, with port */
    char prefix[256];    /* path of the URL, "" or "/prefix" */
    const char *api_key; /* kept; NULL: none */
};
/* DK_BAD_VALUE: the URL or the socket's path; DK_UNAVAILABLE: no such host. */
dk_status dk_load_http_resolve(const struct dk_http_options *options, struct dk_load_http_target *out,
                               struct dk_error *error);

struct dk_load_http {
    const struct dk_load_http_target *target; /* kept */
    const char *request;                      /* head and body, kept; sent as they are */
    size_t request_bytes;
    uint64_t answer_bytes; /* of a good answer's body after its inference header: another size is BAD_REPLY */
    double timeout_s;      /* of connecting, and of dk_load_http_fetch */
};
/* The transport; context: struct dk_load_http. One connection per slot, opened by its first request and again
 * after it was lost. */
extern const struct dk_load_transport dk_load_http_transport;

/* One exchange outside any run: copies the answer's body after its inference header to `out`
 * ([http->answer_bytes]). DK_UNAVAILABLE: no connection; DK_TIMEOUT; another status than 200: the one the
 * error body names, with its text; DK_BAD_SHAPE: another size. */
dk_status dk_load_http_fetch(const struct dk_load_http *http, void *out, struct dk_error *error);

#endif
