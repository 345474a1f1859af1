/* cuda_plan.h: shape + bucket -> plan of the two-launch form (pure). */
#ifndef DK_KERNELS_CUDA_PLAN_H
#define DK_KERNELS_CUDA_PLAN_H

#include "kernels/backend.h"

/* Fills *out for `bucket_rows` rows of a [k, n] weight. The chunks depend on k alone, so a row's bits depend
 * neither on how many rows come with it nor on the device. */
void dk_cuda_plan_choose(uint64_t n, uint64_t k, uint32_t bucket_rows, struct dk_plan *out);

#endif
