/* control.h: the control loop: signals, accepting, loading and reloading, deadlines, drain. */
#ifndef DK_SERVER_CONTROL_H
#define DK_SERVER_CONTROL_H

#include <stdbool.h>

#include "proto/status.h"

struct dk_daemon;
struct dk_http;

struct dk_control_result {
    bool is_abrupt; /* work may still be running: leave with _exit, free nothing */
    int exit_code;  /* 0: drained; 1: loading failed, or not everything could be finished */
};

/* Loads the models on a thread of its own while health answers, then serves until told to stop.
 *   SIGTERM, SIGINT  ready turns 503 at once; after drain_grace_ms nothing new is accepted; what was accepted
 *                    is finished, at most drain_limit_ms; a second signal ends at once
 *   SIGHUP           API keys and models are loaded again; what fails keeps its old version
 * A supervisor hears of each change (READY, RELOADING, STOPPING) and of life (WATCHDOG).
 * The sockets of daemon->doors are borrowed, nothing accepts on them any more on return. Thread: main. */
struct dk_control_result dk_control_run(struct dk_daemon *daemon, struct dk_http *http);

#endif
