/* pack.c: [k, n] or [n, k] -> panels, in blocks of steps small enough to stay in the first-level cache. */
#include "kernels/cpu/pack.h"

#include <string.h>

enum { BLOCK_STEPS = 32 };

/* bf16 is stored in pairs of steps. */
static uint64_t stored_steps(uint64_t k, dk_dtype dtype)
{
    return dtype == DK_BF16 ? dk_round_up(k, 2) : k;
}

size_t dk_panel_stride_bytes(uint64_t k, dk_dtype dtype)
{
    size_t bytes;
    return dk_size_mul(stored_steps(k, dtype), DK_PLAN_PANEL_N * dk_dtype_bytes(dtype), &bytes) ? bytes
                                                                                                : SIZE_MAX;
}

size_t dk_packed_bytes(uint64_t n, uint64_t k, dk_dtype dtype)
{
    uint64_t full = (n - 1) / DK_PLAN_PANEL_N;
    size_t stride = dk_panel_stride_bytes(k, dtype), bytes;
    if (stride == SIZE_MAX || !dk_size_mul(full, stride, &bytes) ||
        !dk_size_add(bytes, stride / DK_PLAN_PANEL_N * dk_plan_panel_width(n, full), &bytes)) {
        return SIZE_MAX;
    }
    return bytes;
}

/* Position of (step, column) in a panel, in elements. */
static size_t element_index(dk_dtype dtype, uint64_t k, uint64_t j, uint32_t width)
{
    return dtype == DK_BF16 ? ((k / 2) * width + j) * 2 + k % 2 : k * width + j;
}

/* Copies a block of steps [k0, k1) of the panel's real columns. */
static void pack_block(const struct dk_weights_desc *desc, uint64_t column0, uint64_t columns, uint64_t k0,
                       uint64_t k1, uint32_t width, char *panel)
{
    size_t item = dk_dtype_bytes(desc->dtype);
    const char *data = desc->data;
    size_t k_stride = item * (desc->layout == DK_LAYOUT_KN ? desc->n : 1);
    size_t n_stride = item * (desc->layout == DK_LAYOUT_KN ? 1 : desc->k);
    for (uint64_t j = 0; j < columns; j++) {
        const char *column = data + (column0 + j) * n_stride;
        for (uint64_t k = k0; k < k1; k++) {
            char *to = panel + element_index(desc->dtype, k, j, width) * item;
            if (item == 2) {
                memcpy(to, column + k * k_stride, 2);
            } else {
                memcpy(to, column + k * k_stride, 4);
            }
        }
    }
}

void dk_pack(const struct dk_weights_desc *desc, void *packed)
{
    size_t stride = dk_panel_stride_bytes(desc->k, desc->dtype);
    uint64_t panels = dk_ceil_div(desc->n, DK_PLAN_PANEL_N);
    for (uint64_t p = 0; p < panels; p++) {
        char *panel = (char *)packed + p * stride;
        uint32_t width = dk_plan_panel_width(desc->n, p);
        uint64_t column0 = p * DK_PLAN_PANEL_N;
        uint64_t columns = desc->n - column0 < width ? desc->n - column0 : width;
        if (columns < width || stored_steps(desc->k, desc->dtype) != desc->k) {
            memset(panel, 0, stride / DK_PLAN_PANEL_N * width);
        }
        for (uint64_t k = 0; k < desc->k; k += BLOCK_STEPS) {
            uint64_t end = k + BLOCK_STEPS < desc->k ? k + BLOCK_STEPS : desc->k;
            pack_block(desc, column0, columns, k, end, width, panel);
        }
    }
}
