/* engine.c: chooses the backend, checks arguments, and dispatches through the backend's table. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "kernels/bucket.h"
#include "kernels/engine_private.h"
#include "kernels/plan.h"
#include "kernels/plugin.h"
#include "kernels/tuned.h"

static dk_status open_cuda(const struct dk_engine_options *options, struct dk_engine *engine,
                           struct dk_error *error)
{
    dk_status status = dk_plugin_load(options->plugin_path, &engine->backend, error);
    return status == DK_OK ? engine->backend->open(options, &engine->device, error) : status;
}

static dk_status open_cpu(const struct dk_engine_options *options, struct dk_engine *engine,
                          struct dk_error *error)
{
    engine->backend = &dk_cpu_backend;
    return engine->backend->open(options, &engine->device, error);
}

static dk_status open_backend(const struct dk_engine_options *options, struct dk_engine *engine,
                              struct dk_error *error)
{
    struct dk_error why;
    dk_status status;
    switch (options->backend) {
    case DK_BACKEND_CPU:
        return open_cpu(options, engine, error);
    case DK_BACKEND_CUDA:
        status = open_cuda(options, engine, &why);
        /* Whatever went wrong, the caller's demand cannot be met; a bad option keeps its own status. */
        return status == DK_OK ? DK_OK
                               : dk_fail(error, status == DK_BAD_VALUE ? status : DK_UNAVAILABLE,
                                         "backend cuda cannot serve: %s", why.message);
    case DK_BACKEND_AUTO:
        if (open_cuda(options, engine, &why) == DK_OK) {
            return DK_OK;
        }
        status = open_cpu(options, engine, error);
        if (status == DK_OK) {
            struct dk_engine_info *info = &engine->device->info;
            snprintf(info->reason, sizeof info->reason, "cpu: %.240s", why.message);
        }
        return status;
    default:
        return dk_fail(error, DK_BAD_VALUE, "backend %d is not auto, cpu or cuda", (int)options->backend);
    }
}

dk_status dk_engine_new(const struct dk_engine_options *options, struct dk_engine **out,
                        struct dk_error *error)
{
    struct dk_engine_options effective = *options;
    if (effective.max_tokens == 0) {
        effective.max_tokens = DK_BUCKET_DEFAULT_TOKENS;
    }
    if (effective.max_tokens > DK_BUCKET_MAX_TOKENS) {
        return dk_fail(error, DK_BAD_VALUE, "max_tokens %u is above %d", effective.max_tokens,
                       DK_BUCKET_MAX_TOKENS);
    }
    uint32_t bucket_count = dk_bucket_count(effective.max_tokens);
    effective.max_tokens = dk_bucket_rows(bucket_count - 1);
    struct dk_engine *engine = calloc(1, sizeof *engine);
    if (!engine) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for an engine");
    }
    dk_status status = open_backend(&effective, engine, error);
    if (status != DK_OK) {
        free(engine);
        return status;
    }
    engine->device->info.max_tokens = effective.max_tokens;
    engine->device->info.bucket_count = bucket_count;
    status = dk_tuned_new(&effective, &engine->device->info, &engine->tuned, error);
    if (status != DK_OK) {
        engine->backend->close(engine->device);
        free(engine);
        return status;
    }
    *out = engine;
    return DK_OK;
}

void dk_engine_free(struct dk_engine *engine)
{
    if (!engine) {
        return;
    }
    assert(atomic_load(&engine->weights_count) == 0);
    dk_tuned_free(engine->tuned);
    engine->backend->close(engine->device);
    free(engine);
}

const struct dk_engine_info *dk_engine_get_info(const struct dk_engine *engine)
{
    return &engine->device->info;
}

uint32_t dk_engine_bucket_rows(const struct dk_engine *engine, uint32_t bucket_index)
{
    return bucket_index < engine->device->info.bucket_count ? dk_bucket_rows(bucket_index) : 0;
}

uint32_t dk_engine_bucket_index(const struct dk_engine *engine, uint64_t m)
{
    return dk_bucket_index(m, engine->device->info.bucket_count);
}

static dk_status check_desc(const struct dk_weights_desc *desc, struct dk_error *error)
{
    struct dk_gemm gemm = {.m = 1,
                           .n = desc->n,
                           .k = desc->k,
                           .a_dtype = DK_FP32,
                           .b_dtype = desc->dtype,
                           .c_dtype = DK_FP32,
                           .b_layout = desc->layout,
                           .has_bias = desc->bias != NULL};
    struct dk_gemm_sizes sizes;
    dk_status status = dk_gemm_check(&gemm, &sizes, error);
    if (status != DK_OK) {
        return status;
    }
    if (desc->layout != DK_LAYOUT_KN && desc->layout != DK_LAYOUT_NK) {
        return dk_fail(error, DK_BAD_VALUE, "layout %d is neither kn nor nk", (int)desc->layout);
    }
    return desc->data ? DK_OK : dk_fail(error, DK_BAD_VALUE, "weights without data");
}

/* A backend that made a plan which does not fit is our bug, but a plugin is a separate file. */
static dk_status check_plans(const struct dk_engine *engine, const struct dk_backend_weights *weights,
                             struct dk_error *error)
{
    for (uint32_t i = 0; i < engine->device->info.bucket_count; i++) {
        const struct dk_plan *plan = &weights->plans[i];
        if (!dk_plan_is_valid(plan, weights->n, weights->k) || plan->bucket_rows < dk_bucket_rows(i)) {
            return dk_fail(error, DK_INTERNAL, "backend %s has no valid plan for bucket %u of n=%llu k=%llu",
                           engine->backend->name, dk_bucket_rows(i), (unsigned long long)weights->n,
                           (unsigned long long)weights->k);
        }
    }
    return DK_OK;
}

static dk_status new_weights(struct dk_engine *engine, const struct dk_weights_desc *desc, size_t capacity,
                             struct dk_weights **out, struct dk_error *error)
{
    struct dk_weights *weights = calloc(1, sizeof *weights);
    if (!weights) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for a weights record");
    }
    *weights = (struct dk_weights){
        .engine = engine, .is_scratch = desc == NULL, .layout = desc ? desc->layout : DK_LAYOUT_NK};
    dk_status status =
        engine->backend->weights_new(engine->device, desc, capacity, &weights->backend_weights, error);
    if (status != DK_OK) {
        goto free_record;
    }
    status = desc ? check_plans(engine, weights->backend_weights, error) : DK_OK;
    if (status != DK_OK) {
        goto free_backend_weights;
    }
    if (desc) {
        dk_tuned_apply(engine->tuned, weights);
    }
    atomic_fetch_add(&engine->weights_count, 1);
    *out = weights;
    return DK_OK;
free_backend_weights:
    engine->backend->weights_free(engine->device, weights->backend_weights);
free_record:
    free(weights);
    return status;
}

dk_status dk_weights_new(struct dk_engine *engine, const struct dk_weights_desc *desc,
                         struct dk_weights **out, struct dk_error *error)
{
    dk_status status = check_desc(desc, error);
    return status == DK_OK ? new_weights(engine, desc, 0, out, error) : status;
}

dk_status dk_weights_new_scratch(struct dk_engine *engine, size_t capacity_bytes, struct dk_weights **out,
                                 struct dk_error *error)
{
    if (capacity_bytes == 0) {
        return dk_fail(error, DK_BAD_VALUE, "scratch weights of 0 bytes");
    }
    return new_weights(engine, NULL, capacity_bytes, out, error);
}

dk_status dk_weights_assign(struct dk_weights *scratch, const struct dk_weights_desc *desc,
                            struct dk_error *error)
{
    if (!scratch->is_scratch) {
        return dk_fail(error, DK_BAD_VALUE, "weights made for one B cannot be assigned another");
    }
    dk_status status = check_desc(desc, error);
    if (status != DK_OK) {
        return status;
    }
    struct dk_engine *engine = scratch->engine;
    status = engine->backend->weights_assign(engine->device, scratch->backend_weights, desc, error);
    return status == DK_OK ? check_plans(engine, scratch->backend_weights, error) : status;
}

void dk_weights_free(struct dk_weights *weights)
{
    if (!weights) {
        return;
    }
    struct dk_engine *engine = weights->engine;
    engine->backend->weights_free(engine->device, weights->backend_weights);
    atomic_fetch_sub(&engine->weights_count, 1);
    free(weights);
}

size_t dk_weights_bytes(const struct dk_weights *weights)
{
    return weights->backend_weights->resident_bytes;
}

const struct dk_plan *dk_plan_get(const struct dk_weights *weights, uint64_t m)
{
    uint32_t index = dk_engine_bucket_index(weights->engine, m);
    return index == UINT32_MAX ? NULL : &weights->backend_weights->plans[index];
}

uint32_t dk_plan_candidates(const struct dk_weights *weights, uint64_t m, struct dk_plan *out,
                            uint32_t capacity)
{
    const struct dk_engine *engine = weights->engine;
    uint32_t index = dk_engine_bucket_index(engine, m);
    if (index == UINT32_MAX || weights->backend_weights->n == 0) {
        return 0;
    }
    return engine->backend->candidates(engine->device, weights->backend_weights, dk_bucket_rows(index), out,
                                       capacity);
}

static bool is_same_plan(const struct dk_plan *a, const struct dk_plan *b)
{
    return strcmp(a->variant, b->variant) == 0 && a->backend_variant == b->backend_variant &&
           a->bucket_rows == b->bucket_rows && a->split_k == b->split_k && a->chunk_k == b->chunk_k &&
           a->tile_m == b->tile_m && a->tile_n == b->tile_n && a->is_dependent == b->is_dependent &&
           a->workspace_bytes == b->workspace_bytes;
}

dk_status dk_plan_set(struct dk_weights *weights, uint32_t bucket_index, const struct dk_plan *plan,
                      struct dk_error *error)
{
    uint32_t rows = dk_engine_bucket_rows(weights->engine, bucket_index);
    uint32_t count = rows > 0 ? dk_plan_candidates(weights, rows, NULL, 0) : 0;
    struct dk_plan *candidates = calloc(count + 1, sizeof *candidates);
    if (!candidates) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for %u plans", count);
    }
    if (count > 0) {
        (void)dk_plan_candidates(weights, rows, candidates, count);
    }
    uint32_t i = 0;
    while (i < count && !is_same_plan(&candidates[i], plan)) {
        i++;
    }
    dk_status status = DK_OK;
    if (i < count) {
        weights->backend_weights->plans[bucket_index] = candidates[i];
    } else {
        status = dk_fail(error, DK_BAD_VALUE, "plan %s with S=%u, chunk %u is no candidate of bucket %u",
                         plan->variant, plan->split_k, plan->chunk_k, bucket_index);
    }
    free(candidates);
    return status;
}

size_t dk_workspace_bytes(const struct dk_weights *weights, uint64_t m)
{
    uint32_t last = dk_engine_bucket_index(weights->engine, m);
    size_t bytes = 0;
    for (uint32_t i = 0; last != UINT32_MAX && i <= last; i++) {
        size_t plan_bytes = weights->backend_weights->plans[i].workspace_bytes;
        bytes = plan_bytes > bytes ? plan_bytes : bytes;
    }
    return bytes;
}

dk_status dk_workspace_new(struct dk_engine *engine, size_t bytes, void **out, struct dk_error *error)
{
    return engine->backend->workspace_new(engine->device, bytes, out, error);
}

void dk_workspace_free(struct dk_engine *engine, void *workspace)
{
    engine->backend->workspace_free(engine->device, workspace);
}

static dk_status check_extents(const struct dk_weights *weights, const struct dk_call *call,
                               struct dk_error *error)
{
    const struct dk_backend_weights *b = weights->backend_weights;
    uint32_t max_tokens = weights->engine->device->info.max_tokens;
    if (call->m > max_tokens) {
        return dk_fail(error, DK_TOO_LARGE, "m=%llu rows, at most %u fit one product",
                       (unsigned long long)call->m, max_tokens);
    }
    if (call->a_row_elements < b->k) {
        return dk_fail(error, DK_BAD_SHAPE, "rows of A are %zu elements apart, k is %llu",
                       call->a_row_elements, (unsigned long long)b->k);
    }
    if (call->c_row_elements < b->n) {
        return dk_fail(error, DK_BAD_SHAPE, "rows of C are %zu elements apart, n is %llu",
                       call->c_row_elements, (unsigned long long)b->n);
    }
    size_t count;
    if (!dk_size_mul(call->m, call->a_row_elements, &count) || !dk_size_mul(count, 4, &count) ||
        !dk_size_mul(call->m, call->c_row_elements, &count) || !dk_size_mul(count, 4, &count)) {
        return dk_fail(error, DK_BAD_SHAPE, "m=%llu rows of %zu and %zu elements overflow",
                       (unsigned long long)call->m, call->a_row_elements, call->c_row_elements);
    }
    return DK_OK;
}

static dk_status check_call(const struct dk_weights *weights, const struct dk_call *call,
                            struct dk_error *error)
{
    if (weights->backend_weights->n == 0) {
        return dk_fail(error, DK_BAD_VALUE, "scratch weights hold no B yet");
    }
    dk_status status = check_extents(weights, call, error);
    if (status != DK_OK) {
        return status;
    }
    if (!dk_dtype_is_float(call->a_dtype) || !dk_dtype_is_float(call->c_dtype)) {
        return dk_fail(error, DK_BAD_DTYPE, "types of A (%d) and C (%d) must be fp32, bf16 or fp16",
                       (int)call->a_dtype, (int)call->c_dtype);
    }
    if ((unsigned)call->epilogue >= DK_EPILOGUE_COUNT) {
        return dk_fail(error, DK_BAD_VALUE, "epilogue %d is unknown", (int)call->epilogue);
    }
    if (call->m == 0) {
        return DK_OK;
    }
    if (!call->a || !call->c) {
        return dk_fail(error, DK_BAD_VALUE, "%s is NULL", call->a ? "c" : "a");
    }
    const struct dk_plan *plan = dk_plan_get(weights, call->m);
    if (plan->workspace_bytes > 0 && !call->workspace) {
        return dk_fail(error, DK_BAD_VALUE, "workspace is NULL, %zu bytes are needed", plan->workspace_bytes);
    }
    return DK_OK;
}

dk_status dk_enqueue(const struct dk_weights *weights, const struct dk_call *call, struct dk_error *error)
{
    dk_status status = check_call(weights, call, error);
    if (status != DK_OK || call->m == 0) {
        return status;
    }
    const struct dk_engine *engine = weights->engine;
    return engine->backend->enqueue(engine->device, weights->backend_weights, dk_plan_get(weights, call->m),
                                    call, error);
}

dk_status dk_run_host(const struct dk_weights *weights, const struct dk_call *call, uint64_t *kernel_ns,
                      struct dk_error *error)
{
    dk_status status = check_call(weights, call, error);
    if (status != DK_OK) {
        return status;
    }
    if (call->m == 0) {
        if (kernel_ns) {
            *kernel_ns = 0;
        }
        return DK_OK;
    }
    const struct dk_engine *engine = weights->engine;
    return engine->backend->run_host(engine->device, weights->backend_weights, dk_plan_get(weights, call->m),
                                     call, kernel_ns, error);
}

const char *dk_version(void)
{
    return DK_VERSION;
}
