/* load.c: threads of a load run, their common clock, and the sum of their results. */
#include "client/load.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "client/load_worker.h"

uint64_t dk_load_now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

void dk_load_code_name(uint32_t code, char out[32])
{
    static const char *const own[] = {"CONNECTION", "BAD_REPLY", "NO_ANSWER"};
    if (code < DK_STATUS_COUNT)
        (void)snprintf(out, 32, "%s", dk_status_name((dk_status)code));
    else if (code >= DK_LOAD_CONNECTION && code < DK_LOAD_CODE_COUNT)
        (void)snprintf(out, 32, "%s", own[code - DK_LOAD_CONNECTION]);
    else
        (void)snprintf(out, 32, "%u", code);
}

/* All that belongs to one run. */
struct run {
    const struct dk_load_plan *plan;
    struct dk_load_worker *workers;
    pthread_t *threads;
    uint32_t opened_count, started_count;
    atomic_bool is_abandoned; /* not all threads could start: the others end at once */
    pthread_mutex_t mutex;
    pthread_cond_t ended; /* each worker, at its end */
    uint32_t ended_count;
};

struct start {
    struct run *run;
    struct dk_load_worker *worker;
};

static void *run_worker(void *argument)
{
    struct start start = *(struct start *)argument;
    free(argument);
    /* The kernel may delay a timer by 50 us by default: too coarse for arrivals. */
    (void)prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    dk_load_worker_run(start.worker);
    pthread_mutex_lock(&start.run->mutex);
    start.run->ended_count++;
    pthread_cond_signal(&start.run->ended);
    pthread_mutex_unlock(&start.run->mutex);
    return NULL;
}

static dk_status open_workers(struct run *run, struct dk_error *error)
{
    for (uint32_t i = 0; i < run->plan->thread_count; i++) {
        run->opened_count++; /* also when it fails: what it allocated is freed below */
        dk_status status = dk_load_worker_init(&run->workers[i], run->plan, i, error);
        if (status != DK_OK)
            return status;
    }
    return DK_OK;
}

static dk_status start_workers(struct run *run, struct dk_error *error)
{
    const struct dk_load_plan *plan = run->plan;
    uint64_t begin_ns = dk_load_now_ns() + 2000000;
    uint64_t window_ns = begin_ns + (uint64_t)(plan->warmup_s * 1e9);
    for (uint32_t i = 0; i < plan->thread_count; i++) {
        run->workers[i].is_abandoned = &run->is_abandoned;
        run->workers[i].begin_ns = begin_ns;
        run->workers[i].window_ns = window_ns;
        run->workers[i].end_ns = window_ns + (uint64_t)(plan->duration_s * 1e9);
        struct start *start = malloc(sizeof *start);
        if (!start)
            return dk_fail(error, DK_NO_MEMORY, "no memory for thread %u", i);
        *start = (struct start){run, &run->workers[i]};
        int code = pthread_create(&run->threads[i], NULL, run_worker, start);
        if (code != 0) {
            free(start);
            return dk_fail(error, DK_INTERNAL, "cannot start thread %u of %u: %s", i + 1, plan->thread_count,
                           strerrordesc_np(code));
        }
        run->started_count++;
    }
    return DK_OK;
}

static void report_progress(const struct run *run, uint64_t begin_ns)
{
    uint64_t ok_count = 0, failed_count = 0;
    for (uint32_t i = 0; i < run->started_count; i++) {
        ok_count += atomic_load_explicit(&run->workers[i].ok_count, memory_order_relaxed);
        failed_count += atomic_load_explicit(&run->workers[i].failed_count, memory_order_relaxed);
    }
    run->plan->on_progress(run->plan->progress_context, run->plan,
                           (double)(dk_load_now_ns() - begin_ns) / 1e9, ok_count, failed_count);
}

/* Until all have ended, with progress every second. */
static void wait_for_workers(struct run *run)
{
    uint64_t begin_ns = dk_load_now_ns(), next_ns = begin_ns;
    pthread_mutex_lock(&run->mutex);
    while (run->ended_count < run->started_count) {
        next_ns += 1000000000u;
        struct timespec until = {(time_t)(next_ns / 1000000000u), (long)(next_ns % 1000000000u)};
        int code = 0;
        while (run->ended_count < run->started_count && code == 0)
            code = pthread_cond_clockwait(&run->ended, &run->mutex, CLOCK_MONOTONIC, &until);
        if (run->ended_count < run->started_count && run->plan->on_progress)
            report_progress(run, begin_ns);
    }
    pthread_mutex_unlock(&run->mutex);
    for (uint32_t i = 0; i < run->started_count; i++)
        pthread_join(run->threads[i], NULL);
}

static void add_result(struct dk_load_result *into, const struct dk_load_result *from)
{
    dk_latency_merge(&into->latency, &from->latency);
    dk_latency_merge(&into->kernel, &from->kernel);
    dk_latency_merge(&into->above_kernel, &from->above_kernel);
    for (uint32_t i = 0; i < DK_LOAD_CODE_COUNT; i++)
        into->codes[i] += from->codes[i];
    into->failed_count += from->failed_count;
    into->answered_count += from->answered_count;
    into->unsent_count += from->unsent_count;
    if (from->max_late_ns > into->max_late_ns)
        into->max_late_ns = from->max_late_ns;
}

static void collect(const struct run *run, struct dk_load_result *out)
{
    const struct dk_load_plan *plan = run->plan;
    uint64_t last_ns = 0, window_ns = run->workers[0].window_ns;
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < plan->thread_count; i++) {
        add_result(out, &run->workers[i].result);
        if (run->workers[i].end_ns > last_ns)
            last_ns = run->workers[i].end_ns;
    }
    out->window_s = last_ns > window_ns ? (double)(last_ns - window_ns) / 1e9 : 0;
    out->is_stopped = plan->is_stopping && atomic_load_explicit(plan->is_stopping, memory_order_relaxed);
}

dk_status dk_load_run(const struct dk_load_plan *plan, struct dk_load_result *out, struct dk_error *error)
{
    struct run run = {.plan = plan,
                      .workers = calloc(plan->thread_count, sizeof *run.workers),
                      .threads = calloc(plan->thread_count, sizeof *run.threads),
                      .mutex = PTHREAD_MUTEX_INITIALIZER,
                      .ended = PTHREAD_COND_INITIALIZER};
    dk_status status;
    if (!run.workers || !run.threads) {
        status = dk_fail(error, DK_NO_MEMORY, "no memory for %u threads", plan->thread_count);
        goto free_run;
    }
    status = open_workers(&run, error);
    if (status == DK_OK) {
        status = start_workers(&run, error);
        atomic_store_explicit(&run.is_abandoned, status != DK_OK, memory_order_relaxed);
        wait_for_workers(&run);
    }
    if (status == DK_OK)
        collect(&run, out);
    for (uint32_t i = 0; i < run.opened_count; i++)
        dk_load_worker_deinit(&run.workers[i]);
free_run:
    free(run.workers);
    free(run.threads);
    return status;
}
