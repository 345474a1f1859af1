/* pack.h: B in panels of columns, step by step, as the micro-kernels read it. Pure. */
#ifndef DK_KERNELS_CPU_PACK_H
#define DK_KERNELS_CPU_PACK_H

#include "kernels/plan.h"

/* Bytes of one full panel (also the distance between panels) and of all panels. SIZE_MAX on overflow. */
size_t dk_panel_stride_bytes(uint64_t k, dk_dtype dtype);
size_t dk_packed_bytes(uint64_t n, uint64_t k, dk_dtype dtype);
/* Fills all panels from desc->data (any alignment); padding columns and the odd half of a last bf16 pair
 * are zero. `packed` has dk_packed_bytes. */
void dk_pack(const struct dk_weights_desc *desc, void *packed);
/* First byte of step k (even) of a panel of `width` columns. */
static inline const void *dk_panel_step(const void *panel, dk_dtype dtype, uint64_t k, uint32_t width)
{
    return (const char *)panel + k * width * dk_dtype_bytes(dtype);
}

#endif
