/* blas_plan.c: products through OpenBLAS: widen A, sgemm, the common epilogue. */
#include "kernels/cpu/blas_plan.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/bucket.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/clock.h"
#include "kernels/cpu/reduce.h"

enum { TRIAL_ROWS = 256, TRIAL_COUNT = 3 };

/* fp32 A and C. SIZE_MAX on overflow. */
static size_t workspace_bytes(uint64_t n, uint64_t k, uint64_t rows)
{
    size_t bytes;
    return dk_size_mul(rows, (n + k) * sizeof(float), &bytes) ? bytes : SIZE_MAX;
}

void dk_cpu_blas_product(struct dk_cpu_device *device, const struct dk_cpu_weights *weights,
                         const struct dk_call *call)
{
    uint64_t n = weights->base.n, k = weights->base.k;
    float *a = call->workspace, *c = a + call->m * k;
    struct dk_blas_product product = {call->m, n, k, a, weights->blas_b, c, k, n, weights->layout};
    for (uint64_t row = 0; row < call->m; row++) {
        const char *from = (const char *)call->a + row * call->a_row_elements * dk_dtype_bytes(call->a_dtype);
        device->isa->widen(from, call->a_dtype, a + row * k, k);
    }
    dk_blas_sgemm(device->blas, &product);
    struct dk_output output = {call->c,
                               call->c_row_elements,
                               call->c_dtype,
                               call->epilogue,
                               call->bias               ? call->bias
                               : weights->base.has_bias ? weights->bias
                                                        : NULL,
                               device->isa};
    for (uint64_t row = 0; row < call->m; row++) {
        for (uint64_t j = 0; j < n; j += DK_PLAN_PANEL_N) {
            uint32_t columns = (uint32_t)(n - j < DK_PLAN_PANEL_N ? n - j : DK_PLAN_PANEL_N);
            dk_reduce_row(c + row * n + j, 1, 0, row, j, columns, &output);
        }
    }
}

/* Best of a few runs of the own kernels (plan) or of OpenBLAS (plan NULL). */
static uint64_t best_ns(struct dk_cpu_device *device, const struct dk_cpu_weights *weights,
                        const struct dk_plan *plan, const struct dk_call *call)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < TRIAL_COUNT; i++) {
        uint64_t start = dk_cpu_now_ns();
        if (plan) {
            dk_cpu_product(device, weights, plan, call);
        } else {
            dk_cpu_blas_product(device, weights, call);
        }
        uint64_t elapsed = dk_cpu_now_ns() - start;
        best = elapsed < best ? elapsed : best;
    }
    return best;
}

static dk_status is_blas_faster(struct dk_cpu_device *device, const struct dk_cpu_weights *weights,
                                uint32_t bucket, bool *out, struct dk_error *error)
{
    const struct dk_plan *plan = &weights->base.plans[bucket];
    uint64_t rows = plan->bucket_rows, n = weights->base.n, k = weights->base.k;
    size_t bytes = workspace_bytes(n, k, rows);
    bytes = bytes > plan->workspace_bytes ? bytes : plan->workspace_bytes;
    float *a = calloc(rows * k, sizeof *a), *c = calloc(rows * n, sizeof *c);
    void *workspace = aligned_alloc(DK_CPU_ALIGN_BYTES, dk_round_up(bytes, DK_CPU_ALIGN_BYTES));
    dk_status status = DK_OK;
    if (a && c && workspace) {
        struct dk_call call = {.m = rows,
                               .a = a,
                               .a_row_elements = k,
                               .a_dtype = DK_FP32,
                               .c = c,
                               .c_row_elements = n,
                               .c_dtype = DK_FP32,
                               .workspace = workspace};
        pthread_mutex_lock(&device->turn);
        *out = best_ns(device, weights, NULL, &call) < best_ns(device, weights, plan, &call);
        pthread_mutex_unlock(&device->turn);
    } else {
        status =
            dk_fail(error, DK_NO_MEMORY, "no memory to try OpenBLAS on %llu rows", (unsigned long long)rows);
    }
    free(workspace);
    free(c);
    free(a);
    return status;
}

static void use_blas_from(struct dk_cpu_device *device, struct dk_cpu_weights *weights, uint32_t bucket)
{
    uint64_t n = weights->base.n, k = weights->base.k;
    for (uint32_t i = bucket; i < device->base.info.bucket_count; i++) {
        uint32_t rows = dk_bucket_rows(i);
        weights->base.plans[i] = (struct dk_plan){
            .variant = "openblas_sgemm",
            .bucket_rows = rows,
            .split_k = 1,
            .chunk_k = (uint32_t)k,
            .tile_m = rows,
            .tile_n = (uint32_t)n,
            .backend_variant = DK_PLAN_BLAS,
            .workspace_bytes = workspace_bytes(n, k, rows),
        };
    }
}

dk_status dk_cpu_consider_blas(struct dk_cpu_device *device, struct dk_cpu_weights *weights,
                               const struct dk_weights_desc *desc, struct dk_error *error)
{
    uint32_t bucket = dk_bucket_index(TRIAL_ROWS, device->base.info.bucket_count);
    bucket = bucket == UINT32_MAX ? device->base.info.bucket_count - 1 : bucket;
    struct dk_blas_product largest = {.m = device->base.info.max_tokens, .n = desc->n, .k = desc->k};
    size_t count = desc->n * desc->k, bytes;
    if (!dk_blas_can_run(&largest) || !dk_size_mul(count, sizeof(float), &bytes) ||
        workspace_bytes(desc->n, desc->k, largest.m) == SIZE_MAX) {
        return DK_OK;
    }
    weights->blas_b = malloc(bytes);
    if (!weights->blas_b) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for OpenBLAS' fp32 copy of B: %zu bytes", bytes);
    }
    weights->layout = desc->layout;
    dk_convert_to_float(desc->data, desc->dtype, weights->blas_b, count);
    bool is_faster = false;
    dk_status status = is_blas_faster(device, weights, bucket, &is_faster, error);
    if (status == DK_OK && is_faster) {
        use_blas_from(device, weights, bucket);
        weights->base.resident_bytes += bytes;
    } else {
        free(weights->blas_b);
        weights->blas_b = NULL;
    }
    return status;
}
