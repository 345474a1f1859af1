/* launch.h: one product of any number of rows, cut into pieces that fit the plan table and the workspace. */
#ifndef DK_SERVER_LAUNCH_H
#define DK_SERVER_LAUNCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "decomposek.h"

struct dk_metrics;

/* What all launches of one executor share. */
struct dk_launcher {
    const struct dk_engine *engine;
    struct dk_metrics *metrics; /* may be NULL */
    uint32_t max_tokens;
    void *workspace;
    size_t workspace_bytes;
    _Atomic uint64_t *progress; /* counts signs of life; may be NULL */
};

static inline void dk_launcher_progress(const struct dk_launcher *launcher)
{
    if (launcher->progress != NULL) {
        (void)atomic_fetch_add_explicit(launcher->progress, 1, memory_order_relaxed);
    }
}

/* Zero-initialise the outcome. */
struct dk_launch {
    const struct dk_weights *weights;
    uint64_t m, n, k;
    const void *a; /* [m, k] of a_dtype, dense */
    void *c;       /* [m, n] of c_dtype, dense */
    dk_dtype a_dtype, c_dtype;
    dk_epilogue epilogue;
    const float *bias; /* [n] or NULL: the weights' own, if any */

    /* Outcome so far. */
    uint64_t rows_done;
    uint64_t kernel_ns;
    uint32_t piece_count, bucket_rows, split_k; /* the last two: of the last piece's plan */
    const char *variant;                        /* static; NULL before the first piece */
};

/* One more piece. DK_TOO_LARGE when not even one row fits the workspace; errors of dk_run_host. Nothing when
 * all rows are done. Thread: the executor. */
dk_status dk_launch_piece(const struct dk_launcher *launcher, struct dk_launch *launch,
                          struct dk_error *error);
static inline bool dk_launch_is_done(const struct dk_launch *launch)
{
    return launch->rows_done == launch->m;
}
/* All pieces. */
dk_status dk_launch_all(const struct dk_launcher *launcher, struct dk_launch *launch, struct dk_error *error);

#endif
