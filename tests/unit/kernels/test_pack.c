/* test_pack.c: where each element of B lands in the panels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/pack.h"

static const dk_dtype floats[] = {DK_FP32, DK_BF16, DK_FP16};

/* A pattern that names its place. */
static uint32_t element_bits(uint64_t n, uint64_t k, size_t item)
{
    uint32_t bits = (uint32_t)(n * 7919 + k * 31 + 1);
    return item == 2 ? bits & 0xffffu : bits;
}

static void *make_b(uint64_t n, uint64_t k, dk_dtype dtype, dk_layout layout)
{
    size_t item = dk_dtype_bytes(dtype);
    char *data = malloc(n * k * item + 1);
    for (uint64_t j = 0; j < n; j++) {
        for (uint64_t i = 0; i < k; i++) {
            uint32_t bits = element_bits(j, i, item);
            memcpy(data + 1 + (layout == DK_LAYOUT_KN ? i * n + j : j * k + i) * item, &bits, item);
        }
    }
    return data;
}

/* Where micro.h says step i, column j of a panel lies. */
static uint32_t element_at(const char *panel, dk_dtype dtype, uint64_t i, uint64_t j, uint32_t width)
{
    size_t item = dk_dtype_bytes(dtype);
    size_t index = dtype == DK_BF16 ? i / 2 * width * 2 + j * 2 + i % 2 : i * width + j;
    uint32_t bits = 0;
    memcpy(&bits, panel + index * item, item);
    return bits;
}

static void check_shape(uint64_t n, uint64_t k, dk_dtype dtype, dk_layout layout)
{
    size_t item = dk_dtype_bytes(dtype), bytes = dk_packed_bytes(n, k, dtype);
    uint64_t steps = dtype == DK_BF16 ? k + k % 2 : k;
    assert_int_equal(bytes, dk_plan_padded_n(n) * steps * item);
    char *data = make_b(n, k, dtype, layout); /* given one byte off alignment */
    char *packed = malloc(bytes + 16);
    memset(packed, 0xee, bytes + 16);
    struct dk_weights_desc desc = {n, k, dtype, layout, data + 1, NULL};
    dk_pack(&desc, packed);
    for (uint64_t p = 0; p * DK_PLAN_PANEL_N < n; p++) {
        uint32_t width = dk_plan_panel_width(n, p);
        const char *panel = packed + p * dk_panel_stride_bytes(k, dtype);
        for (uint64_t i = 0; i < steps; i++) {
            for (uint64_t j = 0; j < width; j++) {
                uint64_t column = p * DK_PLAN_PANEL_N + j;
                uint32_t wanted = i < k && column < n ? element_bits(column, i, item) : 0;
                assert_int_equal(element_at(panel, dtype, i, j, width), wanted);
            }
        }
    }
    for (int i = 0; i < 16; i++) {
        assert_int_equal((unsigned char)packed[bytes + (size_t)i], 0xee);
    }
    free(packed);
    free(data);
}

static void test_every_element_lands_in_its_place(void **state)
{
    (void)state;
    static const uint64_t n_values[] = {1, 15, 16, 17, 33, 64, 65, 128, 200};
    static const uint64_t k_values[] = {1, 2, 3, 31, 32, 33, 65, 97};
    for (size_t i = 0; i < sizeof n_values / sizeof n_values[0]; i++) {
        for (size_t j = 0; j < sizeof k_values / sizeof k_values[0]; j++) {
            for (int t = 0; t < 3; t++) {
                check_shape(n_values[i], k_values[j], floats[t], DK_LAYOUT_KN);
                check_shape(n_values[i], k_values[j], floats[t], DK_LAYOUT_NK);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_element_lands_in_its_place)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
