/* executor.h: the one thread that owns the device: takes jobs, computes, completes. */
#ifndef DK_SERVER_EXECUTOR_H
#define DK_SERVER_EXECUTOR_H

#include <stddef.h>
#include <stdint.h>

#include "decomposek.h"
#include "proto/status.h"

struct dk_bell;
struct dk_executor;
struct dk_metrics;
struct dk_queue;
struct dk_rings;

struct dk_executor_options {
    struct dk_engine *engine;   /* kept */
    struct dk_bell *bell;       /* kept: what the queue, the rings and their clients ring */
    struct dk_queue *queue;     /* kept */
    struct dk_rings *rings;     /* kept; may be NULL */
    struct dk_metrics *metrics; /* kept; may be NULL */
    uint32_t spin_us;           /* how long it looks for the next job before it sleeps */
    size_t workspace_bytes;     /* fp32 partials; a job whose plan needs more runs in smaller pieces */
    uint64_t adhoc_max_bytes;   /* packed B of a product without a model; 0: none are accepted */
};

/* Allocates workspace and scratch weights, then starts the thread. Nothing is allocated per job afterwards.
 * DK_NO_MEMORY, DK_DEVICE_FAILED. */
dk_status dk_executor_new(const struct dk_executor_options *options, struct dk_executor **out,
                          struct dk_error *error);
/* Closes the queue, completes what is in it, lets go of every session, joins the thread. NULL-safe. */
void dk_executor_free(struct dk_executor *executor);

/* Grows as long as the thread turns: with every look for work, also after a ring that brought none, and with
 * every piece of a long job. Thread: any. */
uint64_t dk_executor_progress(const struct dk_executor *executor);

/* Jobs are served one by one in order of arrival: batching several jobs into one launch means filling one
 * dk_call from several jobs between pop and run; a job's rows, slabs and completion are already independent
 * of its neighbours for that reason. */

#endif
