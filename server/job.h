/* job.h: one product on its way through the daemon, from admission to answer, and the pool of all of them. */
#ifndef DK_SERVER_JOB_H
#define DK_SERVER_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/gemm.h"
#include "proto/status.h"

struct dk_metrics;
struct dk_model;
struct dk_slab;
struct dk_slabs;

enum dk_job_slab { DK_JOB_SLAB_A, DK_JOB_SLAB_B, DK_JOB_SLAB_BIAS, DK_JOB_SLAB_C, DK_JOB_SLAB_COUNT };

/* Which jobs go first, see queue.h. */
enum dk_job_level { DK_JOB_NORMAL, DK_JOB_HIGH, DK_JOB_LOW, DK_JOB_LEVEL_COUNT };

/* Owned by one stage at a time: the HTTP thread fills it and pushes it; the executor computes and calls
 * `complete`; then it is the HTTP thread's again, which answers and releases it. */
struct dk_job {
    /* What to compute. Operands lie in the job's slabs. */
    struct dk_gemm gemm;
    struct dk_model *model;                   /* acquired; NULL: the product brings its own B */
    struct dk_slab *slabs[DK_JOB_SLAB_COUNT]; /* NULL where unused; released with the job */
    void *a;                                  /* [m, k] of gemm.a_dtype */
    bool a_is_double, b_is_double;            /* binary64: the executor rounds in place, once, first */
    void *b;                                  /* ad hoc: dense, gemm.b_layout, gemm.b_dtype */
    const float *bias;                        /* [n] or NULL (a model's own bias, if any, then applies) */
    void *c;                                  /* [m, n] of gemm.c_dtype */
    enum dk_job_level level;
    uint64_t deadline_ns; /* of CLOCK_MONOTONIC: not started later (DK_TIMEOUT); 0: none */
    int client_fd;        /* asked whether the client is still there after a long wait; -1: unknown */

    /* Stamps of CLOCK_MONOTONIC. */
    uint64_t arrived_ns;  /* request head complete */
    uint64_t queued_ns;   /* pushed */
    uint64_t started_ns;  /* popped */
    uint64_t finished_ns; /* completed */

    /* Outcome, valid from `complete` on. */
    struct dk_error error; /* status DK_OK: c is complete */
    uint64_t kernel_ns;    /* kernels alone, all pieces */
    uint64_t copy_ns;      /* rounding, packing and copies around them */
    uint32_t piece_count;
    uint32_t bucket_rows, split_k; /* of the last piece's plan; 0 when m == 0 */
    const char *variant;           /* static; "" when m == 0 */

    void (*complete)(struct dk_job *job); /* thread: executor; must not block */
    void *context;                        /* for complete */
    struct dk_job *next_free;             /* private */
};

struct dk_jobs;

/* All jobs at once: their number bounds the requests in flight. Both pointers are kept; `metrics` may be
 * NULL. */
dk_status dk_jobs_new(uint32_t count, struct dk_slabs *slabs, struct dk_metrics *metrics,
                      struct dk_jobs **out, struct dk_error *error);
void dk_jobs_free(struct dk_jobs *jobs); /* NULL-safe; every job must have been released */
/* A zeroed job. DK_BUSY when all are in flight. Thread: any. */
dk_status dk_job_acquire(struct dk_jobs *jobs, struct dk_job **out, struct dk_error *error);
/* Room for C: behind the `a_bytes` of A in the same slab, else in one of its own. DK_BUSY, DK_TOO_LARGE. */
dk_status dk_job_place_c(struct dk_job *job, struct dk_slabs *slabs, size_t a_bytes, size_t c_bytes,
                         struct dk_error *error);
/* Releases the job's slabs and model too. NULL-safe. Thread: any. */
void dk_job_release(struct dk_jobs *jobs, struct dk_job *job);
uint32_t dk_jobs_in_flight(struct dk_jobs *jobs);

#endif
