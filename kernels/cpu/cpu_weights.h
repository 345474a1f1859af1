/* cpu_weights.h: B resident in packed panels, its bias and its plans. */
#ifndef DK_KERNELS_CPU_WEIGHTS_H
#define DK_KERNELS_CPU_WEIGHTS_H

#include "kernels/backend.h"

/* The members of struct dk_backend of the same names. */
dk_status dk_cpu_weights_new(struct dk_backend_device *device, const struct dk_weights_desc *desc,
                             size_t scratch_bytes, struct dk_backend_weights **out, struct dk_error *error);
dk_status dk_cpu_weights_assign(struct dk_backend_device *device, struct dk_backend_weights *weights,
                                const struct dk_weights_desc *desc, struct dk_error *error);
void dk_cpu_weights_free(struct dk_backend_device *device, struct dk_backend_weights *weights);

/* Zeroed memory on a 64-byte border; large blocks ask for huge pages (fewer address translations while the
 * weights stream). NULL when there is none. Free with free(). */
void *dk_cpu_alloc(size_t bytes);

#endif
