/* launch.c: the size of a piece, and one launch of it. */
#include "server/launch.h"

#include "server/metrics.h"

/* Most rows of one piece: the largest bucket whose partials fit the workspace; 0 when not even one row's. */
static uint64_t rows_per_piece(const struct dk_launcher *launcher, const struct dk_launch *launch)
{
    uint64_t rows = launch->m < launcher->max_tokens ? launch->m : launcher->max_tokens;
    while (rows > 0 && dk_workspace_bytes(launch->weights, rows) > launcher->workspace_bytes) {
        rows /= 2;
    }
    return rows;
}

dk_status dk_launch_piece(const struct dk_launcher *launcher, struct dk_launch *launch,
                          struct dk_error *error)
{
    uint64_t left = launch->m - launch->rows_done, rows = rows_per_piece(launcher, launch);
    if (left == 0) {
        return DK_OK;
    }
    if (rows == 0) {
        return dk_fail(error, DK_TOO_LARGE,
                       "one row of [%llu,%llu] needs a workspace of %zu bytes, there are %zu",
                       (unsigned long long)launch->k, (unsigned long long)launch->n,
                       dk_workspace_bytes(launch->weights, 1), launcher->workspace_bytes);
    }
    rows = rows < left ? rows : left;
    struct dk_call call = {
        .m = rows,
        .a = (const unsigned char *)launch->a +
             launch->rows_done * launch->k * dk_dtype_bytes(launch->a_dtype),
        .a_row_elements = launch->k,
        .a_dtype = launch->a_dtype,
        .c = (unsigned char *)launch->c + launch->rows_done * launch->n * dk_dtype_bytes(launch->c_dtype),
        .c_row_elements = launch->n,
        .c_dtype = launch->c_dtype,
        .epilogue = launch->epilogue,
        .bias = launch->bias,
        .workspace = launcher->workspace,
    };
    uint64_t kernel_ns = 0;
    dk_status status = dk_run_host(launch->weights, &call, &kernel_ns, error);
    if (status != DK_OK) {
        return status;
    }
    const struct dk_plan *plan = dk_plan_get(launch->weights, rows);
    dk_launcher_progress(launcher);
    launch->rows_done += rows;
    launch->kernel_ns += kernel_ns;
    launch->piece_count++;
    launch->bucket_rows = plan->bucket_rows;
    launch->split_k = plan->split_k;
    launch->variant = plan->variant;
    if (launcher->metrics != NULL) {
        dk_metrics_record_launch(launcher->metrics, rows, 1);
    }
    return DK_OK;
}

dk_status dk_launch_all(const struct dk_launcher *launcher, struct dk_launch *launch, struct dk_error *error)
{
    dk_status status = DK_OK;
    while (status == DK_OK && !dk_launch_is_done(launch)) {
        status = dk_launch_piece(launcher, launch, error);
    }
    return status;
}
