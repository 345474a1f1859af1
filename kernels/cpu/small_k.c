/* small_k.c: strip by strip, one plane of sums per chunk, then the reduction. */
#include "kernels/cpu/small_k.h"

#include "kernels/cpu/pack.h"

enum {
    CHUNKS_MAX = 26, /* of K < 208 in chunks of 8, the most that dk_plan_chunk_k makes of a small K */
    PLANE_FLOATS = DK_MICRO_ROWS * DK_PLAN_PANEL_N
};
_Static_assert(CHUNKS_MAX *PLANE_FLOATS <= DK_PLAN_MAX_GROUP * DK_PLAN_ROW_BLOCK * DK_PLAN_PANEL_N,
               "the planes of a strip lie in scratch->chunk");

bool dk_cpu_is_small_k(const struct dk_plan *plan)
{
    return plan->backend_variant == DK_PLAN_TILED && plan->chunk_k < DK_PLAN_INNER_K &&
           plan->split_k <= CHUNKS_MAX;
}

/* `rows` rows of A as fp32: in place, or widened. */
static const float *rows_of_a(const struct dk_isa *isa, struct dk_cpu_scratch *scratch,
                              const struct dk_call *call, uint64_t row0, uint32_t rows, uint64_t k,
                              size_t *stride)
{
    size_t row_bytes = call->a_row_elements * dk_dtype_bytes(call->a_dtype);
    const char *a = (const char *)call->a + row0 * row_bytes;
    if (call->a_dtype == DK_FP32 && (uintptr_t)call->a % sizeof(float) == 0) {
        *stride = call->a_row_elements;
        return (const float *)(const void *)a;
    }
    for (uint32_t row = 0; row < rows; row++) {
        isa->widen(a + row * row_bytes, call->a_dtype, scratch->a + (size_t)row * DK_CPU_SLICE_STRIDE, k);
    }
    *stride = DK_CPU_SLICE_STRIDE;
    return scratch->a;
}

/* Every chunk of one panel and strip into its plane. */
static void run_chunks(const struct dk_isa *isa, const struct dk_plan *plan, struct dk_micro *strip,
                       uint64_t k)
{
    size_t step_bytes = strip->width * dk_dtype_bytes(strip->b_dtype);
    const char *b = strip->b;
    for (uint64_t k0 = 0; k0 < k; k0 += plan->chunk_k) {
        strip->k_count = k - k0 < plan->chunk_k ? k - k0 : plan->chunk_k;
        strip->b = b;
        isa->micro(strip);
        strip->a += plan->chunk_k;
        b += plan->chunk_k * step_bytes;
        strip->c += PLANE_FLOATS;
    }
}

void dk_cpu_small_k(const struct dk_isa *isa, struct dk_cpu_scratch *scratch,
                    const struct dk_cpu_weights *weights, const struct dk_plan *plan,
                    const struct dk_call *call, const struct dk_output *output)
{
    uint64_t n = weights->base.n, k = weights->base.k;
    size_t panel_bytes = dk_panel_stride_bytes(k, weights->base.dtype);
    for (uint64_t row0 = 0; row0 < call->m; row0 += DK_MICRO_ROWS) {
        uint32_t rows = (uint32_t)(call->m - row0 < DK_MICRO_ROWS ? call->m - row0 : DK_MICRO_ROWS);
        size_t stride;
        const float *a = rows_of_a(isa, scratch, call, row0, rows, k, &stride);
        for (uint64_t column0 = 0; column0 < n; column0 += DK_PLAN_PANEL_N) {
            uint64_t panel = column0 / DK_PLAN_PANEL_N;
            struct dk_micro strip = {.b_dtype = weights->base.dtype,
                                     .width = dk_plan_panel_width(n, panel),
                                     .rows = rows,
                                     .a = a,
                                     .a_stride = stride,
                                     .b = (const char *)weights->packed + panel * panel_bytes,
                                     .c = scratch->chunk[0],
                                     .c_stride = DK_PLAN_PANEL_N};
            run_chunks(isa, plan, &strip, k);
            uint32_t columns = (uint32_t)(n - column0 < DK_PLAN_PANEL_N ? n - column0 : DK_PLAN_PANEL_N);
            for (uint32_t row = 0; row < rows; row++) {
                dk_reduce_row(scratch->chunk[0] + (size_t)row * DK_PLAN_PANEL_N, plan->split_k, PLANE_FLOATS,
                              row0 + row, column0, columns, output);
            }
        }
    }
}
