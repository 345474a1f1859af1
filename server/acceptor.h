/* acceptor.h: listening sockets on the control loop: accept within the limits, hand over to HTTP. */
#ifndef DK_SERVER_ACCEPTOR_H
#define DK_SERVER_ACCEPTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct dk_http;

enum { DK_ACCEPTOR_SOCKETS_MAX = 2 };

/* Thread: the control loop, all of it. */
struct dk_acceptor {
    struct dk_http *http;
    uint32_t connections_max;
    int socket_count;
    int sockets[DK_ACCEPTOR_SOCKETS_MAX];
    uv_poll_t polls[DK_ACCEPTOR_SOCKETS_MAX];
    bool is_paused; /* at the limit, or out of descriptors: clients wait in the backlog */
};

/* How many connections may be open at once: `wanted`, but never so many that descriptors run out (the soft
 * limit is raised to the hard one first). At least 1. */
uint32_t dk_acceptor_connection_limit(uint32_t wanted);

/* Starts polling `sockets` (borrowed, non-blocking). 0 or a libuv error. */
int dk_acceptor_init(struct dk_acceptor *acceptor, uv_loop_t *loop, struct dk_http *http, const int *sockets,
                     int socket_count, uint32_t connections_max);
/* Accept again after a pause, if there is room. Call every 100 ms or so. */
void dk_acceptor_tick(struct dk_acceptor *acceptor);
/* Take what is in the backlog already, then accept no more. The handles close with the loop. */
void dk_acceptor_stop(struct dk_acceptor *acceptor);

#endif
