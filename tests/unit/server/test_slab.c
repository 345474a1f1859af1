/* test_slab.c: size classes, exhaustion, growth and reuse of the preallocated slabs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>

#include "server/slab.h"

static const struct dk_slab_class_size sizes[DK_SLAB_CLASS_COUNT] = {
    [DK_SLAB_TINY] = {.bytes = 100, .count = 4},
    [DK_SLAB_SMALL] = {.bytes = 1000, .count = 2},
    [DK_SLAB_LARGE] = {.bytes = 10000, .count = 1},
};

static int setup(void **state)
{
    struct dk_slabs *slabs = NULL;
    assert_int_equal(dk_slabs_new(sizes, NULL, &slabs, NULL), DK_OK);
    *state = slabs;
    return 0;
}

static int teardown(void **state)
{
    dk_slabs_free(*state);
    return 0;
}

static void test_slabs_are_aligned_and_apart(void **state)
{
    struct dk_slab *slabs[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(dk_slab_acquire(*state, 100, &slabs[i], NULL), DK_OK);
        assert_int_equal((uintptr_t)slabs[i]->data % DK_SLAB_ALIGNMENT, 0);
        assert_true(slabs[i]->bytes >= 100);
        memset(slabs[i]->data, i, slabs[i]->bytes);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(slabs[i]->data[0], i);
        assert_int_equal(slabs[i]->data[slabs[i]->bytes - 1], i);
        dk_slab_release(*state, slabs[i]);
    }
}

static void test_smallest_class_that_fits_is_taken(void **state)
{
    static const struct {
        size_t bytes;
        enum dk_slab_class expected;
    } cases[] = {{0, DK_SLAB_TINY},     {1, DK_SLAB_TINY},     {128, DK_SLAB_TINY},   {129, DK_SLAB_SMALL},
                 {1024, DK_SLAB_SMALL}, {1025, DK_SLAB_LARGE}, {10048, DK_SLAB_LARGE}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dk_slab *slab = NULL;
        assert_int_equal(dk_slab_acquire(*state, cases[i].bytes, &slab, NULL), DK_OK);
        assert_int_equal(slab->class_index, cases[i].expected);
        dk_slab_release(*state, slab);
    }
}

static void test_used_up_class_returns_busy_and_takes_no_larger_one(void **state)
{
    struct dk_slab *first, *second, *third = NULL;
    struct dk_error error;
    assert_int_equal(dk_slab_acquire(*state, 500, &first, NULL), DK_OK);
    assert_int_equal(dk_slab_acquire(*state, 500, &second, NULL), DK_OK);
    assert_int_equal(dk_slab_acquire(*state, 500, &third, &error), DK_BUSY);
    assert_null(third);
    assert_non_null(strstr(error.message, "2"));
    assert_int_equal(dk_slabs_used(*state, DK_SLAB_SMALL), 2);
    assert_int_equal(dk_slabs_used(*state, DK_SLAB_LARGE), 0);
    dk_slab_release(*state, first);
    assert_int_equal(dk_slab_acquire(*state, 500, &third, NULL), DK_OK);
    dk_slab_release(*state, second);
    dk_slab_release(*state, third);
}

static void test_more_than_the_largest_class_is_too_large(void **state)
{
    struct dk_slab *slab = NULL;
    struct dk_error error;
    assert_int_equal(dk_slab_acquire(*state, 10049, &slab, &error), DK_TOO_LARGE);
    assert_null(slab);
    assert_non_null(strstr(error.message, "10049"));
    assert_int_equal(dk_slab_acquire(*state, SIZE_MAX, &slab, NULL), DK_TOO_LARGE);
}

static void test_grow_keeps_the_content(void **state)
{
    struct dk_slab *slab = NULL;
    assert_int_equal(dk_slab_grow(*state, &slab, 0, 50, NULL), DK_OK);
    memset(slab->data, 7, 50);
    struct dk_slab *before = slab;
    assert_int_equal(dk_slab_grow(*state, &slab, 50, 120, NULL), DK_OK);
    assert_ptr_equal(slab, before);
    assert_int_equal(dk_slab_grow(*state, &slab, 50, 5000, NULL), DK_OK);
    assert_int_equal(slab->class_index, DK_SLAB_LARGE);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(slab->data[i], 7);
    }
    assert_int_equal(dk_slabs_used(*state, DK_SLAB_TINY), 0);
    dk_slab_release(*state, slab);
}

static void test_failed_growth_leaves_the_slab_as_it_was(void **state)
{
    struct dk_slab *large, *slab = NULL;
    assert_int_equal(dk_slab_acquire(*state, 5000, &large, NULL), DK_OK);
    assert_int_equal(dk_slab_grow(*state, &slab, 0, 50, NULL), DK_OK);
    struct dk_slab *before = slab;
    assert_int_equal(dk_slab_grow(*state, &slab, 50, 5000, NULL), DK_BUSY);
    assert_ptr_equal(slab, before);
    assert_int_equal(dk_slab_grow(*state, &slab, 50, 50000, NULL), DK_TOO_LARGE);
    assert_ptr_equal(slab, before);
    dk_slab_release(*state, slab);
    dk_slab_release(*state, large);
}

static void test_released_slab_is_the_next_one_taken(void **state)
{
    struct dk_slab *first, *second;
    assert_int_equal(dk_slab_acquire(*state, 10, &first, NULL), DK_OK);
    dk_slab_release(*state, first);
    assert_int_equal(dk_slab_acquire(*state, 10, &second, NULL), DK_OK);
    assert_ptr_equal(first, second); /* its pages are warm, and no new ones become resident */
    dk_slab_release(*state, second);
}

static void test_class_without_slabs_is_skipped(void **state)
{
    (void)state;
    const struct dk_slab_class_size no_small[DK_SLAB_CLASS_COUNT] = {
        [DK_SLAB_TINY] = {.bytes = 64, .count = 1},
        [DK_SLAB_SMALL] = {.bytes = 128, .count = 0},
        [DK_SLAB_LARGE] = {.bytes = 32, .count = 1}, /* raised to its predecessor */
    };
    struct dk_slabs *slabs;
    struct dk_slab *slab;
    assert_int_equal(dk_slabs_new(no_small, NULL, &slabs, NULL), DK_OK);
    assert_int_equal(dk_slab_acquire(slabs, 100, &slab, NULL), DK_OK);
    assert_int_equal(slab->class_index, DK_SLAB_LARGE);
    assert_int_equal(slab->bytes, 128);
    dk_slab_release(slabs, slab);
    assert_int_equal(dk_slabs_total_bytes(slabs), 64 + 128);
    dk_slabs_free(slabs);
}

static void test_pools_beyond_the_address_space_are_refused(void **state)
{
    (void)state;
    const struct dk_slab_class_size absurd[DK_SLAB_CLASS_COUNT] = {
        [DK_SLAB_TINY] = {.bytes = 64, .count = 1},
        [DK_SLAB_SMALL] = {.bytes = SIZE_MAX / 2, .count = 3},
        [DK_SLAB_LARGE] = {.bytes = SIZE_MAX, .count = 1},
    };
    struct dk_slabs *slabs = NULL;
    struct dk_error error;
    assert_int_equal(dk_slabs_new(absurd, NULL, &slabs, &error), DK_NO_MEMORY);
    assert_null(slabs);
}

static void *acquire_and_release(void *context)
{
    for (int i = 0; i < 2000; i++) {
        struct dk_slab *slab;
        if (dk_slab_acquire(context, 100, &slab, NULL) == DK_OK) {
            slab->data[0]++;
            dk_slab_release(context, slab);
        }
    }
    return NULL;
}

static void test_threads_never_share_a_slab(void **state)
{
    pthread_t threads[6]; /* more than there are slabs: a write to a shared one is a race TSan sees */
    for (int i = 0; i < 6; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, acquire_and_release, *state), 0);
    }
    for (int i = 0; i < 6; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(dk_slabs_used(*state, DK_SLAB_TINY), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_slabs_are_aligned_and_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(test_smallest_class_that_fits_is_taken, setup, teardown),
        cmocka_unit_test_setup_teardown(test_used_up_class_returns_busy_and_takes_no_larger_one, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_more_than_the_largest_class_is_too_large, setup, teardown),
        cmocka_unit_test_setup_teardown(test_grow_keeps_the_content, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failed_growth_leaves_the_slab_as_it_was, setup, teardown),
        cmocka_unit_test_setup_teardown(test_released_slab_is_the_next_one_taken, setup, teardown),
        cmocka_unit_test(test_class_without_slabs_is_skipped),
        cmocka_unit_test(test_pools_beyond_the_address_space_are_refused),
        cmocka_unit_test_setup_teardown(test_threads_never_share_a_slab, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
