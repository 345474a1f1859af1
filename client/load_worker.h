/* load_worker.h: one thread of the load generator: its session, its slots and its share of the result. */
#ifndef DK_CLIENT_LOAD_WORKER_H
#define DK_CLIENT_LOAD_WORKER_H

#include "client/load.h"

struct dk_load_slot {
    uint64_t due_ns, sent_ns;
    bool is_busy;
};

struct dk_load_worker {
    const struct dk_load_plan *plan;
    uint32_t index, slot_count;
    void *session;
    struct dk_load_slot *slots;
    uint32_t *free_slots; /* stack */
    uint32_t free_count;
    struct dk_load_schedule schedule;
    uint64_t begin_ns, window_ns, end_ns;    /* begin of the run, of the window, end of both */
    uint64_t next_check_ns;                  /* of timeouts and flags */
    const atomic_bool *is_abandoned;         /* ends the run, as plan->is_stopping does */
    struct dk_load_result result;            /* window_s and is_stopped are the caller's to fill */
    _Atomic uint64_t ok_count, failed_count; /* the whole run, for progress */
};

/* Allocates and opens the session. */
dk_status dk_load_worker_init(struct dk_load_worker *worker, const struct dk_load_plan *plan, uint32_t index,
                              struct dk_error *error);
void dk_load_worker_deinit(struct dk_load_worker *worker);
/* The whole run. begin_ns, window_ns and end_ns are set before; end_ns moves forward when stopped. */
void dk_load_worker_run(struct dk_load_worker *worker);

#endif
