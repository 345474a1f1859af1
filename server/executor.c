/* executor.c: pop, cut into pieces that fit the plan table and the workspace, run, stamp, complete. */
#include "server/executor.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>

#include "server/clock.h"
#include "server/job.h"
#include "server/metrics.h"
#include "server/models.h"
#include "server/queue.h"
#include "server/rounding.h"

/* Only a job that has waited this long is checked for a lost client: the check is a system call. */
enum { CLIENT_CHECK_AFTER_NS = 1000000 };

struct dk_executor {
    struct dk_executor_options options;
    uint32_t max_tokens;
    void *workspace;
    struct dk_weights *scratch; /* B of ad hoc products */
    pthread_t thread;
};

/* A suspended connection's socket cannot be closed under us, so its descriptor is safe to poll. A reset or
 * fully closed peer is gone; one that only finished sending (half-closed) still wants its answer. */
static bool client_is_gone(const struct dk_job *job)
{
    if (job->client_fd < 0 || job->started_ns - job->queued_ns < CLIENT_CHECK_AFTER_NS) {
        return false;
    }
    struct pollfd request = {.fd = job->client_fd, .events = 0};
    return poll(&request, 1, 0) == 1 && (request.revents & (POLLERR | POLLHUP)) != 0;
}

/* Most rows of one piece: the largest bucket whose partials fit the workspace; 0 when not even one row's. */
static uint64_t rows_per_piece(const struct dk_executor *executor, const struct dk_weights *weights,
                               uint64_t m)
{
    uint64_t rows = m < executor->max_tokens ? m : executor->max_tokens;
    while (rows > 0 && dk_workspace_bytes(weights, rows) > executor->options.workspace_bytes) {
        rows /= 2;
    }
    return rows;
}

static dk_status run_pieces(struct dk_executor *executor, struct dk_job *job,
                            const struct dk_weights *weights)
{
    const struct dk_gemm *gemm = &job->gemm;
    uint64_t piece_rows = rows_per_piece(executor, weights, gemm->m);
    if (piece_rows == 0 && gemm->m > 0) {
        return dk_fail(&job->error, DK_TOO_LARGE,
                       "one row of [%llu,%llu] needs a workspace of %zu bytes, there are %zu",
                       (unsigned long long)gemm->k, (unsigned long long)gemm->n,
                       dk_workspace_bytes(weights, 1), executor->options.workspace_bytes);
    }
    size_t a_row_bytes = gemm->k * dk_dtype_bytes(gemm->a_dtype);
    size_t c_row_bytes = gemm->n * dk_dtype_bytes(gemm->c_dtype);
    for (uint64_t row = 0; row < gemm->m;) {
        uint64_t rows = gemm->m - row < piece_rows ? gemm->m - row : piece_rows;
        struct dk_call call = {
            .m = rows,
            .a = (const unsigned char *)job->a + row * a_row_bytes,
            .a_row_elements = gemm->k,
            .a_dtype = gemm->a_dtype,
            .c = (unsigned char *)job->c + row * c_row_bytes,
            .c_row_elements = gemm->n,
            .c_dtype = gemm->c_dtype,
            .epilogue = gemm->epilogue,
            .bias = job->bias,
            .workspace = executor->workspace,
        };
        uint64_t kernel_ns = 0;
        dk_status status = dk_run_host(weights, &call, &kernel_ns, &job->error);
        if (status != DK_OK) {
            return status;
        }
        job->kernel_ns += kernel_ns;
        job->piece_count++;
        const struct dk_plan *plan = dk_plan_get(weights, rows);
        job->bucket_rows = plan->bucket_rows;
        job->split_k = plan->split_k;
        job->variant = plan->variant;
        if (executor->options.metrics != NULL) {
            dk_metrics_record_launch(executor->options.metrics, rows, 1);
        }
        row += rows;
    }
    return DK_OK;
}

static dk_status compute(struct dk_executor *executor, struct dk_job *job)
{
    const struct dk_gemm *gemm = &job->gemm;
    dk_status status = DK_OK;
    if (job->a_is_double) {
        status = dk_round_doubles(job->a, job->a, gemm->a_dtype, gemm->m * gemm->k,
                                  job->model != NULL ? "x" : "a", 0, &job->error);
    }
    if (status == DK_OK && job->b_is_double) {
        status = dk_round_doubles(job->b, job->b, gemm->b_dtype, gemm->k * gemm->n, "b", 0, &job->error);
    }
    if (status != DK_OK) {
        return status;
    }
    if (job->model != NULL) {
        return run_pieces(executor, job, job->model->weights);
    }
    if (executor->scratch == NULL) {
        return dk_fail(&job->error, DK_FORBIDDEN, "products without a model are switched off");
    }
    struct dk_weights_desc desc = {.n = gemm->n,
                                   .k = gemm->k,
                                   .dtype = gemm->b_dtype,
                                   .layout = gemm->b_layout,
                                   .data = job->b}; /* the bias goes with the call */
    status = dk_weights_assign(executor->scratch, &desc, &job->error);
    return status == DK_OK ? run_pieces(executor, job, executor->scratch) : status;
}

static void serve(struct dk_executor *executor, struct dk_job *job)
{
    if (executor->options.metrics != NULL) {
        dk_metrics_add(executor->options.metrics, DK_METRIC_QUEUE_DEPTH, -1);
    }
    job->started_ns = dk_clock_now_ns();
    job->error.status = DK_OK;
    if (client_is_gone(job)) {
        (void)dk_fail(&job->error, DK_CANCELLED, "the client closed the connection while the job waited");
    } else if (job->deadline_ns != 0 && job->started_ns > job->deadline_ns) {
        (void)dk_fail(&job->error, DK_TIMEOUT, "the job waited %llu us for its turn, longer than its timeout",
                      (unsigned long long)(job->started_ns - job->queued_ns) / 1000u);
    } else {
        job->error.status = compute(executor, job);
    }
    job->finished_ns = dk_clock_now_ns();
    uint64_t busy_ns = job->finished_ns - job->started_ns;
    job->copy_ns = busy_ns > job->kernel_ns ? busy_ns - job->kernel_ns : 0;
    job->complete(job); /* not ours any more */
}

static void *executor_main(void *argument)
{
    struct dk_executor *executor = argument;
    (void)pthread_setname_np(pthread_self(), "dk-executor");
    uint64_t spin_ns = (uint64_t)executor->options.spin_us * 1000u;
    for (struct dk_job *job; (job = dk_queue_pop(executor->options.queue, spin_ns)) != NULL;) {
        serve(executor, job);
    }
    return NULL;
}

dk_status dk_executor_new(const struct dk_executor_options *options, struct dk_executor **out,
                          struct dk_error *error)
{
    struct dk_executor *executor = calloc(1, sizeof *executor);
    if (executor == NULL) {
        return dk_fail(error, DK_NO_MEMORY, "cannot allocate the executor");
    }
    executor->options = *options;
    executor->max_tokens = dk_engine_get_info(options->engine)->max_tokens;
    dk_status status =
        dk_workspace_new(options->engine, options->workspace_bytes, &executor->workspace, error);
    if (status != DK_OK) {
        goto free_executor;
    }
    if (options->adhoc_max_bytes > 0) {
        status = dk_weights_new_scratch(options->engine, options->adhoc_max_bytes, &executor->scratch, error);
        if (status != DK_OK) {
            goto free_workspace;
        }
    }
    if (pthread_create(&executor->thread, NULL, executor_main, executor) != 0) {
        status = dk_fail(error, DK_NO_MEMORY, "cannot start the executor thread");
        goto free_scratch;
    }
    if (options->metrics != NULL) {
        dk_metrics_set(options->metrics, DK_METRIC_WORKSPACE_BYTES, (int64_t)options->workspace_bytes);
    }
    *out = executor;
    return DK_OK;
free_scratch:
    dk_weights_free(executor->scratch);
free_workspace:
    dk_workspace_free(options->engine, executor->workspace);
free_executor:
    free(executor);
    return status;
}

void dk_executor_free(struct dk_executor *executor)
{
    if (executor == NULL) {
        return;
    }
    dk_queue_close(executor->options.queue);
    (void)pthread_join(executor->thread, NULL);
    dk_weights_free(executor->scratch);
    dk_workspace_free(executor->options.engine, executor->workspace);
    free(executor);
}
