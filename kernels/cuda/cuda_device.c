/* cuda_device.c: opening a CUDA device, and saying in one line why it cannot be opened. */
#include "kernels/cuda/cuda_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda_try.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/two_launch.h"
#include "kernels/cuda/wgmma_launch.h"

/* Enough for a [64, 7168] fp32 request; models reserve more while they load. */
enum { DK_CUDA_STAGING_BYTES = 16 << 20 };

dk_status dk_cuda_fail(struct dk_error *error, cudaError_t cuda_error, const char *call)
{
    (void)cudaGetLastError();
    dk_status status = cuda_error == cudaErrorMemoryAllocation ? DK_NO_MEMORY : DK_DEVICE_FAILED;
    return dk_fail(error, status, "CUDA: %s (%s) in %.160s", cudaGetErrorString(cuda_error),
                   cudaGetErrorName(cuda_error), call);
}

static void format_version(char *out, size_t size, int version)
{
    (void)snprintf(out, size, "%d.%d", version / 1000, version % 1000 / 10);
}

/* The most frequent reasons in words an operator can act on. */
static dk_status explain(struct dk_error *error, cudaError_t cuda_error, int driver, int runtime, int index,
                         int count)
{
    (void)cudaGetLastError();
    if (driver == 0)
        return dk_fail(
            error, DK_UNAVAILABLE,
            "no CUDA driver: libcuda.so.1 was not found; runtime %d.%d needs a driver for CUDA %d.x",
            runtime / 1000, runtime % 1000 / 10, runtime / 1000);
    if (cuda_error == cudaErrorInsufficientDriver)
        return dk_fail(error, DK_UNAVAILABLE,
                       "CUDA driver too old: it supports CUDA %d.%d, runtime %d.%d is needed", driver / 1000,
                       driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (cuda_error == cudaErrorNoDevice || (cuda_error == cudaSuccess && count == 0)) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        return dk_fail(error, DK_UNAVAILABLE, "no CUDA device is visible (CUDA_VISIBLE_DEVICES=%s)",
                       visible != NULL ? visible : "unset");
    }
    if (cuda_error == cudaSuccess)
        return dk_fail(error, DK_UNAVAILABLE, "CUDA device %d does not exist: %d visible", index, count);
    return dk_fail(error, DK_UNAVAILABLE, "CUDA device %d: %s (%s)", index, cudaGetErrorString(cuda_error),
                   cudaGetErrorName(cuda_error));
}

static dk_status probe(int index, struct dk_engine_info *info, struct cudaDeviceProp *properties,
                       struct dk_error *error)
{
    int driver = 0;
    int runtime = 0;
    int count = 0;
    (void)cudaRuntimeGetVersion(&runtime); /* compiled in: cannot fail */
    cudaError_t cuda_error = cudaDriverGetVersion(&driver);
    if (cuda_error == cudaSuccess)
        cuda_error = cudaGetDeviceCount(&count);
    if (cuda_error != cudaSuccess || index < 0 || index >= count)
        return explain(error, cuda_error, driver, runtime, index, count);
    cuda_error = cudaGetDeviceProperties(properties, index);
    if (cuda_error == cudaSuccess)
        cuda_error = cudaSetDevice(index);
    if (cuda_error == cudaSuccess)
        cuda_error = cudaFree(NULL); /* creates the context, so that a broken device fails here */
    if (cuda_error != cudaSuccess)
        return explain(error, cuda_error, driver, runtime, index, count);
    (void)snprintf(info->backend, sizeof info->backend, "cuda");
    (void)snprintf(info->device_name, sizeof info->device_name, "%.100s", properties->name);
    (void)snprintf(info->isa, sizeof info->isa, "sm_%d%d", properties->major, properties->minor);
    format_version(info->driver_version, sizeof info->driver_version, driver);
    format_version(info->runtime_version, sizeof info->runtime_version, runtime);
    (void)snprintf(info->reason, sizeof info->reason,
                   "cuda: %.100s, sm_%d%d, driver supports CUDA %s, runtime %s", properties->name,
                   properties->major, properties->minor, info->driver_version, info->runtime_version);
    return DK_OK;
}

static dk_status fail_to_force(const char *name, struct dk_error *error)
{
    char known[DK_MESSAGE_BYTES - 96] = DK_CUDA_TWO_LAUNCH_NAME;
    size_t length = strlen(known);
    for (uint32_t i = 0; dk_variant_at(i) != NULL && length < sizeof known; i++)
        length += (size_t)snprintf(known + length, sizeof known - length, ", %s", dk_variant_at(i)->name);
    return dk_fail(error, DK_BAD_VALUE, "variant '%.40s' is unknown; known are %s", name, known);
}

/* Loads every kernel: a later capture must not have to. */
static dk_status make_rules(const struct dk_engine_options *options, bool has_maps,
                            struct dk_cuda_plan_rules *rules, struct dk_error *error)
{
    dk_status status = DK_OK;
    *rules = (struct dk_cuda_plan_rules){.is_dependent = options->use_dependent_launch,
                                         .is_batch_invariant = options->is_batch_invariant,
                                         .forced = DK_CUDA_FORCE_NONE};
    for (uint32_t i = 0; dk_variant_at(i) != NULL; i++)
        if (dk_variant_at(i)->family != DK_FAMILY_WGMMA)
            rules->is_usable[i] = dk_launch_prepare(dk_variant_at(i));
    if (has_maps)
        dk_wgmma_query(&rules->wgmma);
    if (options->force_variant != NULL) {
        uint32_t index = dk_variant_find(options->force_variant);
        rules->forced = index != UINT32_MAX ? (int)index : DK_CUDA_FORCE_TWO_LAUNCH;
        if (index == UINT32_MAX && strcmp(options->force_variant, DK_CUDA_TWO_LAUNCH_NAME) != 0)
            return fail_to_force(options->force_variant, error);
    }
    DK_CUDA_TRY(dk_two_launch_prepare(), status, error, done);
done:
    return status;
}

dk_status dk_cuda_device_open(const struct dk_engine_options *options, struct dk_cuda_device **out,
                              struct dk_error *error)
{
    struct cudaDeviceProp properties;
    struct dk_cuda_device *device = calloc(1, sizeof *device);
    if (device == NULL)
        return dk_fail(error, DK_NO_MEMORY, "out of memory opening CUDA device %d", options->device_index);
    device->index = options->device_index;
    device->max_tokens = options->max_tokens;
    atomic_init(&device->is_failed, false);
    dk_status status = probe(device->index, &device->base.info, &properties, error);
    if (status != DK_OK)
        goto free_device;
    device->multiprocessor_count = properties.multiProcessorCount;
    device->max_grid_y = properties.maxGridSize[1];
    device->encode_map = dk_tensor_map_find_encoder();
    status = make_rules(options, device->encode_map != NULL, &device->rules, error);
    if (status != DK_OK)
        goto free_device;
    device->cublas = dk_cublas_new();
    if (device->cublas == NULL) {
        status = dk_fail(error, DK_NO_MEMORY, "out of memory opening CUDA device %d", options->device_index);
        goto free_device;
    }
    DK_CUDA_TRY(cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking), status, error,
                free_device);
    DK_CUDA_TRY(cudaEventCreate(&device->kernel_start), status, error, destroy_stream);
    DK_CUDA_TRY(cudaEventCreate(&device->kernel_stop), status, error, destroy_start);
    DK_CUDA_TRY(cudaMalloc(&device->d_staging, DK_CUDA_STAGING_BYTES), status, error, destroy_stop);
    device->staging_bytes = DK_CUDA_STAGING_BYTES;
    (void)pthread_mutex_init(&device->run_mutex, NULL); /* default attributes: cannot fail on Linux */
    *out = device;
    return DK_OK;

destroy_stop:
    (void)cudaEventDestroy(device->kernel_stop);
destroy_start:
    (void)cudaEventDestroy(device->kernel_start);
destroy_stream:
    (void)cudaStreamDestroy(device->stream);
free_device:
    dk_cublas_free(device->cublas);
    free(device);
    return status;
}

void dk_cuda_device_close(struct dk_cuda_device *device)
{
    if (device == NULL)
        return;
    /* After a fault these calls report it once more; there is nobody left to tell. */
    (void)cudaSetDevice(device->index);
    (void)cudaStreamSynchronize(device->stream);
    dk_cublas_free(device->cublas);
    (void)cudaFree(device->d_staging);
    (void)cudaEventDestroy(device->kernel_stop);
    (void)cudaEventDestroy(device->kernel_start);
    (void)cudaStreamDestroy(device->stream);
    (void)pthread_mutex_destroy(&device->run_mutex);
    free(device);
}

dk_status dk_cuda_device_enter(struct dk_cuda_device *device, struct dk_error *error)
{
    if (atomic_load_explicit(&device->is_failed, memory_order_relaxed))
        return dk_fail(error, DK_DEVICE_FAILED, "CUDA device %d failed earlier and is fenced", device->index);
    cudaError_t cuda_error = cudaSetDevice(device->index);
    if (cuda_error != cudaSuccess)
        return dk_cuda_device_note(device, dk_cuda_fail(error, cuda_error, "cudaSetDevice"));
    return DK_OK;
}

dk_status dk_cuda_device_note(struct dk_cuda_device *device, dk_status status)
{
    if (status == DK_DEVICE_FAILED)
        atomic_store_explicit(&device->is_failed, true, memory_order_relaxed);
    return status;
}

dk_status dk_cuda_device_reserve(struct dk_cuda_device *device, size_t bytes, struct dk_error *error)
{
    dk_status status = DK_OK;
    void *d_larger = NULL;
    (void)pthread_mutex_lock(&device->run_mutex);
    if (bytes > device->staging_bytes) {
        DK_CUDA_TRY(cudaMalloc(&d_larger, bytes), status, error, unlock);
        (void)cudaFree(device->d_staging);
        device->d_staging = d_larger;
        device->staging_bytes = bytes;
    }
unlock:
    (void)pthread_mutex_unlock(&device->run_mutex);
    return dk_cuda_device_note(device, status);
}
