/* listen.h: listening sockets: TCP (IPv4 or IPv6) and UNIX, with the rules for addresses in use and stale
 * files. */
#ifndef DK_SERVER_LISTEN_H
#define DK_SERVER_LISTEN_H

#include <stdint.h>

#include "proto/status.h"

/* Bind and listen, non-blocking, close-on-exec, SO_REUSEADDR (fast restart) but never SO_REUSEPORT: a second
 * instance fails. `host` numeric ("0.0.0.0", "::", "[::1]") or a name ("localhost": its first address of a
 * family this machine has). "::" takes IPv4 as well. *port_inout 0 picks one and reports it. DK_UNAVAILABLE
 * names address and errno text. Thread: any. */
dk_status dk_listen_tcp(const char *host, uint16_t *port_inout, int *out_fd, struct dk_error *error);
/* A refused-connect (stale) socket file is replaced; a live one, a regular file, a symlink or a directory is
 * never touched (DK_UNAVAILABLE); of simultaneous starters exactly one wins (lock file PATH.lock, flock, kept
 * while serving; its descriptor in *out_lock_fd). The file has exactly `mode` before the first connection.
 * Non-blocking, close-on-exec. DK_BAD_VALUE for an empty or too long path. Thread: any. */
dk_status dk_listen_unix(const char *path, uint32_t mode, int *out_fd, int *out_lock_fd,
                         struct dk_error *error);
/* The same for SOCK_SEQPACKET. */
dk_status dk_listen_unix_packets(const char *path, uint32_t mode, int *out_fd, int *out_lock_fd,
                                 struct dk_error *error);
/* Remove the socket file if it is still ours, and the lock file, and close both descriptors. `fd` may be -1
 * when the HTTP library has closed it already. */
void dk_listen_unix_close(const char *path, int fd, int lock_fd);

#endif
