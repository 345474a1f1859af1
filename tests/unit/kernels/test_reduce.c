/* test_reduce.c: the order of the chunk sum and the epilogues. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/reduce.h"

static float reduce_one(const float *planes, uint32_t count, const float *bias, dk_epilogue epilogue)
{
    float c = 99;
    struct dk_output output = {.c = &c,
                               .c_row_elements = 1,
                               .c_dtype = DK_FP32,
                               .epilogue = epilogue,
                               .bias = bias,
                               .isa = &dk_isa_portable};
    dk_reduce_row(planes, count, 1, 0, 0, 1, &output);
    return c;
}

static void test_chunks_are_summed_in_index_order(void **state)
{
    (void)state;
    const float planes[] = {1.0f, 0x1p24f, -0x1p24f, 1.0f};
    /* ((1 + 2^24) - 2^24) + 1 = 1: the first 1 is lost, another order would give 2. */
    assert_true(reduce_one(planes, 4, NULL, DK_EPILOGUE_NONE) == 1.0f);
    const float bias[] = {0.5f};
    assert_true(reduce_one(planes, 4, bias, DK_EPILOGUE_NONE) == 1.5f);
}

static void test_relu_passes_nan_and_clears_negatives(void **state)
{
    (void)state;
    const float values[] = {NAN, -1.0f, 2.0f, -INFINITY, INFINITY, -0.0f};
    assert_true(isnan(reduce_one(&values[0], 1, NULL, DK_EPILOGUE_RELU)));
    assert_true(reduce_one(&values[1], 1, NULL, DK_EPILOGUE_RELU) == 0.0f);
    assert_true(reduce_one(&values[2], 1, NULL, DK_EPILOGUE_RELU) == 2.0f);
    assert_true(reduce_one(&values[3], 1, NULL, DK_EPILOGUE_RELU) == 0.0f);
    assert_true(isinf(reduce_one(&values[4], 1, NULL, DK_EPILOGUE_RELU)));
    assert_false(signbit(reduce_one(&values[5], 1, NULL, DK_EPILOGUE_RELU)));
}

static void test_sigmoid_at_the_ends(void **state)
{
    (void)state;
    float values[] = {INFINITY, -INFINITY, 0.0f, -0.0f, NAN, -NAN, 200.0f, -200.0f, 0x1p127f, -0x1p127f};
    dk_sigmoid(values, 10);
    assert_true(values[0] == 1.0f && values[1] == 0.0f);
    assert_true(values[2] == 0.5f && values[3] == 0.5f);
    assert_true(isnan(values[4]) && isnan(values[5]));
    assert_true(values[6] == 1.0f && values[7] == 0.0f && values[8] == 1.0f && values[9] == 0.0f);
}

static void test_sigmoid_is_accurate_and_stays_within_zero_and_one(void **state)
{
    (void)state;
    double worst = 0;
    for (float x = -110.0f; x < 110.0f; x += 0.001953f) {
        float y = x;
        dk_sigmoid(&y, 1);
        double exact = 1 / (1 + exp(-(double)x));
        double ulp = fmax(exact * 0x1p-24, 0x1p-150) * 2;
        double error = fabs((double)y - exact) / ulp;
        worst = error > worst ? error : worst;
        assert_true(y >= 0.0f && y <= 1.0f);
        if (!(error <= 4)) {
            fail_msg("sigmoid(%a) is %a, off by %g units in the last place", (double)x, (double)y, error);
        }
    }
    print_message("worst sigmoid error: %.2f ulp\n", worst);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks_are_summed_in_index_order),
        cmocka_unit_test(test_relu_passes_nan_and_clears_negatives),
        cmocka_unit_test(test_sigmoid_at_the_ends),
        cmocka_unit_test(test_sigmoid_is_accurate_and_stays_within_zero_and_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
