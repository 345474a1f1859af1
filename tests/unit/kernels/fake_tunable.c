/* fake_tunable.c: a CUDA plugin without CUDA whose plans take known times: for tests of tuning.
 * The engine's device_index chooses how it behaves. */
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"

enum { ORDINARY = 0, BARELY_FASTER = 1, FAILS_AT_FOUR_ROWS = 2, OTHER_DEVICE = 3 };

struct device {
    struct dk_backend_device base;
    int mode;
    uint32_t max_tokens;
};

static const struct {
    const char *name;
    double time_ns; /* 0: refuses */
} variants[] = {{"built_in", 1000.0}, {"refused", 0.0}, {"fast", 700.0}, {"slow", 3000.0}};
enum { COUNT = sizeof variants / sizeof variants[0] };

static dk_status fake_open(const struct dk_engine_options *options, struct dk_backend_device **out,
                           struct dk_error *error)
{
    struct device *device = calloc(1, sizeof *device);
    if (!device)
        return dk_fail(error, DK_NO_MEMORY, "no memory");
    device->mode = options->device_index;
    device->max_tokens = options->max_tokens;
    strcpy(device->base.info.backend, "cuda");
    strcpy(device->base.info.device_name, device->mode == OTHER_DEVICE ? "Other" : "Fake");
    *out = &device->base;
    return DK_OK;
}

static void fake_close(struct dk_backend_device *device)
{
    free(device);
}

static struct dk_plan make_plan(const struct dk_backend_weights *weights, uint32_t rows, uint32_t variant)
{
    return (struct dk_plan){.variant = variants[variant].name,
                            .bucket_rows = rows,
                            .split_k = 1,
                            .chunk_k = (uint32_t)weights->k,
                            .tile_m = 1,
                            .tile_n = 1,
                            .backend_variant = variant};
}

static uint32_t fake_candidates(struct dk_backend_device *device, const struct dk_backend_weights *weights,
                                uint32_t bucket_rows, struct dk_plan *out, uint32_t capacity)
{
    (void)device;
    for (uint32_t i = 0; i < COUNT && i < capacity; i++)
        out[i] = make_plan(weights, bucket_rows, i);
    return COUNT;
}

static dk_status fake_weights_new(struct dk_backend_device *device, const struct dk_weights_desc *desc,
                                  size_t scratch_bytes, struct dk_backend_weights **out,
                                  struct dk_error *error)
{
    (void)device;
    (void)scratch_bytes;
    struct dk_backend_weights *weights = calloc(1, sizeof *weights);
    if (!weights)
        return dk_fail(error, DK_NO_MEMORY, "no memory");
    weights->n = desc->n;
    weights->k = desc->k;
    weights->dtype = desc->dtype;
    for (uint32_t i = 0; i < DK_MAX_BUCKETS; i++)
        weights->plans[i] = make_plan(weights, UINT32_C(1) << i, 0);
    *out = weights;
    return DK_OK;
}

static void fake_weights_free(struct dk_backend_device *device, struct dk_backend_weights *weights)
{
    (void)device;
    free(weights);
}

static dk_status fake_measure(struct dk_backend_device *base, const struct dk_backend_weights *const *weights,
                              const struct dk_measure *measure, const struct dk_plan *plan, double *out_ns,
                              struct dk_error *error)
{
    const struct device *device = (const struct device *)base;
    (void)weights;
    if (device->mode == FAILS_AT_FOUR_ROWS && measure->m == 4)
        return dk_fail(error, DK_DEVICE_FAILED, "the device fell off the bus");
    if (variants[plan->backend_variant].time_ns == 0.0)
        return dk_fail(error, DK_UNSUPPORTED, "not this one");
    *out_ns = variants[plan->backend_variant].time_ns;
    if (device->mode == BARELY_FASTER && strcmp(plan->variant, "fast") == 0)
        *out_ns = 995.0;
    return DK_OK;
}

static const struct dk_backend backend = {.abi = DK_BACKEND_ABI,
                                          .name = "cuda",
                                          .open = fake_open,
                                          .close = fake_close,
                                          .weights_new = fake_weights_new,
                                          .weights_free = fake_weights_free,
                                          .candidates = fake_candidates,
                                          .measure = fake_measure};

DK_API const struct dk_backend *dk_cuda_plugin(void);
const struct dk_backend *dk_cuda_plugin(void)
{
    return &backend;
}
