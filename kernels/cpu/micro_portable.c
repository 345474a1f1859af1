/* micro_portable.c: the micro-kernel in plain C: the definition that the vector versions must equal bit for
 * bit. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/micro.h"

static bool is_supported(void)
{
    return true;
}

/* One step of packed B as fp32. */
static void load_step(const struct dk_micro *call, size_t k, float *out)
{
    const uint16_t *half = call->b;
    switch (call->b_dtype) {
    case DK_BF16:
        for (size_t j = 0; j < call->width; j++) {
            out[j] = dk_bf16_to_float(half[((k / 2) * call->width + j) * 2 + k % 2]);
        }
        break;
    case DK_FP16:
        for (size_t j = 0; j < call->width; j++) {
            out[j] = dk_fp16_to_float(half[k * call->width + j]);
        }
        break;
    default:
        memcpy(out, (const float *)call->b + k * call->width, call->width * sizeof(float));
        break;
    }
}

static void store_sums(const struct dk_micro *call, float sums[][DK_PLAN_PANEL_N], bool is_adding)
{
    for (size_t row = 0; row < call->rows; row++) {
        float *c = call->c + row * call->c_stride;
        for (size_t j = 0; j < call->width; j++) {
            c[j] = is_adding ? c[j] + sums[row][j] : sums[row][j];
        }
    }
}

static void micro(const struct dk_micro *call)
{
    float step[DK_PLAN_PANEL_N];
    for (size_t begin = 0; begin < call->k_count; begin += DK_PLAN_INNER_K) {
        size_t end = begin + DK_PLAN_INNER_K < call->k_count ? begin + DK_PLAN_INNER_K : call->k_count;
        float sums[DK_MICRO_ROWS][DK_PLAN_PANEL_N] = {{0}};
        for (size_t k = begin; k < end; k++) {
            load_step(call, k, step);
            if (call->wide) {
                memcpy(call->wide + k * call->width, step, call->width * sizeof(float));
            }
            for (size_t row = 0; row < call->rows; row++) {
                float a = call->a[row * call->a_stride + k];
                for (size_t j = 0; j < call->width; j++) {
                    sums[row][j] = fmaf(a, step[j], sums[row][j]);
                }
            }
        }
        store_sums(call, sums, begin > 0 || call->is_accumulating);
    }
}

const struct dk_isa dk_isa_portable = {
    .name = "portable",
    .variant_names = {"portable_split", "portable_tiled"},
    .is_supported = is_supported,
    .micro = micro,
    .widen = dk_convert_to_float,
    .narrow = dk_convert_from_float,
};
