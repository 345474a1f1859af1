/* cpu_backend.c: the host's cores as a device: threads, scratch memory and the backend table. */
#include "kernels/cpu/cpu_backend.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/bucket.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/blas_plan.h"
#include "kernels/cpu/clock.h"
#include "kernels/cpu/cpu_weights.h"

/* CPUs this process may run on. */
static uint32_t usable_cpu_count(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count < 1 ? 1 : count > DK_POOL_MAX_THREADS ? DK_POOL_MAX_THREADS : (uint32_t)count;
}

static void read_model_name(char *out, size_t size)
{
    snprintf(out, size, "cpu");
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (!file) {
        return;
    }
    char line[256];
    while (fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (colon && strncmp(line, "model name", strlen("model name")) == 0) {
            snprintf(out, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
            break;
        }
    }
    fclose(file);
}

static void fill_info(const struct dk_cpu_device *device, uint32_t thread_count, struct dk_engine_info *info)
{
    snprintf(info->backend, sizeof info->backend, "cpu");
    snprintf(info->reason, sizeof info->reason, "cpu: asked for");
    snprintf(info->isa, sizeof info->isa, "%s", device->isa->name);
    read_model_name(info->device_name, sizeof info->device_name);
    info->thread_count = thread_count;
}

static dk_status cpu_open(const struct dk_engine_options *options, struct dk_backend_device **out,
                          struct dk_error *error)
{
    uint32_t threads = options->thread_count > 0 ? options->thread_count : usable_cpu_count();
    if (threads > DK_POOL_MAX_THREADS) {
        return dk_fail(error, DK_BAD_VALUE, "thread_count %u is above %d", threads, DK_POOL_MAX_THREADS);
    }
    struct dk_cpu_device *device = calloc(1, sizeof *device);
    if (!device) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for the CPU backend");
    }
    dk_status status = dk_isa_find(options->cpu_isa, &device->isa, error);
    if (status != DK_OK) {
        goto free_device;
    }
    device->scratch = dk_cpu_alloc(threads * sizeof *device->scratch);
    if (!device->scratch) {
        status = dk_fail(error, DK_NO_MEMORY, "no memory for the scratch of %u threads", threads);
        goto free_device;
    }
    uint32_t spin_us = options->spin_us > 0 ? options->spin_us : DK_POOL_DEFAULT_SPIN_US;
    status = dk_pool_new(threads, spin_us, &device->pool, error);
    if (status != DK_OK) {
        goto free_scratch;
    }
    pthread_mutex_init(&device->turn, NULL);
    device->blas = options->use_blas ? dk_blas_open(threads) : NULL;
    fill_info(device, threads, &device->base.info);
    *out = &device->base;
    return DK_OK;
free_scratch:
    free(device->scratch);
free_device:
    free(device);
    return status;
}

static void cpu_close(struct dk_backend_device *base)
{
    struct dk_cpu_device *device = (struct dk_cpu_device *)base;
    dk_blas_close(device->blas);
    pthread_mutex_destroy(&device->turn);
    dk_pool_free(device->pool);
    free(device->scratch);
    free(device);
}

/* One form suits a shape here; nothing to choose from. */
static uint32_t cpu_candidates(struct dk_backend_device *base, const struct dk_backend_weights *weights,
                               uint32_t bucket_rows, struct dk_plan *out, uint32_t capacity)
{
    if (capacity > 0) {
        out[0] = weights->plans[dk_bucket_index(bucket_rows, base->info.bucket_count)];
    }
    return 1;
}

static dk_status cpu_workspace_new(struct dk_backend_device *device, size_t bytes, void **out,
                                   struct dk_error *error)
{
    (void)device;
    void *workspace = dk_cpu_alloc(bytes);
    if (!workspace) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for a workspace of %zu bytes", bytes);
    }
    *out = workspace;
    return DK_OK;
}

static void cpu_workspace_free(struct dk_backend_device *device, void *workspace)
{
    (void)device;
    free(workspace);
}

static dk_status cpu_run_host(struct dk_backend_device *base, const struct dk_backend_weights *weights,
                              const struct dk_plan *plan, const struct dk_call *call, uint64_t *kernel_ns,
                              struct dk_error *error)
{
    struct dk_cpu_device *device = (struct dk_cpu_device *)base;
    const struct dk_cpu_weights *cpu_weights = (const struct dk_cpu_weights *)weights;
    if (plan->workspace_bytes > 0 && (uintptr_t)call->workspace % DK_CPU_ALIGN_BYTES != 0) {
        return dk_fail(error, DK_BAD_VALUE, "workspace %p is not on a %d-byte border", call->workspace,
                       DK_CPU_ALIGN_BYTES);
    }
    pthread_mutex_lock(&device->turn);
    uint64_t start = dk_cpu_now_ns();
    if (plan->backend_variant == DK_PLAN_BLAS) {
        dk_cpu_blas_product(device, cpu_weights, call);
    } else {
        dk_cpu_product(device, cpu_weights, plan, call);
    }
    uint64_t elapsed = dk_cpu_now_ns() - start;
    pthread_mutex_unlock(&device->turn);
    if (kernel_ns) {
        *kernel_ns = elapsed;
    }
    return DK_OK;
}

static dk_status cpu_enqueue(struct dk_backend_device *device, const struct dk_backend_weights *weights,
                             const struct dk_plan *plan, const struct dk_call *call, struct dk_error *error)
{
    return cpu_run_host(device, weights, plan, call, NULL, error);
}

const struct dk_backend dk_cpu_backend = {
    .abi = DK_BACKEND_ABI,
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .weights_new = dk_cpu_weights_new,
    .weights_assign = dk_cpu_weights_assign,
    .candidates = cpu_candidates,
    .weights_free = dk_cpu_weights_free,
    .workspace_new = cpu_workspace_new,
    .workspace_free = cpu_workspace_free,
    .enqueue = cpu_enqueue,
    .run_host = cpu_run_host,
};
