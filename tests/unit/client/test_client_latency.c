/* test_client_latency.c: quantiles are within the promised error, merging loses nothing, extremes are exact.
 */
#include "tests/unit/client/check.h"

#include <math.h>

#include "client/latency.h"
#include "client/random.h"

enum { SAMPLE_COUNT = 20000 };
/* Half of a bucket of 1/128 of an octave. */
static const double promised = 0.004;

static int compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static void check_near(double found, uint64_t expected)
{
    double error = fabs(found - (double)expected);
    if (!(error <= promised * (double)expected))
        fail_msg("%.17g is not within 0.4 %% of %llu", found, (unsigned long long)expected);
}

/* Values over nine decades: uniform in the exponent. */
static void fill(uint64_t *values, size_t count, uint64_t seed)
{
    struct dk_random random;
    dk_random_init(&random, seed, 0);
    for (size_t i = 0; i < count; i++)
        values[i] = dk_random_u64(&random) >> (25 + dk_random_u64(&random) % 39);
}

static void test_quantiles_are_within_the_promised_error(void **state)
{
    (void)state;
    static uint64_t values[SAMPLE_COUNT];
    static struct dk_latency latency;
    static const double quantiles[] = {0.0001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999};
    fill(values, SAMPLE_COUNT, 1);
    for (size_t i = 0; i < SAMPLE_COUNT; i++)
        dk_latency_record(&latency, values[i]);
    qsort(values, SAMPLE_COUNT, sizeof *values, compare);
    for (size_t i = 0; i < sizeof quantiles / sizeof quantiles[0]; i++) {
        size_t rank = (size_t)ceil(quantiles[i] * SAMPLE_COUNT);
        check_near(dk_latency_quantile(&latency, quantiles[i]), values[rank - 1]);
    }
    assert_true(dk_latency_quantile(&latency, 0) == (double)values[0]);
    assert_true(dk_latency_quantile(&latency, 1) == (double)values[SAMPLE_COUNT - 1]);
}

/* Every border of a bucket, from both sides. */
static void test_each_value_alone_comes_back_near(void **state)
{
    (void)state;
    static struct dk_latency latency;
    for (uint32_t log2 = 0; log2 < DK_LATENCY_MAX_LOG2; log2++)
        for (uint64_t part = 0; part < 256; part++)
            for (uint64_t side = 0; side <= 1; side++) {
                uint64_t value = (1ull << log2) + (part << log2) / 256 - side;
                memset(&latency, 0, sizeof latency);
                dk_latency_record(&latency, 0);
                dk_latency_record(&latency, value);
                dk_latency_record(&latency, UINT64_MAX >> 1);
                check_near(dk_latency_quantile(&latency, 0.5), value);
            }
}

static void test_values_below_256_are_exact(void **state)
{
    (void)state;
    static struct dk_latency latency;
    for (uint64_t value = 0; value < DK_LATENCY_EXACT; value++)
        dk_latency_record(&latency, value);
    for (uint32_t value = 0; value < DK_LATENCY_EXACT; value++)
        assert_true(dk_latency_quantile(&latency, (value + 1.0) / DK_LATENCY_EXACT) == value);
}

static void test_a_quantile_is_a_value_that_so_many_do_not_exceed(void **state)
{
    (void)state;
    static struct dk_latency latency;
    for (uint64_t i = 1; i <= 100; i++)
        dk_latency_record(&latency, i);
    assert_true(dk_latency_quantile(&latency, 0.5) == 50);
    assert_true(dk_latency_quantile(&latency, 0.501) == 51);
    assert_true(dk_latency_quantile(&latency, 0.99) == 99);
    assert_true(dk_latency_quantile(&latency, 0.999) == 100);
}

static void test_merging_is_recording_in_one_place(void **state)
{
    (void)state;
    static uint64_t values[SAMPLE_COUNT];
    static struct dk_latency whole, parts[3], merged;
    fill(values, SAMPLE_COUNT, 2);
    values[7] = 1ull << 50; /* one that overflows */
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        dk_latency_record(&whole, values[i]);
        dk_latency_record(&parts[i % 2], values[i]); /* the third part stays empty */
    }
    for (size_t i = 0; i < 3; i++)
        dk_latency_merge(&merged, &parts[i]);
    assert_memory_equal(&merged, &whole, sizeof whole);
}

static void test_overflow_is_counted_and_seen_as_the_maximum(void **state)
{
    (void)state;
    static struct dk_latency latency;
    uint64_t longest = (1ull << DK_LATENCY_MAX_LOG2) + 12345;
    dk_latency_record(&latency, (1ull << DK_LATENCY_MAX_LOG2) - 1);
    assert_int_equal(latency.overflow_count, 0);
    dk_latency_record(&latency, 1ull << DK_LATENCY_MAX_LOG2);
    dk_latency_record(&latency, longest);
    assert_int_equal(latency.overflow_count, 2);
    assert_int_equal(latency.count, 3);
    assert_true(dk_latency_quantile(&latency, 0.9) == (double)longest);
    assert_true(dk_latency_quantile(&latency, 0.5) == (double)longest); /* in the overflow: at most that */
}

static void test_no_values_have_no_quantile_and_no_mean(void **state)
{
    (void)state;
    static struct dk_latency latency;
    assert_true(isnan(dk_latency_quantile(&latency, 0.5)));
    assert_true(isnan(dk_latency_mean(&latency)));
    dk_latency_record(&latency, 3);
    dk_latency_record(&latency, 4);
    assert_true(dk_latency_mean(&latency) == 3.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantiles_are_within_the_promised_error),
        cmocka_unit_test(test_each_value_alone_comes_back_near),
        cmocka_unit_test(test_values_below_256_are_exact),
        cmocka_unit_test(test_a_quantile_is_a_value_that_so_many_do_not_exceed),
        cmocka_unit_test(test_merging_is_recording_in_one_place),
        cmocka_unit_test(test_overflow_is_counted_and_seen_as_the_maximum),
        cmocka_unit_test(test_no_values_have_no_quantile_and_no_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
