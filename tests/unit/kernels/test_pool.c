/* test_pool.c: every task runs exactly once, whoever is awake. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "kernels/cpu/pool.h"

enum { MAX_TASKS = 1000 };

struct counts {
    uint32_t runs[MAX_TASKS]; /* plain on purpose: dk_pool_run promises that they are visible */
    uint32_t thread_count;
    atomic_bool has_wrong_thread;
};

static void count_task(void *context, uint32_t task, uint32_t thread)
{
    struct counts *counts = context;
    counts->runs[task]++;
    if (thread >= counts->thread_count) {
        atomic_store(&counts->has_wrong_thread, true);
    }
}

static void check_jobs(uint32_t threads, uint32_t spin_us, uint32_t job_count)
{
    static const uint32_t sizes[] = {0, 1, 2, 3, 7, 64, MAX_TASKS};
    struct dk_pool *pool;
    assert_int_equal(dk_pool_new(threads, spin_us, &pool, NULL), DK_OK);
    for (uint32_t job = 0; job < job_count; job++) {
        static struct counts counts;
        memset(&counts, 0, sizeof counts);
        counts.thread_count = threads;
        uint32_t size = sizes[job % 7];
        dk_pool_run(pool, count_task, &counts, size);
        for (uint32_t i = 0; i < MAX_TASKS; i++) {
            assert_int_equal(counts.runs[i], i < size ? 1 : 0);
        }
        assert_false(atomic_load(&counts.has_wrong_thread));
    }
    dk_pool_free(pool);
}

static void test_every_task_runs_once(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 4; threads++) {
        check_jobs(threads, 50, 700);
    }
}

/* Threads that sleep between any two jobs. */
static void test_sleeping_threads_are_woken(void **state)
{
    (void)state;
    check_jobs(2, 1, 700);
    check_jobs(3, 1, 350);
}

static void test_more_threads_than_cpus(void **state)
{
    (void)state;
    check_jobs(16, 20, 140);
}

struct hostage {
    atomic_uint done_count;
    uint32_t task_count;
};

/* Task 0 holds its thread until all others are done. */
static void hold_task(void *context, uint32_t task, uint32_t thread)
{
    (void)thread;
    struct hostage *hostage = context;
    while (task == 0 && atomic_load(&hostage->done_count) < hostage->task_count - 1) {
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    atomic_fetch_add(&hostage->done_count, 1);
}

static void test_a_held_up_threads_share_is_done_by_the_others(void **state)
{
    (void)state;
    struct dk_pool *pool;
    assert_int_equal(dk_pool_new(3, 50, &pool, NULL), DK_OK);
    for (int job = 0; job < 20; job++) {
        struct hostage hostage = {.task_count = 30};
        dk_pool_run(pool, hold_task, &hostage, hostage.task_count);
        assert_int_equal(atomic_load(&hostage.done_count), 30);
    }
    dk_pool_free(pool);
}

static void slow_task(void *context, uint32_t task, uint32_t thread)
{
    (void)task;
    (void)thread;
    nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
    atomic_fetch_add((atomic_uint *)context, 1);
}

/* The caller runs out of tasks while another thread still holds one, longer than the caller spins. */
static void test_the_caller_waits_for_the_last_task(void **state)
{
    (void)state;
    struct dk_pool *pool;
    assert_int_equal(dk_pool_new(3, 1, &pool, NULL), DK_OK);
    for (uint32_t job = 1; job <= 50; job++) {
        atomic_uint count = 0;
        dk_pool_run(pool, slow_task, &count, 4);
        assert_int_equal(atomic_load(&count), 4);
    }
    dk_pool_free(pool);
}

static void test_pools_without_work_end(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        struct dk_pool *pool;
        assert_int_equal(dk_pool_new(1 + (uint32_t)i % 5, 1, &pool, NULL), DK_OK);
        dk_pool_free(pool);
    }
    dk_pool_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_task_runs_once),
        cmocka_unit_test(test_sleeping_threads_are_woken),
        cmocka_unit_test(test_more_threads_than_cpus),
        cmocka_unit_test(test_a_held_up_threads_share_is_done_by_the_others),
        cmocka_unit_test(test_the_caller_waits_for_the_last_task),
        cmocka_unit_test(test_pools_without_work_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
