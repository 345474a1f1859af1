/* small_k.h: products whose K is so short that its chunks are a few steps each: everything around the
 * micro-kernel would cost more than the product. */
#ifndef DK_KERNELS_CPU_SMALL_K_H
#define DK_KERNELS_CPU_SMALL_K_H

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/reduce.h"

/* True when dk_cpu_small_k may compute it: a tiled plan with chunks below one inner block. */
bool dk_cpu_is_small_k(const struct dk_plan *plan);
/* The same bits as the tiled walk: the same chunks, summed in the same order. On the calling thread. */
void dk_cpu_small_k(const struct dk_isa *isa, struct dk_cpu_scratch *scratch,
                    const struct dk_cpu_weights *weights, const struct dk_plan *plan,
                    const struct dk_call *call, const struct dk_output *output);

#endif
