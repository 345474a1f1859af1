/* daemon.h: what the whole process shares: one struct, filled in boot order, read by the HTTP layer. */
#ifndef DK_SERVER_DAEMON_H
#define DK_SERVER_DAEMON_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "decomposek.h"
#include "server/config.h"

struct dk_api_keys;
struct dk_bell;
struct dk_body_readers;
struct dk_doors;
struct dk_executor;
struct dk_jobs;
struct dk_metrics;
struct dk_model_control;
struct dk_models;
struct dk_queue;
struct dk_regions;
struct dk_rings;
struct dk_slabs;
struct dk_tuning;

enum dk_daemon_state {
    DK_DAEMON_LOADING,  /* health and metrics answer, compute routes are 503 */
    DK_DAEMON_READY,    /* everything answers */
    DK_DAEMON_DRAINING, /* grace: ready is 503 so that balancers go elsewhere, work is still served */
    DK_DAEMON_CLOSING   /* no new work: what was accepted is finished */
};

/* Fields up to `metrics` are set before HTTP starts; those below by the loading thread, before it publishes
 * DK_DAEMON_READY. Nothing but the state changes afterwards. */
struct dk_daemon {
    const struct dk_config *config;
    struct dk_engine *engine;
    struct dk_metrics *metrics;
    struct dk_api_keys *api_keys; /* never NULL; may hold none: then nobody is asked for one */
    uint64_t started_ns;
    const struct dk_doors *doors; /* NULL while only the configuration is checked */

    struct dk_models *models;
    struct dk_slabs *slabs;
    struct dk_jobs *jobs;
    struct dk_bell *bell; /* wakes the executor */
    struct dk_queue *queue;
    struct dk_rings *rings; /* NULL unless clients may share memory */
    struct dk_executor *executor;
    struct dk_body_readers *readers;        /* of POST /v1/matmul */
    struct dk_body_readers *infer_readers;  /* of POST /v2/models/{m}/infer */
    struct dk_regions *regions;             /* NULL unless config.allow_client_shm */
    struct dk_model_control *model_control; /* NULL unless config.allow_model_control */
    struct dk_tuning *tuning;               /* NULL unless plans are measured in the background */
    size_t workspace_bytes;                 /* of the executor */
    uint64_t max_body_bytes;                /* largest body of a compute request */

    _Atomic int state;           /* enum dk_daemon_state */
    _Atomic size_t answer_bytes; /* copies of results that are being sent, see DK_ANSWER_BYTES_MAX */
};

/* Partials of products without a model: a larger need is met by smaller pieces of rows. */
enum { DK_ADHOC_WORKSPACE_BYTES = 64 * 1024 * 1024 };

/* A large result is copied out of its slab before it is sent, so that a client that does not read cannot hold
 * a slab; beyond this much in copies the slab is held after all. */
enum { DK_ANSWER_BYTES_MAX = 64 * 1024 * 1024 };

/* Models, slabs, jobs, queue, executor. On failure nothing stays allocated. Thread: the loading thread. */
dk_status dk_daemon_load(struct dk_daemon *daemon, struct dk_error *error);
/* Joins the executor after it has completed what is queued. Before HTTP ends: a job's completion calls into
 * HTTP. Nothing is computed afterwards. */
void dk_daemon_quiesce(struct dk_daemon *daemon);
/* The reverse of load; every job must have been released. Also after a failed or no load. */
void dk_daemon_unload(struct dk_daemon *daemon);

/* Sets the state and its gauge. Thread: any. */
void dk_daemon_set_state(struct dk_daemon *daemon, enum dk_daemon_state state);
static inline enum dk_daemon_state dk_daemon_get_state(const struct dk_daemon *daemon)
{
    return (enum dk_daemon_state)atomic_load(&daemon->state);
}
/* True when compute routes may take new work (READY and the grace of DRAINING). */
static inline bool dk_daemon_takes_work(const struct dk_daemon *daemon)
{
    enum dk_daemon_state state = dk_daemon_get_state(daemon);
    return state == DK_DAEMON_READY || state == DK_DAEMON_DRAINING;
}

#endif
