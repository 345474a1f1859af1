/* launch.h: from a variant of the table to a launch with its attributes; and what this device can run. */
#ifndef DK_KERNELS_CUDA_LAUNCH_H
#define DK_KERNELS_CUDA_LAUNCH_H

#include <cuda_runtime_api.h>

#include "kernels/cuda/small_args.h"
#include "kernels/cuda/variant.h"

/* Loads the variant's code on the current device, sets its attributes, and asks whether it can run here:
 * false where its cluster does not fit or no code was compiled for the device. Not during a capture. */
bool dk_launch_prepare(const struct dk_variant *variant);

/* Enqueue one product; the caller checked types, alignment and that `shape` is dk_variant_fit's.
 * `is_dependent`: may start while the kernel before it on the stream drains. */
cudaError_t dk_launch_variant(const struct dk_variant *variant, const struct dk_variant_shape *shape,
                              const struct dk_small_args *args, bool is_dependent, cudaStream_t stream);

#endif
