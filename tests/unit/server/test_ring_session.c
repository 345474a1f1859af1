/* test_ring_session.c: what the executor makes of a ring: answers, order, turns, ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "server/clock.h"
#include "server/shm_models.h"
#include "tests/unit/server/ring_fixture.h"

static int setup(void **state)
{
    static struct ring_fixture fixture;
    *state = &fixture;
    return ring_fixture_init(&fixture) ? 0 : -1;
}

static int teardown(void **state)
{
    ring_fixture_deinit(*state);
    return 0;
}

/* As many turns as it takes: a turn ends early when the machine is slow. */
static enum dk_shm_turn turn(struct ring_fixture *f)
{
    enum dk_shm_turn result;
    do {
        result = dk_shm_session_turn(&f->session, &f->launcher, 16, &f->now_ns);
    } while (result == DK_SHM_WORKED && dk_shm_session_has_work(&f->session));
    return result;
}

static void fill_rows(struct ring_fixture *f, uint32_t rows)
{
    for (uint32_t i = 0; i < rows * RING_K; i++) {
        ring_floats(f, 0)[i] = (float)(i / RING_K + 1); /* row r: r+1 four times */
    }
    memset(ring_floats(f, 4096), 0x7f, 4096);
}

/* Row r of the result is (r+1) * 4 * factor * (1, 2, 3), and nothing behind the last row is touched. */
static void assert_rows(struct ring_fixture *f, uint32_t rows, float factor)
{
    const float *c = ring_floats(f, 4096);
    for (uint32_t i = 0; i < rows * RING_N; i++) {
        assert_true(c[i] == (float)(i / RING_N + 1) * 4 * factor * (float)(i % RING_N + 1));
    }
    assert_memory_equal(&c[rows * RING_N], "\x7f\x7f\x7f\x7f", 4);
}

static struct dk_ring_completion run(struct ring_fixture *f, const struct dk_ring_submission *submission)
{
    struct dk_ring_completion completion = {0};
    ring_put(f, submission);
    ring_publish(f);
    assert_int_equal(turn(f), DK_SHM_WORKED);
    assert_true(ring_take(f, &completion));
    return completion;
}

static void test_request_is_computed_and_completed(void **state)
{
    struct ring_fixture *f = *state;
    struct dk_ring_submission request = ring_request(f, 42);
    fill_rows(f, 1);
    assert_int_equal(turn(f), DK_SHM_IDLE);
    struct dk_ring_completion completion = run(f, &request);
    assert_int_equal(completion.user_data, 42);
    assert_int_equal(completion.status, DK_OK);
    assert_int_equal(completion.piece_count, 1);
    assert_int_equal(completion.bucket_rows, 1);
    assert_int_equal(completion.model_version, 1);
    assert_true(completion.kernel_ns > 0);
    assert_int_equal(completion.queue_ns, 0); /* not stamped */
    assert_rows(f, 1, 1);
    assert_int_equal(turn(f), DK_SHM_IDLE);
}

static void test_c13_no_rows_complete_and_touch_nothing(void **state)
{
    struct ring_fixture *f = *state;
    struct dk_ring_submission request = ring_request(f, 1);
    request.rows = 0;
    request.a_offset = RING_DATA_BYTES; /* the end is a place for nothing */
    fill_rows(f, 1);
    struct dk_ring_completion completion = run(f, &request);
    assert_int_equal(completion.status, DK_OK);
    assert_int_equal(completion.piece_count, 0);
    assert_rows(f, 0, 1);
}

static void test_many_rows_are_cut_into_pieces_and_turns(void **state)
{
    struct ring_fixture *f = *state;
    struct dk_ring_submission request = ring_request(f, 5);
    struct dk_ring_completion completion;
    request.rows = 11;
    fill_rows(f, 11);
    ring_put(f, &request);
    ring_publish(f);
    for (int piece = 0; piece < 2; piece++) { /* one piece a turn: others can have theirs between */
        assert_int_equal(dk_shm_session_turn(&f->session, &f->launcher, 1, &f->now_ns), DK_SHM_WORKED);
        assert_false(ring_take(f, &completion));
        assert_true(dk_shm_session_has_work(&f->session));
    }
    assert_int_equal(dk_shm_session_turn(&f->session, &f->launcher, 1, &f->now_ns), DK_SHM_WORKED);
    assert_true(ring_take(f, &completion));
    assert_int_equal(completion.status, DK_OK);
    assert_int_equal(completion.piece_count, 3);
    assert_rows(f, 11, 1);
    assert_false(dk_shm_session_has_work(&f->session));
}

static void test_order_is_kept_and_indices_wrap(void **state)
{
    struct ring_fixture *f = *state;
    f->session.submission_head = f->session.submission_tail = f->tail = UINT32_MAX - 2;
    f->session.completion_head = f->session.completion_tail = f->head = UINT32_MAX - 2;
    ring_publish(f);
    dk_ring_publish_completions(f->session.ring.header, f->head);
    dk_ring_release_completions(f->session.ring.header, f->head);
    fill_rows(f, 1);
    uint64_t next = 0;
    for (int round = 0; round < 5; round++) {
        for (uint64_t i = 0; i < RING_ENTRIES; i++) {
            struct dk_ring_submission request = ring_request(f, (uint64_t)round * RING_ENTRIES + i);
            ring_put(f, &request);
        }
        ring_publish(f);
        assert_int_equal(turn(f), DK_SHM_WORKED);
        struct dk_ring_completion completion;
        while (ring_take(f, &completion)) {
            assert_int_equal(completion.user_data, next++);
            assert_int_equal(completion.status, DK_OK);
        }
    }
    assert_int_equal(next, 5 * RING_ENTRIES);
}

static void test_turn_ends_after_its_share(void **state)
{
    struct ring_fixture *f = *state;
    struct dk_ring_submission request = ring_request(f, 0);
    struct dk_ring_completion completion;
    for (int i = 0; i < 3; i++) {
        ring_put(f, &request);
    }
    ring_publish(f);
    assert_int_equal(dk_shm_session_turn(&f->session, &f->launcher, 2, &f->now_ns), DK_SHM_WORKED);
    assert_true(ring_take(f, &completion));
    (void)ring_take(f, &completion); /* not there when the first took long */
    assert_false(ring_take(f, &completion));
    assert_true(dk_shm_session_has_work(&f->session));
}

/* The clock that a turn begins with is old: the first piece already passes the limit. */
static void test_turn_ends_after_a_long_piece(void **state)
{
    struct ring_fixture *f = *state;
    struct dk_ring_submission request = ring_request(f, 0);
    struct dk_ring_completion completion;
    request.rows = 12; /* three pieces */
    ring_put(f, &request);
    ring_publish(f);
    assert_int_equal(dk_shm_session_turn(&f->session, &f->launcher, 1, &f->now_ns), DK_SHM_WORKED);
    f->now_ns = 0;
    assert_int_equal(dk_shm_session_turn(&f->session, &f->launcher, 16, &f->now_ns), DK_SHM_WORKED);
    assert_false(ring_take(f, &completion));
    assert_int_equal(turn(f), DK_SHM_WORKED);
    assert_true(ring_take(f, &completion));
    assert_int_equal(completion.piece_count, 3);
}

static void test_sleeping_client_has_its_flag_taken(void **state)
{
    struct ring_fixture *f = *state;
    struct dk_ring_submission request = ring_request(f, 0);
    assert_true(dk_ring_announce_wait(f->session.ring.header, 0));
    (void)run(f, &request);
    assert_int_equal(atomic_load(&f->session.ring.header->client_waits), 0);
}

static void test_request_uses_the_version_of_its_moment(void **state)
{
    struct ring_fixture *f = *state;
    struct dk_ring_submission request = ring_request(f, 0);
    uint32_t id;
    fill_rows(f, 1);
    assert_int_equal(run(f, &request).model_version, 1);
    assert_int_equal(dk_shm_models_push(f->session.models, ring_model_new(f->engine, "m", 2), &id, NULL),
                     DK_OK);
    assert_int_equal(id, f->model_id);
    assert_int_equal(run(f, &request).model_version, 2);
    assert_rows(f, 1, 2);
}

/* A request that is half done keeps its version, and the memory of it, when it is replaced between two turns.
 */
static void test_half_done_request_keeps_its_version(void **state)
{
    struct ring_fixture *f = *state;
    struct dk_ring_submission request = ring_request(f, 0);
    struct dk_ring_completion completion;
    uint32_t id;
    request.rows = 6;
    fill_rows(f, 6);
    ring_put(f, &request);
    ring_publish(f);
    assert_int_equal(dk_shm_session_turn(&f->session, &f->launcher, 1, &f->now_ns), DK_SHM_WORKED);
    assert_int_equal(dk_shm_models_push(f->session.models, ring_model_new(f->engine, "m", 2), &id, NULL),
                     DK_OK);
    assert_int_equal(turn(f), DK_SHM_WORKED);
    assert_true(ring_take(f, &completion));
    assert_int_equal(completion.model_version, 1);
    assert_rows(f, 6, 1);
}

static void test_late_request_expires(void **state)
{
    struct ring_fixture *f = *state;
    struct dk_ring_submission request = ring_request(f, 0);
    request.submitted_ns = dk_clock_now_ns() - 3000000;
    request.timeout_us = 2000;
    struct dk_ring_completion completion = run(f, &request);
    assert_int_equal(completion.status, DK_TIMEOUT);
    assert_int_equal(completion.detail, DK_RING_DETAIL_EXPIRED);
    request.timeout_us = 60u * 1000 * 1000;
    assert_int_equal(run(f, &request).status, DK_OK);
    request.submitted_ns = UINT64_MAX; /* a clock that runs ahead: not late */
    assert_int_equal(run(f, &request).status, DK_OK);
}

static void test_client_cannot_claim_to_have_waited_longer_than_possible(void **state)
{
    struct ring_fixture *f = *state;
    struct dk_ring_submission request = ring_request(f, 0);
    request.submitted_ns = 1;
    f->now_ns = dk_clock_now_ns();
    assert_int_equal(turn(f), DK_SHM_IDLE); /* seen empty now */
    uint64_t empty_ns = f->now_ns;
    struct dk_ring_completion completion = run(f, &request);
    assert_true(completion.queue_ns <= dk_clock_now_ns() - empty_ns);
    request.submitted_ns = UINT64_MAX;
    assert_int_equal(run(f, &request).queue_ns, 0);
}

static void test_close_serves_what_was_submitted_and_refuses_the_rest(void **state)
{
    struct ring_fixture *f = *state;
    struct dk_ring_completion completion;
    struct dk_ring_submission request = ring_request(f, 1);
    ring_put(f, &request);
    ring_publish(f);
    dk_shm_session_close(&f->session);
    assert_int_equal(dk_ring_server_state(f->session.ring.header), DK_RING_CLOSING);
    assert_false(dk_shm_session_is_done(&f->session));
    ring_put(f, &request);
    ring_publish(f);
    dk_shm_session_close(&f->session); /* again: the moment stays */
    assert_int_equal(turn(f), DK_SHM_WORKED);
    assert_true(ring_take(f, &completion));
    assert_int_equal(completion.status, DK_OK);
    assert_true(ring_take(f, &completion));
    assert_int_equal(completion.status, DK_UNAVAILABLE);
    assert_int_equal(completion.detail, DK_RING_DETAIL_CLOSING);
    assert_true(dk_shm_session_is_done(&f->session));
    dk_shm_session_end(&f->session);
    assert_int_equal(dk_ring_server_state(f->session.ring.header), DK_RING_CLOSED);
}

static void expect_broken(struct ring_fixture *f, const char *reason)
{
    assert_int_equal(turn(f), DK_SHM_BROKEN);
    assert_int_equal(f->session.broken_status, DK_BAD_REQUEST);
    if (strstr(f->session.broken.message, reason) == NULL) {
        fail_msg("'%s' does not say '%s'", f->session.broken.message, reason);
    }
}

static void test_tail_that_runs_ahead_breaks_the_session(void **state)
{
    struct ring_fixture *f = *state;
    f->tail = RING_ENTRIES + 1;
    ring_publish(f);
    expect_broken(f, "runs ahead of what the ring holds (by 1;");
}

static void test_tail_that_goes_back_breaks_the_session(void **state)
{
    struct ring_fixture *f = *state;
    struct dk_ring_submission request = ring_request(f, 1);
    (void)run(f, &request);
    f->tail = 0;
    ring_publish(f);
    expect_broken(f, "runs ahead");
}

static void test_more_in_flight_than_entries_breaks_the_session(void **state)
{
    struct ring_fixture *f = *state;
    struct dk_ring_submission request = ring_request(f, 1);
    for (int i = 0; i < RING_ENTRIES; i++) {
        ring_put(f, &request);
    }
    ring_publish(f);
    assert_int_equal(turn(f), DK_SHM_WORKED);
    ring_put(f, &request); /* and no completion was released */
    ring_publish(f);
    expect_broken(f, "more requests than entries are in flight");
}

static void test_head_beyond_the_completions_breaks_the_session(void **state)
{
    struct ring_fixture *f = *state;
    struct dk_ring_submission request = ring_request(f, 1);
    for (int i = 0; i < RING_ENTRIES; i++) {
        ring_put(f, &request);
    }
    ring_publish(f);
    assert_int_equal(turn(f), DK_SHM_WORKED);
    dk_ring_release_completions(f->session.ring.header, RING_ENTRIES + 7);
    ring_put(f, &request);
    ring_publish(f);
    expect_broken(f, "completion_head is beyond the last completion (by 7;");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_request_is_computed_and_completed),
        TEST(test_c13_no_rows_complete_and_touch_nothing),
        TEST(test_many_rows_are_cut_into_pieces_and_turns),
        TEST(test_order_is_kept_and_indices_wrap),
        TEST(test_turn_ends_after_its_share),
        TEST(test_turn_ends_after_a_long_piece),
        TEST(test_sleeping_client_has_its_flag_taken),
        TEST(test_request_uses_the_version_of_its_moment),
        TEST(test_half_done_request_keeps_its_version),
        TEST(test_late_request_expires),
        TEST(test_client_cannot_claim_to_have_waited_longer_than_possible),
        TEST(test_close_serves_what_was_submitted_and_refuses_the_rest),
        TEST(test_tail_that_runs_ahead_breaks_the_session),
        TEST(test_tail_that_goes_back_breaks_the_session),
        TEST(test_more_in_flight_than_entries_breaks_the_session),
        TEST(test_head_beyond_the_completions_breaks_the_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
