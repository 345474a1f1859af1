/* test_intake.c: tensors arriving in runs: growth through the slab classes, rounding once, overflow named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "server/intake.h"
#include "server/slab.h"

static const struct dk_slab_class_size sizes[DK_SLAB_CLASS_COUNT] = {
    [DK_SLAB_TINY] = {.bytes = 64, .count = 2},
    [DK_SLAB_SMALL] = {.bytes = 512, .count = 2},
    [DK_SLAB_LARGE] = {.bytes = 4096, .count = 1},
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

static void test_announced_bytes_skip_a_class_but_not_the_first(void **state)
{
    struct dk_intake intake = {.name = "x", .announced_bytes = 3000};
    char bytes[100];
    memset(bytes, 'a', sizeof bytes);
    assert_int_equal(dk_intake_bytes(&intake, *state, bytes, 10, NULL), DK_OK);
    assert_int_equal(intake.slab->class_index, DK_SLAB_TINY); /* what a slow client holds */
    assert_int_equal(dk_intake_bytes(&intake, *state, bytes, 90, NULL), DK_OK);
    assert_int_equal(intake.slab->class_index, DK_SLAB_LARGE);
    assert_memory_equal(intake.slab->data, bytes, 100);
    assert_int_equal((uintptr_t)intake.slab->data % DK_SLAB_ALIGNMENT, 0);
    dk_intake_release(&intake, *state);
    intake.announced_bytes = 40;
    assert_int_equal(dk_intake_bytes(&intake, *state, bytes, 10, NULL), DK_OK);
    assert_int_equal(intake.slab->class_index, DK_SLAB_TINY);
    dk_intake_release(&intake, *state);
}

static void test_bytes_move_up_the_classes_as_they_arrive(void **state)
{
    struct dk_intake intake = {.name = "x"};
    for (unsigned i = 0; i < 4000; i++) {
        char byte = (char)(i * 31);
        assert_int_equal(dk_intake_bytes(&intake, *state, &byte, 1, NULL), DK_OK);
        assert_int_equal(intake.slab->class_index, i < 64    ? DK_SLAB_TINY
                                                   : i < 512 ? DK_SLAB_SMALL
                                                             : DK_SLAB_LARGE);
    }
    for (unsigned i = 0; i < 4000; i++) {
        assert_int_equal((char)intake.slab->data[i], (char)(i * 31));
    }
    dk_intake_release(&intake, *state);
    assert_null(intake.slab);
    assert_string_equal(intake.name, "x");
}

static void test_more_than_the_largest_slab_is_too_large(void **state)
{
    struct dk_intake intake = {.name = "x"};
    static const char bytes[4096];
    struct dk_error error;
    assert_int_equal(dk_intake_bytes(&intake, *state, bytes, sizeof bytes, NULL), DK_OK);
    assert_int_equal(dk_intake_bytes(&intake, *state, bytes, 1, &error), DK_TOO_LARGE);
    assert_non_null(strstr(error.message, "4097"));
    assert_int_equal(intake.used_bytes, sizeof bytes);
    dk_intake_release(&intake, *state);
}

static void test_c28_values_are_rounded_once_whenever_the_type_is_known(void **state)
{
    /* Halfway cases of bf16 that go wrong when rounded to fp32 first. */
    const double values[] = {3.140625, 1.00390625 + 0x1p-40, -1.00390625 - 0x1p-40, 0, 65504};
    static const dk_dtype dtypes[] = {DK_FP32, DK_BF16, DK_FP16};
    enum { COUNT = sizeof values / sizeof values[0] };
    for (size_t d = 0; d < 3; d++) {
        unsigned char expected[COUNT * sizeof(float)];
        dk_convert_from_double(values, expected, dtypes[d], COUNT);
        struct dk_intake early = {.name = "x", .dtype = dtypes[d]};
        struct dk_intake late = {.name = "x", .is_double = true};
        for (size_t i = 0; i < COUNT; i++) {
            assert_int_equal(dk_intake_values(&early, *state, i, &values[i], 1, NULL), DK_OK);
        }
        assert_int_equal(dk_intake_values(&late, *state, 0, values, COUNT, NULL), DK_OK);
        assert_int_equal(late.used_bytes, sizeof values);
        assert_int_equal(dk_intake_round(&late, dtypes[d], NULL), DK_OK);
        assert_int_equal(dk_intake_round(&early, dtypes[d], NULL), DK_OK); /* already of its type */
        assert_int_equal(early.used_bytes, COUNT * dk_dtype_bytes(dtypes[d]));
        assert_int_equal(late.used_bytes, early.used_bytes);
        assert_memory_equal(early.slab->data, expected, early.used_bytes);
        assert_memory_equal(late.slab->data, expected, late.used_bytes);
        dk_intake_release(&early, *state);
        dk_intake_release(&late, *state);
    }
}

static void test_overflowing_number_is_named_by_tensor_and_index(void **state)
{
    const double values[] = {1, -2, 3, 65520};
    struct dk_error error;
    struct dk_intake early = {.name = "a", .dtype = DK_FP16};
    assert_int_equal(dk_intake_values(&early, *state, 0, values, 3, NULL), DK_OK);
    assert_int_equal(dk_intake_values(&early, *state, 1000, values, 4, &error), DK_BAD_VALUE);
    assert_non_null(strstr(error.message, "1003"));
    assert_non_null(strstr(error.message, "\"a\""));
    assert_non_null(strstr(error.message, "fp16"));
    struct dk_intake late = {.name = "b", .is_double = true};
    assert_int_equal(dk_intake_values(&late, *state, 0, values, 4, NULL), DK_OK);
    assert_int_equal(dk_intake_round(&late, DK_FP16, &error), DK_BAD_VALUE);
    assert_non_null(strstr(error.message, "number 3 of \"b\""));
    dk_intake_release(&early, *state);
    dk_intake_release(&late, *state);
}

static void test_nothing_arrived_rounds_to_nothing(void **state)
{
    struct dk_intake intake = {.name = "x", .is_double = true};
    assert_int_equal(dk_intake_round(&intake, DK_BF16, NULL), DK_OK);
    assert_int_equal(intake.used_bytes, 0);
    dk_intake_release(&intake, *state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_announced_bytes_skip_a_class_but_not_the_first, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bytes_move_up_the_classes_as_they_arrive, setup, teardown),
        cmocka_unit_test_setup_teardown(test_more_than_the_largest_slab_is_too_large, setup, teardown),
        cmocka_unit_test_setup_teardown(test_c28_values_are_rounded_once_whenever_the_type_is_known, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_overflowing_number_is_named_by_tensor_and_index, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_nothing_arrived_rounds_to_nothing, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
