/* blas_plan.h: OpenBLAS as a candidate: measured once per B, used for the buckets where it won. */
#ifndef DK_KERNELS_CPU_BLAS_PLAN_H
#define DK_KERNELS_CPU_BLAS_PLAN_H

#include "kernels/cpu/cpu_backend.h"

/* Keeps an fp32 copy of B and, when one sgemm is faster than the own kernels at 256 rows (or the largest
 * bucket), gives the buckets from there on to OpenBLAS; else drops the copy. Takes milliseconds. */
dk_status dk_cpu_consider_blas(struct dk_cpu_device *device, struct dk_cpu_weights *weights,
                               const struct dk_weights_desc *desc, struct dk_error *error);
/* A plan of form DK_PLAN_BLAS. Called with the device's turn held. */
void dk_cpu_blas_product(struct dk_cpu_device *device, const struct dk_cpu_weights *weights,
                         const struct dk_call *call);

#endif
