/* pool.c: a job is published as one word per thread, {job number, next task}; tasks are claimed by
 * compare-and-swap on those words, so a thread that wakes late can neither run nor see half of another job.
 */
#include "kernels/cpu/pool.h"

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/clock.h"

enum { CACHE_LINE = 64, SPINS_PER_CLOCK_READ = 32, CALLER_SPIN_US = 30 };

/* Low half of a claim word while its range is closed: beyond any end. */
static const uint32_t closed = UINT32_MAX;

/* One thread's share of the job. */
struct share {
    _Alignas(CACHE_LINE) _Atomic uint64_t claim; /* job << 32 | next task */
    _Atomic uint32_t end;
};

struct worker {
    pthread_t thread;
    struct dk_pool *pool;
    uint32_t index;
    _Atomic int cpu; /* where it last ran; -1: not known */
};

struct dk_pool {
    /* Written by the caller of dk_pool_run between closing the shares and opening them again. */
    _Alignas(CACHE_LINE) _Atomic(dk_pool_task) task;
    _Atomic(void *) context;
    _Alignas(CACHE_LINE) _Atomic uint32_t job; /* futex of the workers; 0: none yet */
    _Atomic uint32_t sleeper_count;
    _Atomic bool is_stopping;
    _Alignas(CACHE_LINE) _Atomic uint32_t unfinished_count;
    _Alignas(CACHE_LINE) _Atomic uint32_t finished_job; /* futex of the caller */
    _Atomic bool is_caller_asleep;
    uint32_t thread_count, started_count;
    uint64_t spin_ns;
    cpu_set_t allowed; /* CPUs of the process when the pool was made */
    struct worker *workers;
    struct share *shares;
};

static void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t expected)
{
    /* EAGAIN and EINTR are both answered by looking at the word again. */
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

/* Spins until *word differs from `value` or `spin_ns` are over; true when it differs. */
static bool spin_while(const _Atomic uint32_t *word, uint32_t value, uint64_t spin_ns)
{
    uint64_t deadline = dk_cpu_now_ns() + spin_ns;
    do {
        for (int i = 0; i < SPINS_PER_CLOCK_READ; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value) {
                return true;
            }
            cpu_relax();
        }
    } while (dk_cpu_now_ns() < deadline);
    return false;
}

static void finish_task(struct dk_pool *pool, uint32_t job)
{
    if (atomic_fetch_sub_explicit(&pool->unfinished_count, 1, memory_order_acq_rel) != 1) {
        return;
    }
    /* Sequentially consistent with wait_for_job: either it sees the number or we see that it sleeps. */
    atomic_store(&pool->finished_job, job);
    if (atomic_load(&pool->is_caller_asleep)) {
        futex_wake(&pool->finished_job, 1);
    }
}

/* Claims and runs tasks of one share until it is empty; false when `job` is over. */
static bool run_share(struct dk_pool *pool, struct share *share, uint32_t job, uint32_t thread_index)
{
    for (;;) {
        uint64_t claim = atomic_load_explicit(&share->claim, memory_order_acquire);
        if ((uint32_t)(claim >> 32) != job) {
            return false;
        }
        /* If these belong to a later job, the share was closed before they were written and the exchange
         * below fails. */
        uint32_t end = atomic_load_explicit(&share->end, memory_order_acquire);
        dk_pool_task task = atomic_load_explicit(&pool->task, memory_order_acquire);
        void *context = atomic_load_explicit(&pool->context, memory_order_acquire);
        uint32_t index = (uint32_t)claim;
        if (index >= end) {
            return true;
        }
        if (atomic_compare_exchange_weak_explicit(&share->claim, &claim, claim + 1, memory_order_acq_rel,
                                                  memory_order_relaxed)) {
            task(context, index, thread_index);
            finish_task(pool, job);
        }
    }
}

static void run_job(struct dk_pool *pool, uint32_t job, uint32_t thread_index)
{
    for (uint32_t i = 0; i < pool->thread_count; i++) {
        uint32_t victim = thread_index + i;
        victim = victim < pool->thread_count ? victim : victim - pool->thread_count;
        if (!run_share(pool, &pool->shares[victim], job, thread_index)) {
            return;
        }
    }
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct dk_pool *pool = worker->pool;
    uint32_t seen = 0;
    atomic_store_explicit(&worker->cpu, sched_getcpu(), memory_order_relaxed);
    for (;;) {
        if (!spin_while(&pool->job, seen, pool->spin_ns)) {
            atomic_fetch_add(&pool->sleeper_count, 1);
            while (atomic_load(&pool->job) == seen) {
                futex_wait(&pool->job, seen);
            }
            atomic_fetch_sub(&pool->sleeper_count, 1);
        }
        seen = atomic_load_explicit(&pool->job, memory_order_acquire);
        if (atomic_load_explicit(&pool->is_stopping, memory_order_acquire)) {
            return NULL;
        }
        atomic_store_explicit(&worker->cpu, sched_getcpu(), memory_order_relaxed);
        run_job(pool, seen, worker->index);
    }
}

/* A worker that last ran on the caller's CPU would be woken there, behind the caller, whenever the other CPUs
 * look busy for an instant (an HTTP thread about to sleep): the product then takes as long as on one core
 * less. So such a worker is sent elsewhere; one system call, and only when the two met. */
static void part_from_caller(struct dk_pool *pool)
{
    int cpu = sched_getcpu();
    if (cpu < 0 || CPU_COUNT(&pool->allowed) < 2 || !CPU_ISSET((size_t)cpu, &pool->allowed)) {
        return;
    }
    for (uint32_t i = 1; i < pool->thread_count; i++) {
        struct worker *worker = &pool->workers[i];
        if (atomic_load_explicit(&worker->cpu, memory_order_relaxed) == cpu) {
            cpu_set_t others = pool->allowed;
            CPU_CLR((size_t)cpu, &others);
            /* Refused (the process' own mask may have shrunk): the worker stays where it is, only slower. */
            (void)pthread_setaffinity_np(worker->thread, sizeof others, &others);
            atomic_store_explicit(&worker->cpu, -1, memory_order_relaxed);
        }
    }
}

/* Announce a new job number (or the end) to the workers. */
static void announce(struct dk_pool *pool, uint32_t job)
{
    atomic_store(&pool->job, job);
    if (atomic_load(&pool->sleeper_count) > 0) {
        futex_wake(&pool->job, (int)pool->thread_count);
    }
}

static void stop_workers(struct dk_pool *pool)
{
    atomic_store_explicit(&pool->is_stopping, true, memory_order_release);
    announce(pool, atomic_load(&pool->job) + 1);
    for (uint32_t i = 1; i < pool->started_count; i++) {
        pthread_join(pool->workers[i].thread, NULL);
    }
}

static dk_status start_workers(struct dk_pool *pool, struct dk_error *error)
{
    pool->started_count = 1; /* the caller */
    for (uint32_t i = 1; i < pool->thread_count; i++) {
        struct worker *worker = &pool->workers[i];
        *worker = (struct worker){.pool = pool, .index = i, .cpu = -1};
        int code = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (code != 0) {
            stop_workers(pool);
            return dk_fail(error, DK_UNAVAILABLE, "cannot start compute thread %u of %u: error %d", i,
                           pool->thread_count, code);
        }
        char name[16] = "dk-compute";
        pthread_setname_np(worker->thread, name);
        pool->started_count++;
    }
    return DK_OK;
}

dk_status dk_pool_new(uint32_t thread_count, uint32_t spin_us, struct dk_pool **out, struct dk_error *error)
{
    assert(thread_count >= 1 && thread_count <= DK_POOL_MAX_THREADS);
    struct dk_pool *pool = aligned_alloc(CACHE_LINE, sizeof *pool);
    if (!pool) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for the compute threads' pool");
    }
    *pool = (struct dk_pool){.thread_count = thread_count, .spin_ns = (uint64_t)spin_us * 1000};
    if (sched_getaffinity(0, sizeof pool->allowed, &pool->allowed) != 0) {
        CPU_ZERO(&pool->allowed); /* workers stay where the system puts them */
    }
    pool->workers = calloc(thread_count, sizeof *pool->workers);
    pool->shares = aligned_alloc(CACHE_LINE, thread_count * sizeof *pool->shares);
    dk_status status;
    if (!pool->workers || !pool->shares) {
        status = dk_fail(error, DK_NO_MEMORY, "no memory for %u compute threads", thread_count);
        goto free_pool;
    }
    for (uint32_t i = 0; i < thread_count; i++) {
        atomic_init(&pool->shares[i].claim, closed);
        atomic_init(&pool->shares[i].end, 0);
    }
    status = start_workers(pool, error);
    if (status != DK_OK) {
        goto free_pool;
    }
    *out = pool;
    return DK_OK;
free_pool:
    free(pool->shares);
    free(pool->workers);
    free(pool);
    return status;
}

void dk_pool_free(struct dk_pool *pool)
{
    if (!pool) {
        return;
    }
    stop_workers(pool);
    free(pool->shares);
    free(pool->workers);
    free(pool);
}

static void wait_for_job(struct dk_pool *pool, uint32_t job)
{
    uint32_t finished = job - 1;
    if (spin_while(&pool->finished_job, finished, CALLER_SPIN_US * UINT64_C(1000))) {
        return;
    }
    atomic_store(&pool->is_caller_asleep, true);
    while (atomic_load(&pool->finished_job) == finished) {
        futex_wait(&pool->finished_job, finished);
    }
    atomic_store(&pool->is_caller_asleep, false);
}

static void open_shares(struct dk_pool *pool, uint32_t job, dk_pool_task task, void *context,
                        uint32_t task_count)
{
    uint64_t job_bits = (uint64_t)job << 32;
    for (uint32_t i = 0; i < pool->thread_count; i++) {
        atomic_store_explicit(&pool->shares[i].claim, job_bits | closed, memory_order_release);
    }
    atomic_store_explicit(&pool->unfinished_count, task_count, memory_order_release);
    atomic_store_explicit(&pool->task, task, memory_order_release);
    atomic_store_explicit(&pool->context, context, memory_order_release);
    for (uint32_t i = 0; i < pool->thread_count; i++) {
        uint32_t begin = (uint32_t)((uint64_t)task_count * i / pool->thread_count);
        uint32_t end = (uint32_t)((uint64_t)task_count * (i + 1) / pool->thread_count);
        atomic_store_explicit(&pool->shares[i].end, end, memory_order_release);
        atomic_store_explicit(&pool->shares[i].claim, job_bits | begin, memory_order_release);
    }
}

void dk_pool_run(struct dk_pool *pool, dk_pool_task task, void *context, uint32_t task_count)
{
    if (pool->thread_count == 1 || task_count <= 1) {
        for (uint32_t i = 0; i < task_count; i++) {
            task(context, i, 0);
        }
        return;
    }
    uint32_t job = atomic_load_explicit(&pool->job, memory_order_relaxed) + 1;
    open_shares(pool, job, task, context, task_count);
    part_from_caller(pool);
    announce(pool, job);
    run_job(pool, job, 0);
    wait_for_job(pool, job);
}
