/* executor.c: looks at the queue and at every ring, computes, completes, sleeps when there is nothing. */
#include "server/executor.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "server/bell.h"
#include "server/clock.h"
#include "server/job.h"
#include "server/launch.h"
#include "server/metrics.h"
#include "server/models.h"
#include "server/queue.h"
#include "server/rings.h"
#include "server/rounding.h"

/* Only a job that has waited this long is checked for a lost client: the check is a system call. */
enum { CLIENT_CHECK_AFTER_NS = 1000000, LOOKS_PER_CLOCK_READ = 16 };

struct dk_executor {
    struct dk_executor_options options;
    struct dk_launcher launcher;
    struct dk_weights *scratch; /* B of ad hoc products */
    pthread_t thread;
    _Atomic uint64_t progress;
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

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

static dk_status launch_job(struct dk_executor *executor, struct dk_job *job,
                            const struct dk_weights *weights)
{
    const struct dk_gemm *gemm = &job->gemm;
    struct dk_launch launch = {
        .weights = weights,
        .m = gemm->m,
        .n = gemm->n,
        .k = gemm->k,
        .a = job->a,
        .c = job->c,
        .a_dtype = gemm->a_dtype,
        .c_dtype = gemm->c_dtype,
        .epilogue = gemm->epilogue,
        .bias = job->bias,
    };
    dk_status status = dk_launch_all(&executor->launcher, &launch, &job->error);
    job->kernel_ns = launch.kernel_ns;
    job->piece_count = launch.piece_count;
    if (launch.piece_count > 0) {
        job->bucket_rows = launch.bucket_rows;
        job->split_k = launch.split_k;
        job->variant = launch.variant;
    }
    return status;
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
        return launch_job(executor, job, job->model->weights);
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
    return status == DK_OK ? launch_job(executor, job, executor->scratch) : status;
}

static void serve(struct dk_executor *executor, struct dk_job *job, uint64_t *now_ns)
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
    job->finished_ns = *now_ns = dk_clock_now_ns();
    uint64_t busy_ns = job->finished_ns - job->started_ns;
    job->copy_ns = busy_ns > job->kernel_ns ? busy_ns - job->kernel_ns : 0;
    job->complete(job); /* not ours any more */
}

/* One job and a turn of every ring: neither kind of client can keep the other waiting for long. */
static bool work(struct dk_executor *executor, uint64_t *now_ns)
{
    bool has_worked = false;
    struct dk_job *job = dk_queue_try_pop(executor->options.queue);
    if (job != NULL) {
        serve(executor, job, now_ns);
        has_worked = true;
    }
    if (executor->options.rings != NULL) {
        has_worked |= dk_rings_turn(executor->options.rings, &executor->launcher, now_ns);
    }
    return has_worked;
}

/* Looks for work until it found and did some (true), or the time is over. */
static bool spin(struct dk_executor *executor, uint64_t *now_ns)
{
    uint64_t end_ns = *now_ns + (uint64_t)executor->options.spin_us * 1000u;
    while (*now_ns < end_ns) {
        for (int i = 0; i < LOOKS_PER_CLOCK_READ; i++) {
            if (work(executor, now_ns)) {
                return true;
            }
            relax();
        }
        *now_ns = dk_clock_now_ns();
    }
    return false;
}

/* Dekker's pattern with every producer: arm, look again, sleep. */
static void sleep_until_rung(struct dk_executor *executor)
{
    struct dk_queue *queue = executor->options.queue;
    struct dk_rings *rings = executor->options.rings;
    dk_bell_arm(executor->options.bell);
    bool is_quiet =
        (rings == NULL || dk_rings_arm(rings)) && !dk_queue_has_job(queue) && !dk_queue_is_closed(queue);
    if (is_quiet) {
        dk_bell_sleep(executor->options.bell);
    } else {
        dk_bell_disarm(executor->options.bell);
    }
    if (rings != NULL) {
        dk_rings_disarm(rings);
    }
}

static void *executor_main(void *argument)
{
    struct dk_executor *executor = argument;
    (void)pthread_setname_np(pthread_self(), "dk-executor");
    uint64_t now_ns = dk_clock_now_ns();
    while (!dk_queue_is_finished(executor->options.queue)) {
        dk_launcher_progress(&executor->launcher);
        if (!work(executor, &now_ns) && !spin(executor, &now_ns)) {
            sleep_until_rung(executor);
            now_ns = dk_clock_now_ns();
        }
    }
    if (executor->options.rings != NULL) {
        dk_rings_end(executor->options.rings);
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
    executor->launcher = (struct dk_launcher){
        .engine = options->engine,
        .metrics = options->metrics,
        .max_tokens = dk_engine_get_info(options->engine)->max_tokens,
        .workspace_bytes = options->workspace_bytes,
        .progress = &executor->progress,
    };
    dk_status status =
        dk_workspace_new(options->engine, options->workspace_bytes, &executor->launcher.workspace, error);
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
    dk_workspace_free(options->engine, executor->launcher.workspace);
free_executor:
    free(executor);
    return status;
}

uint64_t dk_executor_progress(const struct dk_executor *executor)
{
    return atomic_load_explicit(&executor->progress, memory_order_relaxed);
}

void dk_executor_free(struct dk_executor *executor)
{
    if (executor == NULL) {
        return;
    }
    dk_queue_close(executor->options.queue);
    (void)pthread_join(executor->thread, NULL);
    dk_weights_free(executor->scratch);
    dk_workspace_free(executor->options.engine, executor->launcher.workspace);
    free(executor);
}
