/* test_bucket.c: m -> bucket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/backend.h"
#include "kernels/bucket.h"

static void test_buckets_double_and_later_grow_in_smaller_steps(void **state)
{
    (void)state;
    assert_int_equal(dk_bucket_count(1), 1);
    assert_int_equal(dk_bucket_count(2), 2);
    assert_int_equal(dk_bucket_count(3), 3);  /* rounded up to 4 */
    assert_int_equal(dk_bucket_count(33), 7); /* rounded up to 48 */
    assert_int_equal(dk_bucket_count(4096), 25);
    assert_int_equal(dk_bucket_count(65536), DK_MAX_BUCKETS);
    assert_int_equal(dk_bucket_rows(0), 1);
    assert_int_equal(dk_bucket_rows(5), 32);
    assert_int_equal(dk_bucket_rows(24), 4096);
    for (uint32_t i = 1; i < DK_MAX_BUCKETS; i++)
        assert_in_range(dk_bucket_rows(i), dk_bucket_rows(i - 1) + 1, 2 * dk_bucket_rows(i - 1));
}

static void test_smallest_bucket_that_holds_m(void **state)
{
    (void)state;
    for (uint64_t m = 1; m <= 65536; m++) {
        uint32_t index = dk_bucket_index(m, DK_MAX_BUCKETS);
        assert_true(index < DK_MAX_BUCKETS);
        assert_true(dk_bucket_rows(index) >= m);
        assert_true(index == 0 || dk_bucket_rows(index - 1) < m);
    }
}

static void test_no_bucket_for_none_or_too_many_rows(void **state)
{
    (void)state;
    assert_int_equal(dk_bucket_index(0, 25), UINT32_MAX);
    assert_int_equal(dk_bucket_index(4096, 25), 24);
    assert_int_equal(dk_bucket_index(4097, 25), UINT32_MAX);
    assert_int_equal(dk_bucket_index(UINT64_MAX, DK_MAX_BUCKETS), UINT32_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets_double_and_later_grow_in_smaller_steps),
        cmocka_unit_test(test_smallest_bucket_that_holds_m),
        cmocka_unit_test(test_no_bucket_for_none_or_too_many_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
