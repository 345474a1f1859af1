/* bell.h: how the executor sleeps: an epoll set of one eventfd of the daemon's own and the doorbells of its
 * clients. None is ever read: they are watched edge-triggered, so a client can neither block nor fill them.
 */
#ifndef DK_SERVER_BELL_H
#define DK_SERVER_BELL_H

#include <stdbool.h>

#include "proto/status.h"

struct dk_bell;

/* DK_IO_ERROR (descriptors), DK_NO_MEMORY. */
dk_status dk_bell_new(struct dk_bell **out, struct dk_error *error);
void dk_bell_free(struct dk_bell *bell); /* NULL-safe */

/* Wakes the sleeper if there is one; a look at one word otherwise. After publishing work by a sequentially
 * consistent store (Dekker's pattern, with arm and the look behind it on the other side). Thread: any. */
void dk_bell_ring(struct dk_bell *bell);

/* The rest: the one thread that sleeps. Arm, look for work again, then sleep, or disarm when there is some.
 */
void dk_bell_arm(struct dk_bell *bell);
void dk_bell_disarm(struct dk_bell *bell);
/* Until rung, or a watched doorbell is; may return for nothing. Disarms. Only after dk_bell_arm. */
void dk_bell_sleep(struct dk_bell *bell);

/* Watch another eventfd, which must stay open until it is unwatched. DK_IO_ERROR. Thread: any. */
dk_status dk_bell_watch(struct dk_bell *bell, int fd, struct dk_error *error);
void dk_bell_unwatch(struct dk_bell *bell, int fd);

#endif
