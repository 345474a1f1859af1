/* http_connection.h: open connections, what each is doing, since when, and the deadlines that follow. */
#ifndef DK_SERVER_HTTP_CONNECTION_H
#define DK_SERVER_HTTP_CONNECTION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/http_request.h"

struct dk_config;

/* libmicrohttpd's own timeout counts inactivity only, so a trickle of bytes defeats it; these are total. */
enum dk_http_phase {
    DK_PHASE_HEAD,   /* a request head is arriving: config.header_timeout_ms, then closed */
    DK_PHASE_IDLE,   /* between two requests: config.idle_timeout_ms, then closed */
    DK_PHASE_BODY,   /* a body is arriving: config.body_timeout_ms, then 408 and closed */
    DK_PHASE_WORK,   /* ours to finish: no deadline */
    DK_PHASE_ANSWER, /* an answer is leaving: config.body_timeout_ms, then closed */
    DK_PHASE_EXPIRED /* final */
};

struct dk_http_connection {
    int fd;                        /* libmicrohttpd's; open as long as the record is in the list */
    _Atomic uint64_t phase_and_ms; /* phase in the low 3 bits, start in milliseconds above */
    uint64_t hangup_mark;          /* phase_and_ms when the client's end was first seen; sweep only */
    struct dk_http_connection *next, *previous;
    struct dk_http_request request; /* the current one; used again for the next */
};

/* Descriptors of connections that libmicrohttpd closed while the client may still be sending: read and
 * dropped for a while, or the client would lose our last answer to a connection reset. */
enum { DK_LINGER_MAX = 32, DK_LINGER_MS = 1000 };
struct dk_http_linger {
    int fd;
    uint64_t until_ms;
};

struct dk_http_connections {
    pthread_mutex_t mutex; /* list and lingers; a record's fd stays open while it is held */
    struct dk_http_connection *head;
    uint32_t linger_count;
    struct dk_http_linger lingers[DK_LINGER_MAX];
};

void dk_http_connections_init(struct dk_http_connections *connections);
void dk_http_connections_deinit(struct dk_http_connections *connections);

/* NULL when memory is out. Thread: HTTP. */
struct dk_http_connection *dk_http_connection_open(struct dk_http_connections *connections, int fd);
void dk_http_connection_close(struct dk_http_connections *connections, struct dk_http_connection *connection);

/* False when the deadline has passed: the caller must give up the connection. Thread: HTTP. */
bool dk_http_connection_enter(struct dk_http_connection *connection, enum dk_http_phase phase);
/* Keep the socket open after libmicrohttpd closes it. Best effort. Thread: HTTP. */
void dk_http_connection_linger(struct dk_http_connections *connections, int fd);

/* Enforce deadlines, drain and end lingers, and notice clients that left in the middle of a request:
 * libmicrohttpd does not when the end of the stream arrives together with data (edge-triggered, one read).
 * Thread: the control loop, every 100 ms or so. */
void dk_http_connections_sweep(struct dk_http_connections *connections, const struct dk_config *config);

#endif
