/* shm.h: the door of the native ring: a UNIX socket where clients ask for a session; one per connection. */
#ifndef DK_SERVER_SHM_H
#define DK_SERVER_SHM_H

#include <stdint.h>
#include <uv.h>

#include "proto/status.h"

struct dk_daemon;
struct dk_shm;

/* Accepts on `listener` (SOCK_SEQPACKET, listening, borrowed) in `loop`. Sessions are given out once the
 * daemon takes work. DK_NO_MEMORY, DK_IO_ERROR. Thread: that of the loop, for everything here. */
dk_status dk_shm_new(uv_loop_t *loop, struct dk_daemon *daemon, int listener, struct dk_shm **out,
                     struct dk_error *error);
/* NULL-safe. After the loop has closed every handle; no client may be left. */
void dk_shm_free(struct dk_shm *shm);

/* Every 100 ms or so: deadlines of handshakes, accepting again after a lack of descriptors. */
void dk_shm_tick(struct dk_shm *shm);
/* The daemon stops: no new clients; those there are told, and what they submit from now on is refused. */
void dk_shm_close(struct dk_shm *shm);
/* After dk_shm_close: sessions end when what was accepted is complete. Idempotent. */
void dk_shm_finish(struct dk_shm *shm);
uint32_t dk_shm_client_count(const struct dk_shm *shm); /* NULL: 0 */

#endif
