/* cuda_measure.h: the time of a chain of products on the device: a replayed graph between two events. */
#ifndef DK_KERNELS_CUDA_MEASURE_H
#define DK_KERNELS_CUDA_MEASURE_H

#include "kernels/cuda/cuda_device.h"

/* dk_backend.measure, with the backend's own enqueue. Works on a stream of its own, beside products that are
 * under way. The device must have been entered. */
dk_status dk_cuda_measure(struct dk_cuda_device *device,
                          __typeof__(((struct dk_backend *)0)->enqueue) enqueue,
                          const struct dk_backend_weights *const *weights, const struct dk_measure *measure,
                          const struct dk_plan *plan, double *out_ns, struct dk_error *error);

#endif
