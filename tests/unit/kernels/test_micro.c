/* test_micro.c: every instruction set of this machine gives the portable version's bits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/micro.h"

enum { MAX_K = 70, MAX_WIDTH = 64, STRIDE = MAX_K + 3, C_STRIDE = MAX_WIDTH + 5 };

static const struct dk_isa *isas[3];
static uint32_t isa_count;
static uint32_t random_state = 7;

static uint32_t next_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
}

struct micro_data {
    float a[DK_MICRO_ROWS * STRIDE];
    float b[(MAX_K + 1) * MAX_WIDTH];
    float c[DK_MICRO_ROWS * C_STRIDE], wide[MAX_K * MAX_WIDTH];
};

static void fill(struct micro_data *data, dk_dtype dtype)
{
    for (size_t i = 0; i < sizeof data->a / sizeof(float); i++) {
        data->a[i] = (float)(int32_t)next_bits() * 0x1p-31f;
    }
    for (size_t i = 0; i < sizeof data->b / sizeof(float); i++) {
        float value = (float)(int32_t)next_bits() * 0x1p-31f;
        data->b[i] = value;
    }
    if (dtype != DK_FP32) {
        uint16_t narrow[sizeof data->b / sizeof(float)];
        dk_convert_from_float(data->b, narrow, dtype, sizeof narrow / 2);
        memcpy(data->b, narrow, sizeof narrow);
    }
    for (size_t i = 0; i < sizeof data->c / sizeof(float); i++) {
        data->c[i] = (float)i;
    }
    memset(data->wide, 0, sizeof data->wide);
}

static void run(const struct dk_isa *isa, struct micro_data *data, struct dk_micro call, bool is_widening)
{
    call.a = data->a;
    call.b = data->b;
    call.c = data->c;
    call.wide = is_widening ? data->wide : NULL;
    isa->micro(&call);
}

static void test_strips_have_the_portable_bits(void **state)
{
    (void)state;
    static struct micro_data expected, got;
    static const uint32_t widths[] = {16, 32, 64};
    static const size_t k_counts[] = {1, 2, 3, 31, 32, 33, 64, MAX_K};
    for (uint32_t i = 0; i < 3 * 3 * DK_MICRO_ROWS * 8 * 2 * 2; i++) {
        uint32_t rest = i / (3 * 3 * DK_MICRO_ROWS);
        struct dk_micro call = {
            .b_dtype = (dk_dtype)(i % 3),
            .width = widths[i / 3 % 3],
            .rows = 1 + i / 9 % DK_MICRO_ROWS,
            .k_count = k_counts[rest % 8],
            .a_stride = STRIDE,
            .c_stride = C_STRIDE,
            .is_accumulating = rest / 8 % 2 != 0,
        };
        bool is_widening = rest / 16 % 2 != 0 && call.b_dtype != DK_FP32;
        fill(&expected, call.b_dtype);
        for (uint32_t v = 0; v < isa_count; v++) {
            got = expected;
            struct micro_data reference = expected;
            run(&dk_isa_portable, &reference, call, is_widening);
            run(isas[v], &got, call, is_widening);
            if (memcmp(&got, &reference, sizeof got) != 0) {
                fail_msg("%s: type %d width %u rows %u k %zu widening %d", isas[v]->name, (int)call.b_dtype,
                         call.width, call.rows, call.k_count, is_widening);
            }
        }
    }
}

static void test_widening_is_exact_for_every_half(void **state)
{
    (void)state;
    static uint16_t halves[65536];
    static float expected[65536], got[65536];
    for (uint32_t i = 0; i < 65536; i++) {
        halves[i] = (uint16_t)i;
    }
    for (uint32_t v = 0; v < isa_count; v++) {
        for (dk_dtype dtype = DK_BF16; dtype <= DK_FP16; dtype++) {
            dk_convert_to_float(halves, dtype, expected, 65536);
            isas[v]->widen(halves, dtype, got, 65536);
            for (uint32_t i = 0; i < 65536; i++) {
                if (isnan(expected[i])) {
                    assert_true(isnan(got[i]));
                } else {
                    assert_memory_equal(&got[i], &expected[i], sizeof(float));
                }
            }
        }
    }
}

/* Dense around every rounding border, NaN and infinities among them. */
static void test_narrowing_has_the_bits_of_proto(void **state)
{
    (void)state;
    enum { COUNT = 4096 };
    static float values[COUNT];
    static uint16_t expected[COUNT], got[COUNT];
    for (uint32_t round = 0; round < 200; round++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            uint32_t bits = next_bits();
            bits = i % 3 == 0 ? (bits & 0xffff0000u) | (0x7fffu + bits % 3) : bits;
            bits = i % 3 == 1 ? (bits & 0xffffe000u) | (0x0fffu + bits % 3) : bits;
            bits = i % 5 == 0 ? (bits & 0x87ffffffu) | 0x38000000u : bits; /* fp16's own range */
            memcpy(&values[i], &bits, sizeof bits);
        }
        for (uint32_t v = 0; v < isa_count; v++) {
            for (dk_dtype dtype = DK_BF16; dtype <= DK_FP16; dtype++) {
                dk_convert_from_float(values, expected, dtype, COUNT);
                isas[v]->narrow(values, got, dtype, COUNT);
                for (uint32_t i = 0; i < COUNT; i++) {
                    if (got[i] != expected[i]) {
                        fail_msg("%s: %a to type %d: 0x%04x, not 0x%04x", isas[v]->name, (double)values[i],
                                 (int)dtype, got[i], expected[i]);
                    }
                }
            }
        }
    }
}

static void test_conversions_of_any_length_stay_inside(void **state)
{
    (void)state;
    for (uint32_t v = 0; v < isa_count; v++) {
        for (size_t count = 0; count <= 40; count++) {
            for (dk_dtype dtype = DK_FP32; dtype <= DK_FP16; dtype++) {
                size_t item = dk_dtype_bytes(dtype);
                char *narrow = malloc(count * item + 1); /* exact sizes: a sanitizer sees a step outside */
                float *wide = malloc(count * sizeof(float) + 1);
                memset(narrow, 0, count * item + 1);
                isas[v]->widen(narrow + 1, dtype, wide, count);
                isas[v]->narrow(wide, narrow + 1, dtype, count);
                for (size_t i = 0; i < count; i++) {
                    assert_true(wide[i] == 0.0f);
                }
                free(wide);
                free(narrow);
            }
        }
    }
}

int main(void)
{
    static const char *const names[] = {"avx512", "avx2", "portable"};
    for (int i = 0; i < 3; i++) {
        struct dk_error error;
        isa_count += dk_isa_find(names[i], &isas[isa_count], &error) == DK_OK;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strips_have_the_portable_bits),
        cmocka_unit_test(test_widening_is_exact_for_every_half),
        cmocka_unit_test(test_narrowing_has_the_bits_of_proto),
        cmocka_unit_test(test_conversions_of_any_length_stay_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
