/* wgmma_launch.h: from a wgmma plan to a launch; and what this device can run. */
#ifndef DK_KERNELS_CUDA_WGMMA_LAUNCH_H
#define DK_KERNELS_CUDA_WGMMA_LAUNCH_H

#include <cuda_runtime_api.h>

#include "kernels/cuda/small_args.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/wgmma_plan.h"

/* Loads the code of all wgmma variants on the current device and asks how many blocks of each cluster it can
 * hold. Not during a capture. */
void dk_wgmma_query(struct dk_wgmma_limits *out);

/* Enqueue one product; the caller checked types and alignment. `args`: of these only the operands, sizes and
 * the epilogue count. cudaErrorNotSupported, and nothing enqueued, where the driver takes no tensor map of A.
 */
cudaError_t dk_wgmma_launch(const struct dk_wgmma_choice *choice, const struct dk_small_args *args,
                            dk_tensor_map_encoder encode, const CUtensorMap *w_map, bool is_dependent,
                            cudaStream_t stream);

#endif
