/* test_queue.c: order, bound, closing and waking of the hand-off to the executor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "server/bell.h"
#include "server/clock.h"
#include "server/job.h"
#include "server/queue.h"

enum { PRODUCERS = 4, JOBS_PER_PRODUCER = 2000 };

static struct dk_bell *bell; /* one for all tests */

/* As the executor does: looks, spins, arms the bell, looks again, sleeps. NULL when the queue is finished. */
static struct dk_job *wait_for_job(struct dk_queue *queue, uint64_t spin_ns)
{
    while (!dk_queue_is_finished(queue)) {
        uint64_t end_ns = dk_clock_now_ns() + spin_ns;
        do {
            struct dk_job *job = dk_queue_try_pop(queue);
            if (job != NULL) {
                return job;
            }
        } while (dk_clock_now_ns() < end_ns);
        dk_bell_arm(bell);
        if (dk_queue_has_job(queue) || dk_queue_is_closed(queue)) {
            dk_bell_disarm(bell);
        } else {
            dk_bell_sleep(bell);
        }
    }
    return NULL;
}

static void test_jobs_come_out_in_order(void **state)
{
    (void)state;
    struct dk_queue *queue;
    struct dk_job jobs[7] = {0};
    assert_int_equal(dk_queue_new(7, bell, &queue, NULL), DK_OK);
    for (int round = 0; round < 5; round++) { /* past the end of the ring */
        for (int i = 0; i < 7; i++) {
            assert_int_equal(dk_queue_push(queue, &jobs[i], NULL), DK_OK);
        }
        assert_int_equal(dk_queue_depth(queue), 7);
        for (int i = 0; i < 7; i++) {
            assert_ptr_equal(wait_for_job(queue, 0), &jobs[i]);
        }
        assert_null(dk_queue_try_pop(queue));
        assert_int_equal(dk_queue_depth(queue), 0);
    }
    dk_queue_free(queue);
}

static void test_queue_full_returns_busy(void **state)
{
    (void)state;
    static const uint32_t capacities[] = {1, 2, 3, 5, 8};
    for (size_t c = 0; c < sizeof capacities / sizeof capacities[0]; c++) {
        struct dk_queue *queue;
        struct dk_job jobs[9] = {0};
        struct dk_error error;
        assert_int_equal(dk_queue_new(capacities[c], bell, &queue, NULL), DK_OK);
        for (uint32_t i = 0; i < capacities[c]; i++) {
            assert_int_equal(dk_queue_push(queue, &jobs[i], NULL), DK_OK);
        }
        assert_int_equal(dk_queue_push(queue, &jobs[8], &error), DK_BUSY);
        assert_int_equal(error.status, DK_BUSY);
        assert_ptr_equal(dk_queue_try_pop(queue), &jobs[0]);
        assert_int_equal(dk_queue_push(queue, &jobs[8], NULL), DK_OK); /* room again */
        while (dk_queue_try_pop(queue) != NULL) {
        }
        dk_queue_free(queue);
    }
}

static void test_closed_queue_takes_nothing_but_gives_what_it_has(void **state)
{
    (void)state;
    struct dk_queue *queue;
    struct dk_job job = {0};
    assert_int_equal(dk_queue_new(4, bell, &queue, NULL), DK_OK);
    assert_int_equal(dk_queue_push(queue, &job, NULL), DK_OK);
    dk_queue_close(queue);
    assert_int_equal(dk_queue_push(queue, &job, NULL), DK_UNAVAILABLE);
    assert_ptr_equal(wait_for_job(queue, 0), &job);
    assert_null(wait_for_job(queue, 0));
    assert_null(wait_for_job(queue, 1000000));
    dk_queue_free(queue);
}

static void test_better_levels_go_first_and_in_order(void **state)
{
    (void)state;
    static const enum dk_job_level pushed[] = {DK_JOB_LOW,  DK_JOB_NORMAL, DK_JOB_HIGH,
                                               DK_JOB_HIGH, DK_JOB_NORMAL, DK_JOB_LOW};
    static const int expected[] = {2, 3, 1, 4, 0, 5};
    struct dk_queue *queue;
    struct dk_job jobs[6] = {0};
    assert_int_equal(dk_queue_new(6, bell, &queue, NULL), DK_OK);
    for (int i = 0; i < 6; i++) {
        jobs[i].level = pushed[i];
        assert_int_equal(dk_queue_push(queue, &jobs[i], NULL), DK_OK);
    }
    assert_int_equal(dk_queue_push(queue, &jobs[0], NULL), DK_BUSY); /* the bound is of all levels together */
    for (int i = 0; i < 6; i++) {
        assert_ptr_equal(wait_for_job(queue, 0), &jobs[expected[i]]);
    }
    assert_null(dk_queue_try_pop(queue));
    dk_queue_free(queue);
}

static void test_no_level_starves(void **state)
{
    (void)state;
    struct dk_queue *queue;
    struct dk_job low = {.level = DK_JOB_LOW}, high[2] = {{.level = DK_JOB_HIGH}, {.level = DK_JOB_HIGH}};
    assert_int_equal(dk_queue_new(4, bell, &queue, NULL), DK_OK);
    assert_int_equal(dk_queue_push(queue, &low, NULL), DK_OK);
    assert_int_equal(dk_queue_push(queue, &high[0], NULL), DK_OK);
    int passed_count = 0;
    struct dk_job *job;
    while ((job = dk_queue_try_pop(queue)) != &low) { /* there is always another one of the best level */
        assert_non_null(job);
        passed_count++;
        assert_true(passed_count <= DK_QUEUE_PASSED_MAX);
        assert_int_equal(dk_queue_push(queue, &high[passed_count % 2], NULL), DK_OK);
    }
    assert_int_equal(passed_count, DK_QUEUE_PASSED_MAX);
    assert_non_null(dk_queue_try_pop(queue));
    assert_null(dk_queue_try_pop(queue));
    dk_queue_free(queue);
}

struct consumer {
    struct dk_queue *queue;
    uint64_t spin_ns;
    _Atomic int popped;
    uint32_t next[PRODUCERS]; /* per producer: the number expected next */
    bool is_ordered;
};

/* The producer's index lies in bucket_rows, its sequence in split_k: fields that nobody else uses here. */
static void *consume(void *context)
{
    struct consumer *consumer = context;
    for (struct dk_job *job; (job = wait_for_job(consumer->queue, consumer->spin_ns)) != NULL;) {
        consumer->is_ordered &= job->split_k == consumer->next[job->bucket_rows]++;
        atomic_fetch_add(&consumer->popped, 1);
    }
    return NULL;
}

static void test_sleeping_consumer_is_woken_by_push_and_by_close(void **state)
{
    (void)state;
    struct consumer consumer = {.spin_ns = 0, .is_ordered = true};
    struct dk_job jobs[20] = {0};
    pthread_t thread;
    assert_int_equal(dk_queue_new(4, bell, &consumer.queue, NULL), DK_OK);
    assert_int_equal(pthread_create(&thread, NULL, consume, &consumer), 0);
    for (int i = 0; i < 20; i++) {
        jobs[i].split_k = (uint32_t)i;
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* it sleeps by now, as a rule */
        assert_int_equal(dk_queue_push(consumer.queue, &jobs[i], NULL), DK_OK);
        while (atomic_load(&consumer.popped) != i + 1) { /* a lost wake-up hangs here: CTest's timeout */
        }
    }
    dk_queue_close(consumer.queue);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(consumer.is_ordered);
    dk_queue_free(consumer.queue);
}

struct producer {
    struct dk_queue *queue;
    struct dk_job *jobs;
    uint64_t busy_count;
};

static void *produce(void *context)
{
    struct producer *producer = context;
    for (int i = 0; i < JOBS_PER_PRODUCER; i++) {
        while (dk_queue_push(producer->queue, &producer->jobs[i], NULL) == DK_BUSY) {
            producer->busy_count++;
            (void)sched_yield();
        }
    }
    return NULL;
}

static void run_producers(uint64_t spin_ns)
{
    static struct dk_job jobs[PRODUCERS][JOBS_PER_PRODUCER];
    struct consumer consumer = {.spin_ns = spin_ns, .is_ordered = true};
    struct producer producers[PRODUCERS];
    pthread_t thread, threads[PRODUCERS];
    memset(jobs, 0, sizeof jobs);
    assert_int_equal(dk_queue_new(6, bell, &consumer.queue, NULL), DK_OK);
    assert_int_equal(pthread_create(&thread, NULL, consume, &consumer), 0);
    for (uint32_t p = 0; p < PRODUCERS; p++) {
        for (uint32_t i = 0; i < JOBS_PER_PRODUCER; i++) {
            jobs[p][i].bucket_rows = p;
            jobs[p][i].split_k = i;
            jobs[p][i].level = (enum dk_job_level)(p % DK_JOB_LEVEL_COUNT); /* order holds in a level */
        }
        producers[p] = (struct producer){.queue = consumer.queue, .jobs = jobs[p]};
        assert_int_equal(pthread_create(&threads[p], NULL, produce, &producers[p]), 0);
    }
    for (int p = 0; p < PRODUCERS; p++) {
        assert_int_equal(pthread_join(threads[p], NULL), 0);
    }
    dk_queue_close(consumer.queue);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&consumer.popped), PRODUCERS * JOBS_PER_PRODUCER);
    assert_true(consumer.is_ordered);
    assert_int_equal(dk_queue_depth(consumer.queue), 0);
    dk_queue_free(consumer.queue);
}

static void test_no_job_is_lost_or_reordered_with_a_sleeping_consumer(void **state)
{
    (void)state;
    run_producers(0);
}

static void test_no_job_is_lost_or_reordered_with_a_spinning_consumer(void **state)
{
    (void)state;
    run_producers(20000);
}

static int make_bell(void **state)
{
    (void)state;
    return dk_bell_new(&bell, NULL) == DK_OK ? 0 : -1;
}

static int free_bell(void **state)
{
    (void)state;
    dk_bell_free(bell);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs_come_out_in_order),
        cmocka_unit_test(test_queue_full_returns_busy),
        cmocka_unit_test(test_closed_queue_takes_nothing_but_gives_what_it_has),
        cmocka_unit_test(test_better_levels_go_first_and_in_order),
        cmocka_unit_test(test_no_level_starves),
        cmocka_unit_test(test_sleeping_consumer_is_woken_by_push_and_by_close),
        cmocka_unit_test(test_no_job_is_lost_or_reordered_with_a_sleeping_consumer),
        cmocka_unit_test(test_no_job_is_lost_or_reordered_with_a_spinning_consumer),
    };
    return cmocka_run_group_tests(tests, make_bell, free_bell);
}
