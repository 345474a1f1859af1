/* http.h: the HTTP server: libmicrohttpd threads that read, hand over and answer; connections come from
 * outside.
 *
 * Connections are accepted by the control loop and handed to one of several single-threaded libmicrohttpd
 * daemons, instead of letting it accept: so the number of descriptors is bounded exactly (out of descriptors
 * nothing spins), a new connection wakes one thread and not all, and a drain can stop accepting at a precise
 * moment. */
#ifndef DK_SERVER_HTTP_H
#define DK_SERVER_HTTP_H

#include <stdint.h>
#include <sys/socket.h>

#include "proto/status.h"

struct dk_daemon;
struct dk_http;

/* Starts the threads; `daemon` is kept. DK_UNAVAILABLE, DK_NO_MEMORY. */
dk_status dk_http_new(struct dk_daemon *daemon, struct dk_http **out, struct dk_error *error);
/* Closes all connections, joins the threads. NULL-safe. No job may be in flight. */
void dk_http_free(struct dk_http *http);

/* Takes the accepted socket `fd` (closes it on failure). Thread: the control loop. */
void dk_http_add(struct dk_http *http, int fd, const struct sockaddr *address, socklen_t address_length);
/* Connections taken and not yet closed; never more than were added. Thread: any. */
uint32_t dk_http_connection_count(const struct dk_http *http);
/* Requests between head and end of answer. Thread: any. */
uint32_t dk_http_active_count(const struct dk_http *http);
/* Enforces deadlines. Thread: the control loop, every 100 ms or so. */
void dk_http_sweep(struct dk_http *http);

#endif
