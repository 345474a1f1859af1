/* ring_server.h: the daemon's side of the ring in a thread of the test, with faults on demand. */
#ifndef DK_TESTS_CLIENT_RING_SERVER_H
#define DK_TESTS_CLIENT_RING_SERVER_H

#include <pthread.h>
#include <stdatomic.h>

#include "proto/handshake.h"
#include "proto/ring.h"
#include "tests/unit/client/check.h"

/* What goes wrong while a session begins. */
enum ring_fault {
    RING_FAULT_NONE,
    RING_FAULT_REFUSE,         /* ERROR BUSY instead of WELCOME */
    RING_FAULT_REFUSE_AT_ONCE, /* ERROR FORBIDDEN before HELLO was read, and end of file */
    RING_FAULT_MUTE,           /* no answer to HELLO */
    RING_FAULT_MUTE_MAPPED,    /* no answer to MAPPED */
    RING_FAULT_VERSION,        /* messages of another version */
    RING_FAULT_GARBAGE,        /* bytes that are no message */
    RING_FAULT_LAYOUT,         /* another layout than was asked for */
    RING_FAULT_SHORT,          /* memory smaller than the layout */
    RING_FAULT_UNSEALED,       /* memory that could shrink */
    RING_FAULT_HEADER,         /* a mapping that says something else */
    RING_FAULT_NO_DESCRIPTORS,
    RING_FAULT_MANY_DESCRIPTORS,
    RING_FAULT_PIPE, /* a doorbell that is no eventfd */
    RING_FAULT_COUNT
};
/* A completion that no daemon sends. */
enum ring_forgery {
    RING_FORGE_NOTHING,
    RING_FORGE_UNKNOWN,
    RING_FORGE_TWICE,
    RING_FORGE_STATUS,
    RING_FORGE_TAIL
};

/* Computes c[i][j] = sum(a[i][:]) * (j + 1), fp32 only. Serves the models "sum" (k 4, n 3) and, when
 * `wide_n` > 0, "wide" (k 4, n wide_n); one client at a time. */
struct ring_server {
    char folder[64], path[96], address[112];
    int listen_fd;
    pthread_t thread;
    /* Set by the test at any time. */
    _Atomic int fault, forgery;
    _Atomic bool stops, dies; /* end; drop the session without a word */
    _Atomic bool holds;       /* complete nothing */
    _Atomic bool is_mute;     /* answer no question */
    _Atomic uint32_t goodbye; /* a dk_status to say, once */
    _Atomic uint32_t refusal; /* dk_status of every completion */
    _Atomic uint64_t wide_n, sum_n;
    /* What it saw. */
    _Atomic uint32_t session_count, request_count, doorbell_count, close_count;
};

void ring_server_start(struct ring_server *server);
void ring_server_stop(struct ring_server *server);
/* Wait until `*counter` is at least `value`; fails the test after 10 s. */
void ring_server_await(_Atomic uint32_t *counter, uint32_t value);

#endif
