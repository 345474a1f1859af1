/* test_client_load_schedule.c: arrivals have the asked rate and distribution, and streams add up. */
#include "tests/unit/client/check.h"

#include <math.h>

#include "client/load_schedule.h"

enum { ARRIVAL_COUNT = 200000 };

static void test_constant_streams_interleave_to_even_distances(void **state)
{
    (void)state;
    enum { STREAMS = 4 };
    struct dk_load_schedule streams[STREAMS];
    for (uint32_t i = 0; i < STREAMS; i++)
        dk_load_schedule_init(&streams[i], DK_ARRIVALS_CONSTANT, 1e6, i, STREAMS, 1);
    for (uint64_t i = 0; i < 1000; i++) {
        assert_int_equal(dk_load_schedule_peek(&streams[i % STREAMS]), i * 1000);
        dk_load_schedule_advance(&streams[i % STREAMS]);
    }
}

static void test_constant_arrivals_do_not_drift(void **state)
{
    (void)state;
    struct dk_load_schedule schedule;
    dk_load_schedule_init(&schedule, DK_ARRIVALS_CONSTANT, 3, 0, 1, 1);
    for (uint64_t i = 0; i < 3 * 100000; i++)
        dk_load_schedule_advance(&schedule);
    double error_ns = fabs((double)dk_load_schedule_peek(&schedule) - 100000e9);
    assert_true(error_ns < 1e5); /* 1e-9 of the time */
}

/* An exponential has its mean as deviation, and 1 - 1/e of its values below the mean. */
static void test_poisson_distances_are_exponential(void **state)
{
    (void)state;
    struct dk_load_schedule schedule;
    double sum = 0, square_sum = 0, before = 0;
    uint32_t below_count = 0;
    dk_load_schedule_init(&schedule, DK_ARRIVALS_POISSON, 2e5, 1, 2, 7); /* half of 2e5 a second: 1e4 ns */
    for (int i = 0; i < ARRIVAL_COUNT; i++) {
        double at = (double)dk_load_schedule_peek(&schedule), distance = at - before;
        assert_true(distance >= 0);
        sum += distance;
        square_sum += distance * distance;
        below_count += distance < 1e4;
        before = at;
        dk_load_schedule_advance(&schedule);
    }
    double mean = sum / ARRIVAL_COUNT, deviation = sqrt(square_sum / ARRIVAL_COUNT - mean * mean);
    assert_true(fabs(mean / 1e4 - 1) < 0.02);
    assert_true(fabs(deviation / 1e4 - 1) < 0.02);
    assert_true(fabs(below_count / (double)ARRIVAL_COUNT - (1 - exp(-1))) < 0.01);
}

static void test_seeds_and_streams_separate_schedules(void **state)
{
    (void)state;
    struct dk_load_schedule a, same, other_seed, other_stream;
    dk_load_schedule_init(&a, DK_ARRIVALS_POISSON, 10, 0, 2, 1);
    dk_load_schedule_init(&same, DK_ARRIVALS_POISSON, 10, 0, 2, 1);
    dk_load_schedule_init(&other_seed, DK_ARRIVALS_POISSON, 10, 0, 2, 2);
    dk_load_schedule_init(&other_stream, DK_ARRIVALS_POISSON, 10, 1, 2, 1);
    assert_int_equal(dk_load_schedule_peek(&a), dk_load_schedule_peek(&same));
    assert_int_not_equal(dk_load_schedule_peek(&a), dk_load_schedule_peek(&other_seed));
    assert_int_not_equal(dk_load_schedule_peek(&a), dk_load_schedule_peek(&other_stream));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constant_streams_interleave_to_even_distances),
        cmocka_unit_test(test_constant_arrivals_do_not_drift),
        cmocka_unit_test(test_poisson_distances_are_exponential),
        cmocka_unit_test(test_seeds_and_streams_separate_schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
