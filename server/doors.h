/* doors.h: the sockets on which this process listens, passed by a supervisor or opened here. */
#ifndef DK_SERVER_DOORS_H
#define DK_SERVER_DOORS_H

#include "proto/status.h"

struct dk_config;

struct dk_doors {
    int tcp;                                 /* HTTP */
    int http_unix, http_unix_lock;           /* HTTP on a UNIX socket; -1: none, or (the lock) passed to us */
    int shm, shm_lock;                       /* the native ring's handshake; likewise */
    char url[300];                           /* of `tcp`, with the real port */
    char http_unix_path[120], shm_path[120]; /* "none" without */
};

/* A socket that was passed (socket activation) stands in for the flags of its door. What was opened before a
 * failure is in *out all the same, for dk_doors_close. Errors of dk_listen_* and dk_activation_take. */
dk_status dk_doors_open(const struct dk_config *config, struct dk_doors *out, struct dk_error *error);
/* Removes the socket files that are ours; those of passed sockets stay for the next instance. */
void dk_doors_close(const struct dk_config *config, const struct dk_doors *doors);

#endif
