/* shm_session.h: one client's ring as the executor serves it: takes requests, checks them, computes,
 * completes. Nothing that lies in the shared memory is believed: indices are the daemon's own, a request is
 * copied out once and then checked. */
#ifndef DK_SERVER_SHM_SESSION_H
#define DK_SERVER_SHM_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/ring.h"
#include "server/launch.h"
#include "server/shm_memory.h"

struct dk_models;
struct dk_shm_models;

/* Who has a session, and how it is to leave; under the lock of struct dk_rings. */
enum dk_shm_leave {
    DK_SHM_STAY,
    DK_SHM_LEAVE_WHEN_DONE, /* the daemon stops: what was submitted before is served first */
    DK_SHM_LEAVE_NOW        /* the client has gone */
};

struct dk_shm_session {
    uint64_t id;
    struct dk_shm_memory memory; /* of the control loop; a test may leave it empty */
    int doorbell_fd;             /* likewise */
    struct dk_shm_models *models;
    void *context; /* of the control loop */

    /* The executor's, from here on. */
    struct dk_ring ring;
    uint32_t entry_count;
    uint32_t submission_head, submission_tail; /* taken so far; seen to be submitted */
    uint32_t completion_tail, completion_head; /* completed so far; seen to be released */
    uint64_t empty_ns;                         /* when the ring was last seen without a request */
    bool is_closing;
    uint32_t closing_tail; /* requests from here on came too late */

    /* The request under way: between two pieces of it other sessions have their turn. */
    bool is_active;
    struct dk_ring_submission submission;
    struct dk_launch launch;
    struct dk_model *model; /* valid during a turn; acquired when is_model_held */
    bool is_model_held;
    uint64_t started_ns, queue_ns;

    dk_status broken_status; /* not DK_OK: dropped, for the reason in broken */
    struct dk_error broken;

    /* Hand-off, under the lock of struct dk_rings. */
    enum dk_shm_leave leave;
    struct dk_shm_session *next;
};

/* A session over `mapping`, which was formatted for `layout`. *session is zeroed first. DK_NO_MEMORY. */
dk_status dk_shm_session_init(struct dk_shm_session *session, void *mapping,
                              const struct dk_ring_layout *layout, struct dk_models *registry,
                              struct dk_error *error);
void dk_shm_session_deinit(
    struct dk_shm_session *session); /* the models; memory and doorbell are the caller's */

enum dk_shm_turn {
    DK_SHM_IDLE,   /* nothing to do */
    DK_SHM_WORKED, /* something was completed or computed */
    DK_SHM_BROKEN  /* the client broke the rules: broken says how; nothing more is to be done with the ring */
};
/* At most `piece_limit` requests or pieces of one, fewer when they take long. *now_ns is a recent reading of
 * the clock, updated. Thread: executor. */
enum dk_shm_turn dk_shm_session_turn(struct dk_shm_session *session, const struct dk_launcher *launcher,
                                     uint32_t piece_limit, uint64_t *now_ns);
/* There is something for a turn to do. Thread: executor. */
bool dk_shm_session_has_work(const struct dk_shm_session *session);
/* No requests that are submitted after this moment are served: they complete with DK_UNAVAILABLE. */
void dk_shm_session_close(struct dk_shm_session *session);
/* What was submitted before the close is complete. */
bool dk_shm_session_is_done(const struct dk_shm_session *session);
/* The end: the client is told by the state word and woken; models are let go of. Thread: executor. */
void dk_shm_session_end(struct dk_shm_session *session);

#endif
