/* cuda_try.h: one way to turn a CUDA error into a status with the call and the driver's text. */
#ifndef DK_KERNELS_CUDA_TRY_H
#define DK_KERNELS_CUDA_TRY_H

#include <cuda_runtime_api.h>

#include "proto/status.h"

/* Evaluates `call` once; on failure sets `status` and jumps to `label`. */
#define DK_CUDA_TRY(call, status, error, label)                                                              \
    do {                                                                                                     \
        cudaError_t dk_cuda_error_ = (call);                                                                 \
        if (dk_cuda_error_ != cudaSuccess) {                                                                 \
            (status) = dk_cuda_fail((error), dk_cuda_error_, #call);                                         \
            goto label;                                                                                      \
        }                                                                                                    \
    } while (0)

/* DK_NO_MEMORY for an allocation failure, else DK_DEVICE_FAILED. Clears the runtime's last-error word, so
 * that an innocent later launch does not report this failure again (sticky errors come back by themselves).
 */
dk_status dk_cuda_fail(struct dk_error *error, cudaError_t cuda_error, const char *call);

#endif
