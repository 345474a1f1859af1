/* test_shm_requests.c: requests over the ring: blocking, in flight, in pieces, in direct buffers. */
#include "tests/unit/client/shm_fixture.h"

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
    };
    return cmocka_run_group_tests_name("shm requests", tests, NULL, NULL);
}
