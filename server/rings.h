/* rings.h: the sessions that the executor serves, and their way in and out: the control loop hands one over
 * and gets it back when the executor has let go of it; only then may its memory be released. */
#ifndef DK_SERVER_RINGS_H
#define DK_SERVER_RINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "server/shm_session.h"

struct dk_bell;
struct dk_rings;

struct dk_rings_options {
    uint32_t capacity;    /* sessions at once */
    struct dk_bell *bell; /* kept */
    /* A session can be taken back. Thread: executor; must not block. May be NULL. */
    void (*on_released)(void *context);
    void *context;
};

/* DK_NO_MEMORY. */
dk_status dk_rings_new(const struct dk_rings_options *options, struct dk_rings **out, struct dk_error *error);
void dk_rings_free(struct dk_rings *rings); /* NULL-safe; every session must have been taken back */

/* Control loop (or any one thread): */
void dk_rings_set_listener(struct dk_rings *rings, void (*on_released)(void *context), void *context);
/* The executor serves the session from now on; its doorbell must be watched by the bell already. DK_BUSY: as
 * many as the capacity have not been taken back. */
dk_status dk_rings_add(struct dk_rings *rings, struct dk_shm_session *session, struct dk_error *error);
/* Ask for it back. It comes by take_released, after the launch that is under way. */
void dk_rings_remove(struct dk_rings *rings, struct dk_shm_session *session, enum dk_shm_leave leave);
/* No session takes requests that are submitted from now on: they complete with DK_UNAVAILABLE. */
void dk_rings_close(struct dk_rings *rings);
/* One that the executor has let go of, because it was asked to or because the session is broken; or NULL. */
struct dk_shm_session *dk_rings_take_released(struct dk_rings *rings);

/* Executor: */
/* A few requests of every session, in turn. True when anything was done. *now_ns as in dk_shm_session_turn.
 */
bool dk_rings_turn(struct dk_rings *rings, const struct dk_launcher *launcher, uint64_t *now_ns);
/* Before sleeping (with the bell armed): asks clients to ring. False when there is something to do after all.
 */
bool dk_rings_arm(struct dk_rings *rings);
void dk_rings_disarm(struct dk_rings *rings);
/* The executor ends: lets go of every session, also of those added later. */
void dk_rings_end(struct dk_rings *rings);

#endif
