/* cuda_device.h: one opened CUDA device: its lane (stream, staging, timers), limits, and the fence after a
 * fault. */
#ifndef DK_KERNELS_CUDA_DEVICE_H
#define DK_KERNELS_CUDA_DEVICE_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>

#include "kernels/backend.h"
#include "kernels/cuda/cublas.h"
#include "kernels/cuda/cuda_plan.h"
#include "kernels/cuda/tensor_map.h"

struct dk_cuda_device {
    struct dk_backend_device base;
    int index;
    int multiprocessor_count;
    int max_grid_y;
    uint32_t max_tokens;
    struct dk_cuda_plan_rules rules;  /* constant once open */
    dk_tensor_map_encoder encode_map; /* NULL: the driver has none, and no wgmma variant is usable */
    struct dk_cublas *cublas;
    atomic_bool is_failed;     /* set by a sticky error: every later call answers DK_DEVICE_FAILED */
    pthread_mutex_t run_mutex; /* one dk_run_host at a time: the lane below is shared */
    cudaStream_t stream;
    cudaEvent_t kernel_start, kernel_stop;
    void *d_staging; /* A rows, then C rows, then a bias of this lane */
    size_t staging_bytes;
};

/* Opens options->device_index; DK_UNAVAILABLE with what is missing (driver, device) and what was needed. */
dk_status dk_cuda_device_open(const struct dk_engine_options *options, struct dk_cuda_device **out,
                              struct dk_error *error);
void dk_cuda_device_close(struct dk_cuda_device *device);
/* Make this thread's current device ours. DK_DEVICE_FAILED when fenced. */
dk_status dk_cuda_device_enter(struct dk_cuda_device *device, struct dk_error *error);
/* Note a failure: a sticky one (anything but memory exhaustion) fences the device for good. Returns `status`.
 */
dk_status dk_cuda_device_note(struct dk_cuda_device *device, dk_status status);
/* Grow the lane's staging to at least `bytes`; called while loading only. */
dk_status dk_cuda_device_reserve(struct dk_cuda_device *device, size_t bytes, struct dk_error *error);

#endif
