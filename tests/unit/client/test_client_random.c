/* test_client_random.c: seeded values are fixed, separate by stream, and about normal. */
#include "tests/unit/client/check.h"

#include <math.h>

#include "client/random.h"

static void test_sequence_is_xoshiro256_starstar(void **state)
{
    (void)state;
    /* From state {1, 2, 3, 4}: the first outputs that follow from the published recurrence by hand. */
    struct dk_random random = {{1, 2, 3, 4}};
    assert_int_equal(dk_random_u64(&random), 11520);
    assert_int_equal(dk_random_u64(&random), 0);
    assert_int_equal(dk_random_u64(&random), 1509978240);
}

static void test_seed_and_stream_decide_the_values(void **state)
{
    (void)state;
    struct dk_random a, b, c, d;
    dk_random_init(&a, 7, 0);
    dk_random_init(&b, 7, 0);
    dk_random_init(&c, 7, 1);
    dk_random_init(&d, 8, 0);
    uint64_t first = dk_random_u64(&a);
    assert_int_equal(first, dk_random_u64(&b));
    assert_true(first != dk_random_u64(&c));
    assert_true(first != dk_random_u64(&d));
}

static void test_normal_values_are_exact_multiples_with_unit_variance(void **state)
{
    (void)state;
    enum { COUNT = 200000 };
    struct dk_random random;
    dk_random_init(&random, 1, 0);
    double sum = 0, squares = 0;
    int beyond_two = 0;
    for (int i = 0; i < COUNT; i++) {
        double value = dk_random_normal(&random);
        assert_true(fabs(value) <= 6.0);
        assert_true(value * 65536.0 == floor(value * 65536.0));
        sum += value;
        squares += value * value;
        beyond_two += fabs(value) > 2.0;
    }
    /* Fixed seed: these cannot flicker. 5 standard errors of mean and variance; 4.55 % beyond two sigma. */
    assert_true(fabs(sum / COUNT) < 5.0 / sqrt((double)COUNT));
    assert_true(fabs(squares / COUNT - 1.0) < 5.0 * sqrt(2.0 / COUNT));
    assert_in_range(beyond_two, COUNT * 42 / 1000, COUNT * 48 / 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequence_is_xoshiro256_starstar),
        cmocka_unit_test(test_seed_and_stream_decide_the_values),
        cmocka_unit_test(test_normal_values_are_exact_multiples_with_unit_variance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
