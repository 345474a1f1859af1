/* test_executor.c: jobs through the executor on a tiny CPU engine: pieces, ad hoc products, refusals, ends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/bell.h"
#include "server/clock.h"
#include "server/executor.h"
#include "server/job.h"
#include "server/metrics.h"
#include "server/models.h"
#include "server/queue.h"

enum { M_MAX = 11, N = 24, K = 2048, MAX_TOKENS = 4 };

struct fixture {
    struct dk_engine *engine;
    struct dk_bell *bell;
    struct dk_queue *queue;
    struct dk_executor *executor;
    struct dk_model model;
    float a[M_MAX * K], b[K * N], c[M_MAX * N], expected[M_MAX * N];
    double a_double[M_MAX * K];
};

/* A job and the wait for its completion. */
struct waiter {
    struct dk_job job;
    pthread_mutex_t mutex;
    pthread_cond_t done;
    bool is_done;
};

static void complete(struct dk_job *job)
{
    struct waiter *waiter = job->context;
    (void)pthread_mutex_lock(&waiter->mutex);
    waiter->is_done = true;
    (void)pthread_cond_signal(&waiter->done);
    (void)pthread_mutex_unlock(&waiter->mutex);
}

static void waiter_init(struct waiter *waiter, struct fixture *f, uint64_t m)
{
    *waiter = (struct waiter){
        .mutex = PTHREAD_MUTEX_INITIALIZER,
        .done = PTHREAD_COND_INITIALIZER,
        .job = {.gemm = {.m = m, .n = N, .k = K, .b_layout = DK_LAYOUT_KN},
                .model = &f->model,
                .a = f->a,
                .c = f->c,
                .client_fd = -1,
                .variant = "",
                .complete = complete},
    };
    waiter->job.context = waiter;
    waiter->job.queued_ns = dk_clock_now_ns();
}

static dk_status run(struct fixture *f, struct waiter *waiter)
{
    assert_int_equal(dk_queue_push(f->queue, &waiter->job, NULL), DK_OK);
    (void)pthread_mutex_lock(&waiter->mutex);
    while (!waiter->is_done) {
        (void)pthread_cond_wait(&waiter->done, &waiter->mutex);
    }
    (void)pthread_mutex_unlock(&waiter->mutex);
    assert_true(waiter->job.finished_ns >= waiter->job.started_ns);
    assert_true(waiter->job.started_ns >= waiter->job.queued_ns);
    return waiter->job.error.status;
}

/* Small integers: every sum is exact, so the result must be equal to the bit. */
static void fill(struct fixture *f)
{
    for (int i = 0; i < M_MAX * K; i++) {
        f->a_double[i] = f->a[i] = (float)(i * 7 % 11 - 5);
    }
    for (int i = 0; i < K * N; i++) {
        f->b[i] = (float)(i * 5 % 13 - 6);
    }
    for (int row = 0; row < M_MAX; row++) {
        for (int column = 0; column < N; column++) {
            float sum = 0;
            for (int k = 0; k < K; k++) {
                sum += f->a[row * K + k] * f->b[k * N + column];
            }
            f->expected[row * N + column] = sum;
        }
    }
    memset(f->c, 0x7f, sizeof f->c);
}

static void start(struct fixture *f, size_t workspace_bytes, uint64_t adhoc_max_bytes, uint32_t spin_us)
{
    struct dk_engine_options engine = {
        .backend = DK_BACKEND_CPU, .thread_count = 2, .max_tokens = MAX_TOKENS};
    memset(f, 0, sizeof *f);
    fill(f);
    assert_int_equal(dk_engine_new(&engine, &f->engine, NULL), DK_OK);
    struct dk_weights_desc desc = {.n = N, .k = K, .dtype = DK_FP32, .layout = DK_LAYOUT_KN, .data = f->b};
    assert_int_equal(dk_weights_new(f->engine, &desc, &f->model.weights, NULL), DK_OK);
    if (workspace_bytes == 0) {
        workspace_bytes = 1 << 20;
    }
    assert_int_equal(dk_bell_new(&f->bell, NULL), DK_OK);
    assert_int_equal(dk_queue_new(64, f->bell, &f->queue, NULL), DK_OK);
    struct dk_executor_options options = {.engine = f->engine,
                                          .bell = f->bell,
                                          .queue = f->queue,
                                          .spin_us = spin_us,
                                          .workspace_bytes = workspace_bytes,
                                          .adhoc_max_bytes = adhoc_max_bytes};
    assert_int_equal(dk_executor_new(&options, &f->executor, NULL), DK_OK);
}

static void stop(struct fixture *f)
{
    dk_executor_free(f->executor);
    dk_queue_free(f->queue);
    dk_bell_free(f->bell);
    dk_weights_free(f->model.weights);
    dk_engine_free(f->engine);
}

static void assert_rows(const struct fixture *f, uint64_t m)
{
    assert_memory_equal(f->c, f->expected, m * N * sizeof(float));
    for (uint64_t i = m * N; i < M_MAX * N; i++) {
        assert_memory_equal(&f->c[i], "\x7f\x7f\x7f\x7f", 4); /* nothing behind the last row is touched */
    }
}

static void test_any_number_of_rows_is_cut_into_pieces(void **state)
{
    (void)state;
    static struct fixture f;
    struct waiter waiter;
    start(&f, 0, 0, 0);
    for (uint64_t m = 1; m <= M_MAX; m++) {
        fill(&f);
        waiter_init(&waiter, &f, m);
        assert_int_equal(run(&f, &waiter), DK_OK);
        assert_rows(&f, m);
        assert_int_equal(waiter.job.piece_count, (m + MAX_TOKENS - 1) / MAX_TOKENS);
        assert_true(waiter.job.split_k >= 1 && waiter.job.bucket_rows >= 1 && strlen(waiter.job.variant) > 0);
    }
    stop(&f);
}

static void test_no_rows_succeed_and_touch_nothing(void **state)
{
    (void)state;
    static struct fixture f;
    struct waiter waiter;
    start(&f, 0, 0, 0);
    waiter_init(&waiter, &f, 0);
    waiter.job.a = waiter.job.c = NULL;
    assert_int_equal(run(&f, &waiter), DK_OK);
    assert_int_equal(waiter.job.piece_count, 0);
    assert_int_equal(waiter.job.bucket_rows, 0);
    assert_string_equal(waiter.job.variant, "");
    assert_rows(&f, 0);
    stop(&f);
}

static void test_small_workspace_means_smaller_pieces_with_the_same_result(void **state)
{
    (void)state;
    static struct fixture f;
    struct waiter waiter;
    start(&f, 0, 0, 0);
    size_t one_row = dk_workspace_bytes(f.model.weights, 1);
    size_t bucket = dk_workspace_bytes(f.model.weights, MAX_TOKENS);
    stop(&f);
    if (one_row == bucket || one_row == 0) {
        skip(); /* this plan needs no partials: nothing to make smaller */
    }
    start(&f, one_row, 0, 0);
    waiter_init(&waiter, &f, M_MAX);
    assert_int_equal(run(&f, &waiter), DK_OK);
    assert_rows(&f, M_MAX);
    assert_true(waiter.job.piece_count > (M_MAX + MAX_TOKENS - 1) / MAX_TOKENS);
    stop(&f);
}

static void test_row_that_does_not_fit_the_workspace_is_too_large(void **state)
{
    (void)state;
    static struct fixture f;
    struct waiter waiter;
    start(&f, 1, 0, 0);
    if (dk_workspace_bytes(f.model.weights, 1) <= 1) {
        stop(&f);
        skip();
    }
    waiter_init(&waiter, &f, 2);
    assert_int_equal(run(&f, &waiter), DK_TOO_LARGE);
    assert_non_null(strstr(waiter.job.error.message, "workspace"));
    assert_rows(&f, 0);
    stop(&f);
}

static void test_doubles_are_rounded_in_place(void **state)
{
    (void)state;
    static struct fixture f;
    struct waiter waiter;
    start(&f, 0, 0, 0);
    waiter_init(&waiter, &f, M_MAX);
    waiter.job.a = f.a_double;
    waiter.job.a_is_double = true;
    assert_int_equal(run(&f, &waiter), DK_OK);
    assert_rows(&f, M_MAX);
    stop(&f);
}

static void test_double_that_overflows_is_named(void **state)
{
    (void)state;
    static struct fixture f;
    struct waiter waiter;
    start(&f, 0, 0, 0);
    waiter_init(&waiter, &f, M_MAX);
    f.a_double[K + 3] = 1e39;
    waiter.job.a = f.a_double;
    waiter.job.a_is_double = true;
    assert_int_equal(run(&f, &waiter), DK_BAD_VALUE);
    assert_non_null(strstr(waiter.job.error.message, "2051"));
    assert_non_null(strstr(waiter.job.error.message, "\"x\""));
    assert_rows(&f, 0);
    stop(&f);
}

static void adhoc(struct waiter *waiter, struct fixture *f)
{
    waiter_init(waiter, f, M_MAX);
    waiter->job.model = NULL;
    waiter->job.b = f->b;
}

static void test_product_that_brings_its_own_b(void **state)
{
    (void)state;
    static struct fixture f;
    struct waiter waiter;
    const float bias[N] = {[1] = 2};
    start(&f, 0, 1 << 20, 0);
    adhoc(&waiter, &f);
    assert_int_equal(run(&f, &waiter), DK_OK);
    assert_rows(&f, M_MAX);
    adhoc(&waiter, &f);
    waiter.job.bias = bias;
    waiter.job.gemm.has_bias = true;
    assert_int_equal(run(&f, &waiter), DK_OK);
    assert_true(f.c[N + 1] == f.expected[N + 1] + 2);
    stop(&f);
}

static void test_b_larger_than_the_scratch_is_too_large_and_the_next_job_is_right(void **state)
{
    (void)state;
    static struct fixture f;
    struct waiter waiter;
    start(&f, 0, 64, 0);
    adhoc(&waiter, &f);
    assert_int_equal(run(&f, &waiter), DK_TOO_LARGE);
    assert_rows(&f, 0);
    waiter_init(&waiter, &f, 3);
    assert_int_equal(run(&f, &waiter), DK_OK);
    assert_rows(&f, 3);
    stop(&f);
}

static void test_own_b_is_forbidden_when_switched_off(void **state)
{
    (void)state;
    static struct fixture f;
    struct waiter waiter;
    start(&f, 0, 0, 0);
    adhoc(&waiter, &f);
    assert_int_equal(run(&f, &waiter), DK_FORBIDDEN);
    stop(&f);
}

static void test_c43_job_of_a_client_that_left_is_dropped_before_launch(void **state)
{
    (void)state;
    static struct fixture f;
    struct waiter waiter;
    int sockets[2];
    start(&f, 0, 0, 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    waiter_init(&waiter, &f, 3);
    waiter.job.client_fd = sockets[0];
    waiter.job.queued_ns = 0;                  /* waited since the machine started */
    assert_int_equal(run(&f, &waiter), DK_OK); /* the client is still there */
    assert_rows(&f, 3);
    fill(&f);
    assert_int_equal(shutdown(sockets[1], SHUT_WR), 0);
    waiter.is_done = false;
    assert_int_equal(run(&f, &waiter), DK_OK); /* it has sent all, and waits for the answer */
    fill(&f);
    (void)close(sockets[1]);
    waiter.is_done = false;
    assert_int_equal(run(&f, &waiter), DK_CANCELLED);
    assert_rows(&f, 0);
    (void)close(sockets[0]);
    stop(&f);
}

static void test_job_past_its_deadline_is_not_launched(void **state)
{
    (void)state;
    static struct fixture f;
    struct waiter waiter;
    start(&f, 0, 0, 0);
    waiter_init(&waiter, &f, 3);
    waiter.job.deadline_ns = dk_clock_now_ns() + UINT64_C(3600) * 1000000000u;
    assert_int_equal(run(&f, &waiter), DK_OK);
    assert_rows(&f, 3);
    fill(&f);
    waiter.is_done = false;
    waiter.job.deadline_ns = dk_clock_now_ns() - 1;
    assert_int_equal(run(&f, &waiter), DK_TIMEOUT);
    assert_rows(&f, 0);
    stop(&f);
}

static void test_jobs_in_the_queue_are_completed_before_the_end(void **state)
{
    (void)state;
    static struct fixture f;
    struct waiter waiters[20];
    start(&f, 0, 0, 20);
    for (int i = 0; i < 20; i++) {
        waiter_init(&waiters[i], &f, M_MAX);
        assert_int_equal(dk_queue_push(f.queue, &waiters[i].job, NULL), DK_OK);
    }
    dk_executor_free(f.executor);
    f.executor = NULL;
    for (int i = 0; i < 20; i++) {
        assert_true(waiters[i].is_done);
        assert_int_equal(waiters[i].job.error.status, DK_OK);
    }
    assert_rows(&f, M_MAX);
    stop(&f);
}

/* What the watchdog relies on: a sleeping executor shows life when rung, and a long job with every piece. */
static void test_progress_grows_when_rung_and_with_every_piece(void **state)
{
    (void)state;
    static struct fixture f;
    struct waiter waiter;
    start(&f, 0, 0, 0);
    uint64_t before = dk_executor_progress(f.executor);
    uint64_t end_ns = dk_clock_now_ns() + 20000000000u;
    while (dk_executor_progress(f.executor) < before + 3 && dk_clock_now_ns() < end_ns) {
        dk_bell_ring(f.bell);
        (void)usleep(1000);
    }
    assert_true(dk_executor_progress(f.executor) >= before + 3);
    waiter_init(&waiter, &f, M_MAX);
    before = dk_executor_progress(f.executor);
    assert_int_equal(run(&f, &waiter), DK_OK);
    assert_true(dk_executor_progress(f.executor) >= before + (M_MAX + MAX_TOKENS - 1) / MAX_TOKENS);
    stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_number_of_rows_is_cut_into_pieces),
        cmocka_unit_test(test_no_rows_succeed_and_touch_nothing),
        cmocka_unit_test(test_small_workspace_means_smaller_pieces_with_the_same_result),
        cmocka_unit_test(test_row_that_does_not_fit_the_workspace_is_too_large),
        cmocka_unit_test(test_doubles_are_rounded_in_place),
        cmocka_unit_test(test_double_that_overflows_is_named),
        cmocka_unit_test(test_product_that_brings_its_own_b),
        cmocka_unit_test(test_b_larger_than_the_scratch_is_too_large_and_the_next_job_is_right),
        cmocka_unit_test(test_own_b_is_forbidden_when_switched_off),
        cmocka_unit_test(test_c43_job_of_a_client_that_left_is_dropped_before_launch),
        cmocka_unit_test(test_job_past_its_deadline_is_not_launched),
        cmocka_unit_test(test_jobs_in_the_queue_are_completed_before_the_end),
        cmocka_unit_test(test_progress_grows_when_rung_and_with_every_piece),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
