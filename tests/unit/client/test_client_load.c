/* test_client_load.c: loops over a transport of the test's own: each request ends once, in its window, and a
 * server that stops cannot hide it. */
#include "tests/unit/client/check.h"

#include <time.h>

#include "client/load.h"

enum { MAX_SLOTS = 64 };

/* How the transport behaves. */
struct behaviour {
    uint64_t service_ns; /* from submit to answer */
    uint64_t stall_at;   /* the request of this number (from 1) ... */
    uint64_t stall_ns;   /* ... stops the server for so long; requests sent meanwhile wait as well */
    uint64_t fail_every; /* of each so many requests one fails with `code` */
    uint32_t code;
    bool is_silent; /* never answers */
    bool cannot_open;
    _Atomic uint64_t submitted, answered, cancelled, opened, closed;
    _Atomic uint32_t in_flight, max_in_flight;
    _Atomic uint64_t blocked_until_ns;
};

struct fake_session {
    struct behaviour *behaviour;
    uint32_t slot_count;
    bool is_busy[MAX_SLOTS];
    uint64_t done_ns[MAX_SLOTS];
    uint32_t codes[MAX_SLOTS];
};

static dk_status fake_open(const void *context, uint32_t slot_count, void **out, struct dk_error *error)
{
    struct behaviour *behaviour = (struct behaviour *)(uintptr_t)context;
    if (behaviour->cannot_open && behaviour->opened == 1)
        return dk_fail(error, DK_UNAVAILABLE, "no session for %u", slot_count);
    struct fake_session *session = calloc(1, sizeof *session);
    assert_true(session && slot_count <= MAX_SLOTS);
    session->behaviour = behaviour;
    session->slot_count = slot_count;
    behaviour->opened++;
    *out = session;
    return DK_OK;
}

static void fake_close(void *opaque)
{
    struct fake_session *session = opaque;
    session->behaviour->closed++;
    free(session);
}

static void fake_submit(void *opaque, uint32_t slot)
{
    struct fake_session *session = opaque;
    struct behaviour *behaviour = session->behaviour;
    uint64_t number = ++behaviour->submitted, now_ns = dk_load_now_ns();
    if (slot >= session->slot_count || session->is_busy[slot])
        abort(); /* an assertion would jump out of this thread */
    uint32_t in_flight = ++behaviour->in_flight;
    if (in_flight > behaviour->max_in_flight)
        behaviour->max_in_flight = in_flight;
    if (number == behaviour->stall_at)
        behaviour->blocked_until_ns = now_ns + behaviour->stall_ns;
    uint64_t begin_ns = now_ns > behaviour->blocked_until_ns ? now_ns : behaviour->blocked_until_ns;
    session->is_busy[slot] = true;
    session->done_ns[slot] = begin_ns + behaviour->service_ns;
    session->codes[slot] =
        behaviour->fail_every && number % behaviour->fail_every == 0 ? behaviour->code : DK_OK;
}

static size_t fake_poll(void *opaque, uint64_t until_ns, struct dk_load_event *events, size_t capacity)
{
    struct fake_session *session = opaque;
    for (;;) {
        size_t count = 0;
        uint64_t now_ns = dk_load_now_ns();
        for (uint32_t i = 0; i < session->slot_count && count < capacity; i++)
            if (session->is_busy[i] && session->done_ns[i] <= now_ns && !session->behaviour->is_silent) {
                session->is_busy[i] = false;
                session->behaviour->in_flight--;
                session->behaviour->answered++;
                events[count++] = (struct dk_load_event){i, session->codes[i], now_ns, 100};
            }
        if (count > 0 || now_ns >= until_ns)
            return count;
        nanosleep(&(struct timespec){0, 20000}, NULL);
    }
}

static void fake_cancel(void *opaque, uint32_t slot)
{
    struct fake_session *session = opaque;
    session->is_busy[slot] = false;
    session->behaviour->in_flight--;
    session->behaviour->cancelled++;
}

static struct dk_load_transport transport_of(struct behaviour *behaviour)
{
    return (struct dk_load_transport){behaviour, fake_open, fake_close, fake_submit, fake_poll, fake_cancel};
}

static struct dk_load_result run(struct behaviour *behaviour, struct dk_load_plan plan)
{
    static struct dk_load_result result;
    struct dk_load_transport transport = transport_of(behaviour);
    struct dk_error error = {0};
    plan.transport = &transport;
    if (dk_load_run(&plan, &result, &error) != DK_OK)
        fail_msg("%s", error.message);
    assert_int_equal(behaviour->opened, plan.thread_count);
    assert_int_equal(behaviour->closed, plan.thread_count);
    assert_int_equal(behaviour->submitted, behaviour->answered + behaviour->cancelled);
    assert_true(behaviour->max_in_flight <= plan.slot_count);
    return result;
}

static void test_closed_loop_keeps_all_slots_busy_and_leaves_the_warm_up_out(void **state)
{
    (void)state;
    struct behaviour behaviour = {.service_ns = 1000000};
    struct dk_load_result result =
        run(&behaviour,
            (struct dk_load_plan){
                .thread_count = 2, .slot_count = 5, .warmup_s = 0.1, .duration_s = 0.2, .timeout_s = 5});
    assert_int_equal(behaviour.max_in_flight, 5);
    assert_true(result.codes[DK_OK] > 0 && result.codes[DK_OK] < behaviour.submitted);
    assert_int_equal(result.latency.count, result.codes[DK_OK]);
    assert_int_equal(result.kernel.count, result.codes[DK_OK]);
    assert_true(result.latency.min_ns >= behaviour.service_ns);
    assert_true(result.above_kernel.min_ns >= behaviour.service_ns - 100);
    assert_true(result.window_s > 0.19 && result.window_s < 0.21);
    assert_int_equal(result.failed_count, 0);
    assert_int_equal(result.unsent_count, 0);
}

static void test_failures_are_counted_by_code_and_not_timed(void **state)
{
    (void)state;
    struct behaviour behaviour = {.service_ns = 100000, .fail_every = 3, .code = 503};
    struct dk_load_result result =
        run(&behaviour,
            (struct dk_load_plan){
                .thread_count = 1, .slot_count = 1, .warmup_s = 0.001, .duration_s = 0.3, .timeout_s = 5});
    assert_true(result.codes[503] >= result.codes[DK_OK] / 2 - 1 && result.codes[503] > 1);
    assert_int_equal(result.failed_count, result.codes[503]);
    assert_int_equal(result.latency.count, result.codes[DK_OK]);
}

/* The server stops for 200 ms; constant arrivals every millisecond. In a closed loop one request would show
 * it. Here each arrival that came due meanwhile must: the first waited 200 ms, the last almost nothing. */
static void test_a_stall_is_seen_by_all_requests_that_were_due(void **state)
{
    (void)state;
    struct behaviour behaviour = {.service_ns = 10000, .stall_at = 100, .stall_ns = 200000000};
    struct dk_load_result result = run(&behaviour, (struct dk_load_plan){.thread_count = 1,
                                                                         .slot_count = 2,
                                                                         .rate = 1000,
                                                                         .arrivals = DK_ARRIVALS_CONSTANT,
                                                                         .warmup_s = 0.001,
                                                                         .duration_s = 0.5,
                                                                         .timeout_s = 5});
    assert_int_equal(result.codes[DK_OK] + result.unsent_count,
                     500); /* each arrival of the window, no other */
    assert_true(result.latency.max_ns >= 200000000);
    /* 400 of 500 arrivals may be quick, the 100 that came due in the first half of the stall may not. */
    assert_true(dk_latency_quantile(&result.latency, 0.82) >= 100e6);
    assert_true(result.max_late_ns >= 150000000);
    assert_true(behaviour.max_in_flight <= 2);
}

static void test_arrivals_that_were_never_sent_count_with_what_they_waited(void **state)
{
    (void)state;
    struct behaviour behaviour = {.service_ns = 50000000};
    struct dk_load_result result = run(&behaviour, (struct dk_load_plan){.thread_count = 1,
                                                                         .slot_count = 1,
                                                                         .rate = 1000,
                                                                         .arrivals = DK_ARRIVALS_CONSTANT,
                                                                         .warmup_s = 0.001,
                                                                         .duration_s = 0.3,
                                                                         .timeout_s = 5});
    uint64_t sent = result.codes[DK_OK] + result.failed_count;
    assert_true(sent <= 8 && result.unsent_count >= 292);
    assert_int_equal(sent + result.unsent_count, 300);
    assert_int_equal(result.latency.count, 300);
    assert_true(result.max_late_ns >= 250000000);
}

static void test_requests_without_an_answer_are_given_up(void **state)
{
    (void)state;
    struct behaviour behaviour = {.is_silent = true};
    struct dk_load_result result =
        run(&behaviour,
            (struct dk_load_plan){
                .thread_count = 1, .slot_count = 3, .warmup_s = 0.001, .duration_s = 0.3, .timeout_s = 0.05});
    assert_true(result.codes[DK_LOAD_NO_ANSWER] >= 3);
    assert_int_equal(result.failed_count, result.codes[DK_LOAD_NO_ANSWER]);
    assert_int_equal(result.latency.count, 0);
    assert_true(behaviour.cancelled >= 3);
}

static void test_a_transport_that_cannot_give_up_ends_all_the_same(void **state)
{
    (void)state;
    static struct dk_load_result result;
    struct behaviour behaviour = {.is_silent = true};
    struct dk_load_transport transport = transport_of(&behaviour);
    transport.cancel = NULL;
    const struct dk_load_plan plan = {.transport = &transport,
                                      .thread_count = 1,
                                      .slot_count = 2,
                                      .warmup_s = 0.001,
                                      .duration_s = 1, /* long enough for a thread that starts late */
                                      .timeout_s = 0.05};
    struct dk_error error;
    assert_int_equal(dk_load_run(&plan, &result, &error), DK_OK);
    assert_int_equal(behaviour.submitted, 2); /* their slots stay taken */
    assert_int_equal(result.codes[DK_OK], 0);
    assert_int_equal(result.failed_count, result.codes[DK_LOAD_NO_ANSWER]);
}

static void test_the_stop_flag_ends_a_run_early(void **state)
{
    (void)state;
    atomic_bool is_stopping = true;
    struct behaviour behaviour = {.service_ns = 1000};
    struct dk_load_result result = run(&behaviour, (struct dk_load_plan){.thread_count = 2,
                                                                         .slot_count = 2,
                                                                         .warmup_s = 0.001,
                                                                         .duration_s = 3600,
                                                                         .timeout_s = 5,
                                                                         .is_stopping = &is_stopping});
    assert_true(result.is_stopped);
    assert_true(result.window_s < 3600);
}

static void test_a_session_that_cannot_open_fails_the_run_and_closes_the_others(void **state)
{
    (void)state;
    static struct dk_load_result result;
    struct behaviour behaviour = {.cannot_open = true};
    struct dk_load_transport transport = transport_of(&behaviour);
    const struct dk_load_plan plan = {
        .transport = &transport, .thread_count = 3, .slot_count = 3, .duration_s = 1, .timeout_s = 1};
    struct dk_error error = {0};
    assert_int_equal(dk_load_run(&plan, &result, &error), DK_UNAVAILABLE);
    check_contains(error.message, "no session");
    assert_int_equal(behaviour.opened, 1);
    assert_int_equal(behaviour.closed, 1);
    assert_int_equal(behaviour.submitted, 0);
}

static void count_calls(void *context, const struct dk_load_plan *plan, double elapsed_s, uint64_t ok_count,
                        uint64_t failed_count)
{
    uint64_t *calls = context;
    assert_true(plan->slot_count == 1 && elapsed_s > 0 && failed_count == 0);
    calls[0]++;
    calls[1] = ok_count;
}

static void test_progress_is_reported_while_it_runs(void **state)
{
    (void)state;
    uint64_t calls[2] = {0};
    struct behaviour behaviour = {.service_ns = 100000};
    (void)run(&behaviour, (struct dk_load_plan){.thread_count = 1,
                                                .slot_count = 1,
                                                .warmup_s = 0.5,
                                                .duration_s = 1,
                                                .timeout_s = 5,
                                                .on_progress = count_calls,
                                                .progress_context = calls});
    assert_true(calls[0] >= 1);
    assert_true(calls[1] > 0 && calls[1] <= behaviour.answered);
}

static void test_codes_have_names(void **state)
{
    (void)state;
    static const struct {
        uint32_t code;
        const char *name;
    } rows[] = {{DK_BUSY, "BUSY"},
                {503, "503"},
                {DK_LOAD_CONNECTION, "CONNECTION"},
                {DK_LOAD_BAD_REPLY, "BAD_REPLY"},
                {DK_LOAD_NO_ANSWER, "NO_ANSWER"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char name[32];
        dk_load_code_name(rows[i].code, name);
        assert_string_equal(name, rows[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_closed_loop_keeps_all_slots_busy_and_leaves_the_warm_up_out),
        cmocka_unit_test(test_failures_are_counted_by_code_and_not_timed),
        cmocka_unit_test(test_a_stall_is_seen_by_all_requests_that_were_due),
        cmocka_unit_test(test_arrivals_that_were_never_sent_count_with_what_they_waited),
        cmocka_unit_test(test_requests_without_an_answer_are_given_up),
        cmocka_unit_test(test_a_transport_that_cannot_give_up_ends_all_the_same),
        cmocka_unit_test(test_the_stop_flag_ends_a_run_early),
        cmocka_unit_test(test_a_session_that_cannot_open_fails_the_run_and_closes_the_others),
        cmocka_unit_test(test_progress_is_reported_while_it_runs),
        cmocka_unit_test(test_codes_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
