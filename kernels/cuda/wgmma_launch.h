/* wgmma_launch.h: from a wgmma variant of the table to a launch; and what this device can run. */
#ifndef DK_KERNELS_CUDA_WGMMA_LAUNCH_H
#define DK_KERNELS_CUDA_WGMMA_LAUNCH_H

#include <cuda_runtime_api.h>

#include "kernels/cuda/small_args.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/variant.h"

/* Loads the variant's code on the current device and asks whether its cluster fits with its shared memory.
 * Not during a capture. */
bool dk_wgmma_prepare(const struct dk_variant *variant);

/* Enqueue one product; the caller checked types, alignment and that `shape` is dk_variant_fit's. `args`: of
 * these only the operands, sizes and the epilogue count. cudaErrorNotSupported, and nothing enqueued, where
 * the driver takes no tensor map of A. */
cudaError_t dk_wgmma_launch(const struct dk_variant *variant, const struct dk_variant_shape *shape,
                            const struct dk_small_args *args, dk_tensor_map_encoder encode,
                            const CUtensorMap *w_map, bool is_dependent, cudaStream_t stream);

#endif
