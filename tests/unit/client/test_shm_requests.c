/* test_shm_requests.c: requests over the ring: blocking, in flight, in pieces, direct, late, and forged
 * answers. */
#include "decomposek_client.h"
#include "tests/unit/client/ring_server.h"

static struct ring_server server;
static struct dk_client *client;
static struct dk_client_model *sum;

enum { K = 4, N = 3, ENTRIES = 8 };

static void open_with(struct dk_client_options options)
{
    struct dk_error error = {0};
    if (dk_client_open(server.address, &options, &client, &error) != DK_OK ||
        dk_client_model_open(client, "sum", &sum, &error) != DK_OK)
        fail_msg("%s", error.message);
}

static void reopen(struct dk_client_options options)
{
    dk_client_close(client);
    open_with(options);
}

static int start(void **state)
{
    (void)state;
    ring_server_start(&server);
    open_with((struct dk_client_options){.ring_entries = ENTRIES, .data_bytes = 1 << 16, .timeout_ms = 5000});
    return 0;
}

static int stop(void **state)
{
    (void)state;
    dk_client_close(client);
    ring_server_stop(&server);
    return 0;
}

static void fill(float *a, size_t rows, int seed)
{
    for (size_t i = 0; i < rows * K; i++)
        a[i] = (float)((int)(i * 7 + (size_t)seed * 13) % 31 - 15);
}

static void check_sums(const float *a, const float *c, size_t rows)
{
    for (size_t i = 0; i < rows; i++) {
        float total = a[i * K] + a[i * K + 1] + a[i * K + 2] + a[i * K + 3];
        for (size_t j = 0; j < N; j++)
            if (c[i * N + j] != total * (float)(j + 1))
                fail_msg("c[%zu][%zu] is %g, expected %g", i, j, (double)c[i * N + j],
                         (double)(total * (float)(j + 1)));
    }
}

static dk_status infer(const float *a, float *c, uint64_t rows, struct dk_client_timing *timing,
                       struct dk_error *error)
{
    const struct dk_client_request request = {.rows = rows, .a = a, .c = c};
    return dk_client_infer(sum, &request, timing, error);
}

static dk_status submit(const float *a, float *c, uint64_t rows, void *user_data, struct dk_error *error)
{
    const struct dk_client_request request = {.rows = rows, .a = a, .c = c, .user_data = user_data};
    return dk_client_submit(sum, &request, error);
}

/* --- blocking ------------------------------------------------------------------------------------------ */

static void test_a_blocking_call_copies_and_times(void **state)
{
    (void)state;
    float a[10 * K], c[10 * N + 1];
    struct dk_client_timing timing = {0};
    fill(a, 10, 1);
    c[10 * N] = 77;
    assert_int_equal(infer(a, c, 10, &timing, NULL), DK_OK);
    check_sums(a, c, 10);
    assert_true(c[10 * N] == 77);
    assert_int_equal(timing.queue_ns, 1000);
    assert_int_equal(timing.kernel_ns, 2000);
    assert_true(timing.round_trip_ns > 0);
}

static void test_no_rows_are_a_request_like_any_other(void **state)
{
    (void)state;
    assert_int_equal(infer(NULL, NULL, 0, NULL, NULL), DK_OK);
    assert_int_equal(server.request_count, 1);
    assert_int_equal(submit(NULL, NULL, 0, &server, NULL), DK_OK);
    struct dk_client_completion completion;
    size_t count;
    assert_int_equal(dk_client_wait(client, 0, &completion, 1, &count, NULL), DK_OK);
    assert_int_equal(completion.status, DK_OK);
    assert_ptr_equal(completion.user_data, &server);
}

static void test_rows_beyond_the_data_area_go_in_pieces(void **state)
{
    (void)state;
    enum { ROWS = 20000 };
    float *a = malloc(ROWS * K * sizeof *a), *c = malloc(ROWS * N * sizeof *c);
    struct dk_client_timing timing;
    assert_true(a && c);
    fill(a, ROWS, 2);
    struct dk_error error;
    if (infer(a, c, ROWS, &timing, &error) != DK_OK)
        fail_msg("%s", error.message);
    check_sums(a, c, ROWS);
    assert_true(server.request_count > 8);
    assert_int_equal(timing.kernel_ns, 2000 * (uint64_t)server.request_count);
    server.refusal = DK_DEVICE_FAILED; /* and a failure of a piece is that of the call */
    assert_int_equal(infer(a, c, ROWS, NULL, &error), DK_DEVICE_FAILED);
    free(a);
    free(c);
}

static void test_a_row_beyond_the_data_area_is_too_large(void **state)
{
    (void)state;
    server.wide_n = 20000; /* 80,000 bytes */
    struct dk_client_model *wide;
    static float a[K], c[20000];
    struct dk_error error;
    assert_int_equal(dk_client_model_open(client, "wide", &wide, NULL), DK_OK);
    const struct dk_client_request request = {.rows = 1, .a = a, .c = c};
    assert_int_equal(dk_client_infer(wide, &request, NULL, &error), DK_TOO_LARGE);
    check_contains(error.message, "data_bytes");
    assert_int_equal(dk_client_submit(wide, &request, &error), DK_TOO_LARGE);
}

static void test_requests_that_cannot_be_meant_are_refused_before_they_are_sent(void **state)
{
    (void)state;
    float a[K] = {0}, c[N] = {0};
    const struct dk_client_request good = {.rows = 1, .a = a, .c = c};
    struct dk_client_request request = good;
    struct dk_error error;
#define REFUSED(field, value, expected)                                                                      \
    request = good;                                                                                          \
    request.field = value;                                                                                   \
    assert_int_equal(dk_client_infer(sum, &request, NULL, &error), expected);                                \
    assert_int_equal(dk_client_submit(sum, &request, &error), expected)
    REFUSED(rows, (uint64_t)DK_MAX_M + 1, DK_BAD_SHAPE);
    REFUSED(rows, UINT64_MAX, DK_BAD_SHAPE);
    REFUSED(a, NULL, DK_BAD_VALUE);
    REFUSED(c, NULL, DK_BAD_VALUE);
    REFUSED(a_dtype, DK_INT32, DK_BAD_DTYPE);
    REFUSED(c_dtype, (dk_dtype)99, DK_BAD_DTYPE);
    REFUSED(reserved[0], 1, DK_BAD_VALUE);
    request.has_epilogue = true;
    REFUSED(epilogue, (dk_epilogue)77, DK_OK); /* not used without has_epilogue */
    request = good;
    request.has_epilogue = true;
    request.epilogue = (dk_epilogue)77;
    assert_int_equal(dk_client_infer(sum, &request, NULL, &error), DK_BAD_VALUE);
    check_contains(error.message, "77");
#undef REFUSED
}

static void test_what_the_daemon_refuses_comes_with_its_reason(void **state)
{
    (void)state;
    float a[K] = {0}, c[N] = {5, 5, 5};
    struct dk_error error;
    const struct dk_client_request request = {.rows = 1, .a = a, .c = c, .a_dtype = DK_BF16};
    assert_int_equal(dk_client_infer(sum, &request, NULL, &error), DK_BAD_DTYPE);
    check_contains(error.message, "a_dtype is not");
    assert_true(c[0] == 5 && c[2] == 5);
}

/* --- in flight ----------------------------------------------------------------------------------------- */

static void test_several_in_flight_each_with_its_own_data(void **state)
{
    (void)state;
    enum { TOTAL = 1000 };
    static float a[ENTRIES][5 * K], c[ENTRIES][5 * N];
    int started = 0, finished = 0;
    struct dk_error error;
    while (finished < TOTAL) {
        while (started < TOTAL && started - finished < ENTRIES) {
            int slot = started % ENTRIES;
            fill(a[slot], 5, started);
            if (submit(a[slot], c[slot], 5, a[slot], &error) != DK_OK)
                fail_msg("%s", error.message);
            started++;
        }
        struct dk_client_completion done[3];
        size_t count;
        assert_int_equal(dk_client_wait(client, 0, done, 3, &count, NULL), DK_OK);
        for (size_t i = 0; i < count; i++, finished++) {
            int slot = finished % ENTRIES; /* the ring completes in order */
            assert_ptr_equal(done[i].user_data, a[slot]);
            assert_int_equal(done[i].status, DK_OK);
            assert_null(done[i].message);
            check_sums(a[slot], c[slot], 5);
        }
    }
    struct dk_client_info info;
    dk_client_get_info(client, &info);
    assert_int_equal(info.in_flight, 0);
}

static void test_a_full_ring_is_busy_and_recovers(void **state)
{
    (void)state;
    float a[K], c[ENTRIES][N];
    struct dk_client_completion done[2 * ENTRIES];
    struct dk_error error;
    fill(a, 1, 3);
    server.holds = true;
    for (int i = 0; i < ENTRIES; i++)
        assert_int_equal(submit(a, c[i], 1, NULL, NULL), DK_OK);
    assert_int_equal(submit(a, c[0], 1, NULL, &error), DK_BUSY);
    check_contains(error.message, "8 requests");
    assert_int_equal(infer(a, c[0], 1, NULL, &error), DK_BUSY);
    assert_int_equal(dk_client_poll(client, done, 2 * ENTRIES), 0);
    server.holds = false;
    size_t total = 0;
    for (size_t count; total < ENTRIES; total += count)
        assert_int_equal(dk_client_wait(client, 0, done, 2 * ENTRIES, &count, NULL), DK_OK);
    assert_int_equal(total, ENTRIES);
    assert_int_equal(infer(a, c[0], 1, NULL, NULL), DK_OK);
    size_t count;
    assert_int_equal(dk_client_wait(client, 0, done, 1, &count, &error), DK_BAD_REQUEST);
    check_contains(error.message, "nothing is in flight");
}

static void test_a_full_data_area_is_busy_and_recovers(void **state)
{
    (void)state;
    void *buffer;
    float a[K], c[N];
    struct dk_error error;
    fill(a, 1, 4);
    assert_int_equal(dk_client_buffer_acquire(client, 1 << 16, &buffer, NULL), DK_OK);
    assert_int_equal(submit(a, c, 1, NULL, &error), DK_BUSY);
    assert_int_equal(infer(a, c, 1, NULL, &error), DK_BUSY);
    check_contains(error.message, "data area");
    void *other;
    assert_int_equal(dk_client_buffer_acquire(client, 1, &other, &error), DK_BUSY);
    assert_int_equal(dk_client_buffer_acquire(client, (1 << 16) + 1, &other, &error), DK_TOO_LARGE);
    assert_int_equal(dk_client_buffer_acquire(client, 0, &other, &error), DK_BAD_VALUE);
    dk_client_buffer_release(client, buffer);
    assert_int_equal(infer(a, c, 1, NULL, &error), DK_OK);
}

static void test_a_blocking_call_keeps_completions_of_others_for_poll(void **state)
{
    (void)state;
    float a[2][K], c[2][N];
    fill(a[0], 1, 5);
    fill(a[1], 1, 6);
    assert_int_equal(submit(a[0], c[0], 1, &server, NULL), DK_OK);
    assert_int_equal(infer(a[1], c[1], 1, NULL, NULL), DK_OK);
    struct dk_client_completion completion;
    assert_int_equal(dk_client_poll(client, &completion, 1), 1);
    assert_ptr_equal(completion.user_data, &server);
    check_sums(a[0], c[0], 1);
    check_sums(a[1], c[1], 1);
}

/* --- direct buffers ------------------------------------------------------------------------------------ */

static void test_direct_buffers_are_used_in_place(void **state)
{
    (void)state;
    void *a, *c;
    assert_int_equal(dk_client_buffer_acquire(client, 16384, &a, NULL), DK_OK);
    assert_int_equal(dk_client_buffer_acquire(client, 16384, &c, NULL), DK_OK);
    assert_int_equal((uintptr_t)a % 64, 0);
    fill(a, 1024, 7);
    /* 1,024 rows of A and C fill the rest of the area more than once: in place or not at all. */
    void *rest;
    assert_int_equal(dk_client_buffer_acquire(client, 32768, &rest, NULL), DK_OK);
    assert_int_equal(submit(a, c, 1024, NULL, NULL), DK_OK);
    struct dk_client_completion completion;
    size_t count;
    assert_int_equal(dk_client_wait(client, 0, &completion, 1, &count, NULL), DK_OK);
    assert_int_equal(completion.status, DK_OK);
    check_sums(a, c, 1024);
    /* Part of one buffer for A, another for C; and at an offset that the ring cannot express. */
    dk_client_buffer_release(client, rest);
    assert_int_equal(infer((float *)a + 16, (float *)a + 1024, 64, NULL, NULL), DK_OK);
    check_sums((float *)a + 16, (float *)a + 1024, 64);
    assert_int_equal(infer((float *)a + 1, (float *)c + 1, 64, NULL, NULL), DK_OK);
    check_sums((float *)a + 1, (float *)c + 1, 64);
    dk_client_buffer_release(client, a);
    dk_client_buffer_release(client, c);
    dk_client_buffer_release(client, c);       /* twice: nothing happens */
    dk_client_buffer_release(client, &server); /* not ours: nothing happens */
    dk_client_buffer_release(client, NULL);
}

static void test_direct_operands_outside_their_buffer_are_refused(void **state)
{
    (void)state;
    void *a;
    float c[64 * N];
    struct dk_error error;
    assert_int_equal(dk_client_buffer_acquire(client, 1024, &a, NULL), DK_OK);
    assert_int_equal(infer(a, c, 64, NULL, NULL), DK_OK); /* all of it */
    assert_int_equal(infer((float *)a + 16, c, 64, NULL, &error), DK_BAD_VALUE);
    check_contains(error.message, "no acquired buffer");
    assert_int_equal(infer(a, (float *)a + 16, 16, NULL, &error), DK_BAD_VALUE);
    check_contains(error.message, "overlap");
    dk_client_buffer_release(client, a);
    assert_int_equal(infer(a, c, 64, NULL, &error), DK_BAD_VALUE);
}

static void test_a_released_buffer_stays_until_its_request_ends(void **state)
{
    (void)state;
    void *a, *other;
    float c[N];
    struct dk_error error;
    assert_int_equal(dk_client_buffer_acquire(client, 1 << 15, &a, NULL), DK_OK);
    fill(a, 1, 8);
    server.holds = true;
    assert_int_equal(submit(a, c, 1, NULL, NULL), DK_OK);
    dk_client_buffer_release(client, a);
    assert_int_equal(dk_client_buffer_acquire(client, 1 << 15, &other, &error), DK_BUSY);
    server.holds = false;
    struct dk_client_completion completion;
    size_t count;
    assert_int_equal(dk_client_wait(client, 0, &completion, 1, &count, NULL), DK_OK);
    assert_int_equal(dk_client_buffer_acquire(client, 1 << 15, &other, &error), DK_OK);
}

/* --- time ---------------------------------------------------------------------------------------------- */

static void test_a_timeout_leaves_the_callers_memory_alone(void **state)
{
    (void)state;
    float a[K], c[N] = {5, 5, 5};
    struct dk_error error;
    fill(a, 1, 9);
    server.holds = true;
    const struct dk_client_request request = {.rows = 1, .a = a, .c = c, .timeout_ms = 20};
    assert_int_equal(dk_client_infer(sum, &request, NULL, &error), DK_TIMEOUT);
    assert_int_equal(dk_client_submit(sum, &request, NULL), DK_OK);
    struct dk_client_completion completion;
    size_t count;
    assert_int_equal(dk_client_wait(client, 0, &completion, 1, &count, NULL), DK_OK);
    assert_int_equal(completion.status, DK_TIMEOUT);
    check_contains(completion.message, "timeout");
    server.holds = false; /* both complete now: late, and unseen */
    for (int i = 0; i < 100; i++) {
        float other[N];
        assert_int_equal(infer(a, other, 1, NULL, NULL), DK_OK);
        check_sums(a, other, 1);
    }
    assert_true(c[0] == 5 && c[1] == 5 && c[2] == 5);
    assert_int_equal(dk_client_poll(client, &completion, 1), 0);
}

static void test_late_requests_hold_their_place_in_the_ring(void **state)
{
    (void)state;
    float a[K] = {0}, c[N];
    struct dk_error error;
    server.holds = true;
    for (int i = 0; i < ENTRIES; i++) {
        const struct dk_client_request request = {.rows = 1, .a = a, .c = c, .timeout_ms = 1};
        assert_int_equal(dk_client_infer(sum, &request, NULL, &error), DK_TIMEOUT);
    }
    assert_int_equal(infer(a, c, 1, NULL, &error), DK_BUSY);
    server.holds = false;
    struct dk_client_completion completion;
    while (infer(a, c, 1, NULL, &error) == DK_BUSY)
        dk_client_poll(client, &completion, 1);
    assert_int_equal(infer(a, c, 1, NULL, &error), DK_OK);
}

static void test_a_wait_that_times_out_keeps_the_request(void **state)
{
    (void)state;
    float a[K] = {1}, c[N];
    struct dk_client_completion completion;
    size_t count = 77;
    struct dk_error error;
    server.holds = true;
    assert_int_equal(submit(a, c, 1, NULL, NULL), DK_OK);
    assert_int_equal(dk_client_wait(client, 10, &completion, 1, &count, &error), DK_TIMEOUT);
    assert_int_equal(count, 77);
    assert_int_equal(dk_client_wait(client, 10, &completion, 0, &count, &error), DK_BAD_VALUE);
    server.holds = false;
    assert_int_equal(dk_client_wait(client, 0, &completion, 1, &count, &error), DK_OK);
    check_sums(a, c, 1);
}

static void test_sleeping_clients_are_woken_and_ring_the_bell(void **state)
{
    (void)state;
    reopen((struct dk_client_options){.spin_us = DK_CLIENT_NO_SPIN});
    float a[K], c[N];
    for (int i = 0; i < 200; i++) {
        fill(a, 1, i);
        if (i % 20 == 0)
            usleep(3000); /* the server goes to sleep meanwhile */
        assert_int_equal(infer(a, c, 1, NULL, NULL), DK_OK);
        check_sums(a, c, 1);
    }
    assert_true(server.doorbell_count > 0);
}

/* --- faults -------------------------------------------------------------------------------------------- */

static void test_forged_completions_end_the_session_only(void **state)
{
    (void)state;
    float a[K] = {1}, c[N];
    struct dk_error error;
    for (int forgery = RING_FORGE_UNKNOWN; forgery <= RING_FORGE_TAIL; forgery++) {
        server.forgery = forgery;
        dk_status status = infer(a, c, 1, NULL, &error);
        if (forgery == RING_FORGE_TWICE && status == DK_OK)
            status = infer(a, c, 1, NULL, &error);
        if (status != DK_UNAVAILABLE || !strstr(error.message, "broke the ring"))
            fail_msg("forgery %d: %s %s", forgery, dk_status_name(status), error.message);
        server.forgery = RING_FORGE_NOTHING;
        assert_int_equal(dk_client_reconnect(client, NULL), DK_OK);
        assert_int_equal(infer(a, c, 1, NULL, NULL), DK_OK);
    }
}

static void test_requests_of_a_lost_session_are_reported_once(void **state)
{
    (void)state;
    float a[K] = {1}, c[N] = {5, 5, 5};
    void *direct;
    struct dk_client_completion done[ENTRIES];
    size_t count;
    assert_int_equal(dk_client_buffer_acquire(client, 4096, &direct, NULL), DK_OK);
    fill(direct, 1, 3);
    server.holds = true;
    for (int i = 0; i < 3; i++)
        assert_int_equal(submit(i == 0 ? direct : a, c, 1, &done[i], NULL), DK_OK);
    ring_server_await(&server.request_count, 3);
    server.dies = true;
    assert_int_equal(dk_client_wait(client, 0, done, ENTRIES, &count, NULL), DK_OK);
    assert_int_equal(count, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(done[i].status, DK_UNAVAILABLE);
        assert_ptr_equal(done[i].user_data, &done[i]);
        check_contains(done[i].message, "is over");
    }
    server.holds = false;
    assert_int_equal(dk_client_reconnect(client, NULL), DK_OK);
    assert_int_equal(dk_client_poll(client, done, ENTRIES), 0);
    assert_true(c[0] == 5);
    /* A buffer of the old session is ordinary memory now. */
    assert_int_equal(infer(direct, c, 1, NULL, NULL), DK_OK);
    check_sums(direct, c, 1);
    dk_client_buffer_release(client, direct);
}

static void test_a_drain_completes_what_was_accepted_and_takes_no_more(void **state)
{
    (void)state;
    float a[K] = {1}, c[N];
    struct dk_client_completion completion;
    struct dk_error error;
    size_t count;
    server.holds = true;
    assert_int_equal(submit(a, c, 1, NULL, NULL), DK_OK);
    ring_server_await(&server.request_count, 1);
    server.goodbye = DK_UNAVAILABLE;
    while (server.goodbye != DK_OK)
        usleep(1000);
    dk_status status;
    while ((status = submit(a, c, 1, NULL, &error)) == DK_OK)
        usleep(1000);
    assert_int_equal(status, DK_UNAVAILABLE);
    check_contains(error.message, "stopping");
    server.holds = false;
    assert_int_equal(dk_client_wait(client, 0, &completion, 1, &count, &error), DK_OK);
    assert_int_equal(completion.status, DK_OK);
    check_sums(a, c, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(test_a_blocking_call_copies_and_times),
        TEST(test_no_rows_are_a_request_like_any_other),
        TEST(test_rows_beyond_the_data_area_go_in_pieces),
        TEST(test_a_row_beyond_the_data_area_is_too_large),
        TEST(test_requests_that_cannot_be_meant_are_refused_before_they_are_sent),
        TEST(test_what_the_daemon_refuses_comes_with_its_reason),
        TEST(test_several_in_flight_each_with_its_own_data),
        TEST(test_a_full_ring_is_busy_and_recovers),
        TEST(test_a_full_data_area_is_busy_and_recovers),
        TEST(test_a_blocking_call_keeps_completions_of_others_for_poll),
        TEST(test_direct_buffers_are_used_in_place),
        TEST(test_direct_operands_outside_their_buffer_are_refused),
        TEST(test_a_released_buffer_stays_until_its_request_ends),
        TEST(test_a_timeout_leaves_the_callers_memory_alone),
        TEST(test_late_requests_hold_their_place_in_the_ring),
        TEST(test_a_wait_that_times_out_keeps_the_request),
        TEST(test_sleeping_clients_are_woken_and_ring_the_bell),
        TEST(test_forged_completions_end_the_session_only),
        TEST(test_requests_of_a_lost_session_are_reported_once),
        TEST(test_a_drain_completes_what_was_accepted_and_takes_no_more),
    };
    return cmocka_run_group_tests_name("shm requests", tests, NULL, NULL);
}
