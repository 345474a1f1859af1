/* load.h: the load generator: closed and open loops over any transport, latencies without coordinated
 * omission. */
#ifndef DK_CLIENT_LOAD_H
#define DK_CLIENT_LOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/latency.h"
#include "client/load_schedule.h"
#include "proto/status.h"

/* How one request ended: a dk_status (0: well), an HTTP status (100..599), or one of these. */
enum {
    DK_LOAD_CONNECTION = 600, /* refused, reset, or closed in the middle of an answer */
    DK_LOAD_BAD_REPLY,        /* not HTTP, or an answer of another size than the request asks for */
    DK_LOAD_NO_ANSWER,        /* none within the timeout */
    DK_LOAD_CODE_COUNT
};
_Static_assert(DK_STATUS_COUNT <= 100, "statuses and HTTP statuses share a number range");
/* "503", "BUSY", "CONNECTION"; `out` has room for 32 bytes. */
void dk_load_code_name(uint32_t code, char out[32]);

struct dk_load_event {
    uint32_t slot, code;
    uint64_t done_ns;   /* CLOCK_MONOTONIC, when the last byte of the answer was there */
    uint64_t kernel_ns; /* inside the kernels, as the server says; 0: it does not */
};

/* What carries requests. A session belongs to one thread; its requests are numbered by slot. */
struct dk_load_transport {
    const void *context; /* kept; shared by the sessions, read only */
    /* Connect, with up to `slot_count` requests in flight. */
    dk_status (*open)(const void *context, uint32_t slot_count, void **out, struct dk_error *error);
    void (*close)(void *session);
    /* Start the request on a free slot. Never waits. Failures come as events, so that each request ends
     * exactly once. */
    void (*submit)(void *session, uint32_t slot);
    /* Events that are there; waits for the first until `until_ns` of CLOCK_MONOTONIC (0: not at all). */
    size_t (*poll)(void *session, uint64_t until_ns, struct dk_load_event *events, size_t capacity);
    /* Give the request on `slot` up: no event comes for it any more, the slot is free. NULL: not possible,
     * the slot stays taken to the end. */
    void (*cancel)(void *session, uint32_t slot);
};

struct dk_load_plan {
    const struct dk_load_transport *transport; /* kept */
    uint32_t thread_count; /* 1..slot_count; each has a session with its share of the slots */
    uint32_t slot_count;   /* requests in flight at most, all threads together */
    double rate;           /* arrivals a second; 0: closed loop, an answer starts the next request */
    enum dk_arrivals arrivals;
    uint64_t seed; /* of the arrivals */
    double warmup_s, duration_s, timeout_s;
    const atomic_bool *is_stopping; /* ends the run early; may be NULL */
    /* Called about every second by the caller's thread; may be NULL. */
    void (*on_progress)(void *context, const struct dk_load_plan *plan, double elapsed_s, uint64_t ok_count,
                        uint64_t failed_count);
    void *progress_context;
};

/* Of the window, which is the run without its warm-up. A request counts when it was *due* in the window (in a
 * closed loop: sent), however long its answer took. */
struct dk_load_result {
    struct dk_latency latency;      /* of good answers, from when the request was due; and of unsent requests
                                       what they had waited by the end */
    struct dk_latency kernel;       /* of those whose time in the kernels is known: that time, */
    struct dk_latency above_kernel; /* and the rest of their latency */
    uint64_t codes[DK_LOAD_CODE_COUNT]; /* how they ended; [0]: well */
    uint64_t failed_count;              /* all but [0] */
    uint64_t answered_count;            /* good answers that arrived inside the window */
    double window_s;                    /* as it was: shorter than asked when stopped */
    uint64_t unsent_count;              /* open loop: due inside the window, not sent by its end */
    uint64_t max_late_ns;               /* open loop: the longest from due to sent, unsent ones included */
    bool is_stopped;
};

/* Run it. Thread: blocks the caller's, starts and joins its own. DK_NO_MEMORY, DK_INTERNAL (no threads), or
 * what opening a session gave; failures of single requests are counted in the result instead. */
dk_status dk_load_run(const struct dk_load_plan *plan, struct dk_load_result *out, struct dk_error *error);

/* CLOCK_MONOTONIC */
uint64_t dk_load_now_ns(void);

#endif
