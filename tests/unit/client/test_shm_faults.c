/* test_shm_faults.c: requests that are late, sessions that end under them, and answers that no daemon sends.
 */
#include "tests/unit/client/shm_fixture.h"

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
    usleep(30000); /* more than there is between two looks at the socket */
    assert_int_equal(dk_client_poll(client, &completion, 1), 0);
    assert_int_equal(submit(a, c, 1, NULL, &error), DK_UNAVAILABLE);
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
        TEST(test_a_timeout_leaves_the_callers_memory_alone),
        TEST(test_late_requests_hold_their_place_in_the_ring),
        TEST(test_a_wait_that_times_out_keeps_the_request),
        TEST(test_sleeping_clients_are_woken_and_ring_the_bell),
        TEST(test_forged_completions_end_the_session_only),
        TEST(test_requests_of_a_lost_session_are_reported_once),
        TEST(test_a_drain_completes_what_was_accepted_and_takes_no_more),
    };
    return cmocka_run_group_tests_name("shm faults", tests, NULL, NULL);
}
