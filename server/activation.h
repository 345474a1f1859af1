/* activation.h: listening sockets that a supervisor opened and passed on (socket activation of systemd). */
#ifndef DK_SERVER_ACTIVATION_H
#define DK_SERVER_ACTIVATION_H

#include "proto/status.h"

/* Descriptors by their FileDescriptorName; -1: not passed. Each listens, is non-blocking and close-on-exec.
 */
struct dk_activation {
    int http;      /* "http": TCP */
    int http_unix; /* "http-unix": UNIX stream */
    int shm;       /* "shm": UNIX seqpacket */
};

/* All -1 when nothing was passed. DK_BAD_VALUE for an unknown name, a name twice or a socket of another kind;
 * DK_UNAVAILABLE when built without libsystemd. Once, early: descriptors are taken out of the environment. */
dk_status dk_activation_take(struct dk_activation *out, struct dk_error *error);

#endif
