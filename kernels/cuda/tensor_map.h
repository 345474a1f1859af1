/* tensor_map.h: tensor maps: how the copy engine finds boxes of a matrix. The encoder is the driver's, found
 * at run time: the plugin must load where there is none. */
#ifndef DK_KERNELS_CUDA_TENSOR_MAP_H
#define DK_KERNELS_CUDA_TENSOR_MAP_H

#include <cudaTypedefs.h>
#include <stdbool.h>
#include <stddef.h>

typedef PFN_cuTensorMapEncodeTiled_v12000 dk_tensor_map_encoder;

/* NULL where the driver has none. */
dk_tensor_map_encoder dk_tensor_map_find_encoder(void);

/* bf16 rows of `k` elements, `row_elements` apart, in boxes of 64 elements x `box_rows` (at most 256),
 * 128-byte swizzle, zeros outside. False where the driver refuses: rows not on 16-byte borders, sizes out of
 * range. */
bool dk_tensor_map_make(dk_tensor_map_encoder encode, const void *d_rows, size_t rows, size_t k,
                        size_t row_elements, unsigned box_rows, CUtensorMap *out);

#endif
