/* cpu_weights.c: take a B: pack it, keep its bias, make one plan per bucket. */
#include "kernels/cpu/cpu_weights.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/bucket.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/blas_plan.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/pack.h"

enum { HUGE_PAGE_BYTES = 2 << 20 };

void *dk_cpu_alloc(size_t bytes)
{
    size_t align = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : DK_CPU_ALIGN_BYTES;
    size_t rounded;
    if (!dk_size_add(bytes, align - 1, &rounded)) {
        return NULL;
    }
    rounded = rounded / align * align;
    void *memory = aligned_alloc(align, rounded > 0 ? rounded : align);
    if (!memory) {
        return NULL;
    }
    if (align == HUGE_PAGE_BYTES) {
        /* A hint: where it is refused, small pages serve. */
        (void)madvise(memory, rounded, MADV_HUGEPAGE);
    }
    memset(memory, 0, bytes);
    return memory;
}

static void make_plans(struct dk_cpu_device *device, struct dk_cpu_weights *weights)
{
    const struct dk_engine_info *info = &device->base.info;
    for (uint32_t i = 0; i < info->bucket_count; i++) {
        struct dk_plan *plan = &weights->base.plans[i];
        dk_plan_make_cpu(weights->base.n, weights->base.k, dk_bucket_rows(i), info->thread_count, plan);
        plan->variant = device->isa->variant_names[plan->backend_variant];
    }
}

/* Every field but the memory; bias and panels are filled. */
static void fill(struct dk_cpu_device *device, struct dk_cpu_weights *weights,
                 const struct dk_weights_desc *desc)
{
    weights->base.n = desc->n;
    weights->base.k = desc->k;
    weights->base.dtype = desc->dtype;
    weights->base.has_bias = desc->bias != NULL;
    if (desc->bias) {
        memcpy(weights->bias, desc->bias, desc->n * sizeof(float));
    }
    dk_pack(desc, weights->packed);
    make_plans(device, weights);
}

static dk_status new_scratch(size_t capacity, struct dk_cpu_weights *weights, struct dk_error *error)
{
    weights->capacity_bytes = capacity;
    weights->packed = dk_cpu_alloc(capacity);
    /* A row of packed B takes at least 2 * n bytes and k may be 1: bias may need twice the capacity. */
    size_t bias_bytes;
    weights->bias = dk_size_mul(capacity, 2, &bias_bytes) ? malloc(bias_bytes) : NULL;
    if (!weights->packed || !weights->bias) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for a scratch B of %zu bytes", capacity);
    }
    weights->base.resident_bytes = capacity; /* the bias' room is touched only as far as it is used */
    /* Until a B is assigned the plans only say what workspace is always enough. */
    for (uint32_t i = 0; i < DK_MAX_BUCKETS; i++) {
        weights->base.plans[i].workspace_bytes = DK_PLAN_WORKSPACE_CAP_BYTES;
    }
    return DK_OK;
}

static dk_status new_resident(struct dk_cpu_device *device, const struct dk_weights_desc *desc,
                              struct dk_cpu_weights *weights, struct dk_error *error)
{
    size_t bytes = dk_packed_bytes(desc->n, desc->k, desc->dtype);
    size_t bias_bytes = desc->bias ? desc->n * sizeof(float) : 0;
    weights->packed = bytes == SIZE_MAX ? NULL : dk_cpu_alloc(bytes);
    weights->bias = malloc(bias_bytes + 1);
    if (!weights->packed || !weights->bias) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for weights [k=%llu, n=%llu]: %zu bytes",
                       (unsigned long long)desc->k, (unsigned long long)desc->n, bytes);
    }
    weights->base.resident_bytes = bytes + bias_bytes;
    fill(device, weights, desc);
    return device->blas ? dk_cpu_consider_blas(device, weights, desc, error) : DK_OK;
}

dk_status dk_cpu_weights_new(struct dk_backend_device *base, const struct dk_weights_desc *desc,
                             size_t scratch_bytes, struct dk_backend_weights **out, struct dk_error *error)
{
    struct dk_cpu_device *device = (struct dk_cpu_device *)base;
    struct dk_cpu_weights *weights = calloc(1, sizeof *weights);
    if (!weights) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for a weights record");
    }
    dk_status status =
        desc ? new_resident(device, desc, weights, error) : new_scratch(scratch_bytes, weights, error);
    if (status != DK_OK) {
        dk_cpu_weights_free(base, &weights->base);
        return status;
    }
    *out = &weights->base;
    return DK_OK;
}

dk_status dk_cpu_weights_assign(struct dk_backend_device *base, struct dk_backend_weights *base_weights,
                                const struct dk_weights_desc *desc, struct dk_error *error)
{
    struct dk_cpu_weights *weights = (struct dk_cpu_weights *)base_weights;
    size_t bytes = dk_packed_bytes(desc->n, desc->k, desc->dtype);
    if (bytes > weights->capacity_bytes) {
        return dk_fail(error, DK_TOO_LARGE, "B [k=%llu, n=%llu] %s packs to %zu bytes, the scratch holds %zu",
                       (unsigned long long)desc->k, (unsigned long long)desc->n,
                       dk_dtype_name(desc->dtype, DK_DIALECT_NATIVE), bytes, weights->capacity_bytes);
    }
    fill((struct dk_cpu_device *)base, weights, desc);
    return DK_OK;
}

void dk_cpu_weights_free(struct dk_backend_device *device, struct dk_backend_weights *base)
{
    (void)device;
    struct dk_cpu_weights *weights = (struct dk_cpu_weights *)base;
    free(weights->blas_b);
    free(weights->bias);
    free(weights->packed);
    free(weights);
}
