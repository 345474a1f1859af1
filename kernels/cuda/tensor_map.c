/* tensor_map.c: see tensor_map.h. */
#include "kernels/cuda/tensor_map.h"

#include <cuda_runtime_api.h>

#include "kernels/cuda/wgmma_args.h"

enum { SINCE_VERSION = 12000 };

dk_tensor_map_encoder dk_tensor_map_find_encoder(void)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, SINCE_VERSION,
                                                         cudaEnableDefault, &found);
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    bool is_found = error == cudaSuccess && found == cudaDriverEntryPointSuccess;
    return is_found ? (dk_tensor_map_encoder)function : NULL;
}

bool dk_tensor_map_make(dk_tensor_map_encoder encode, const void *d_rows, size_t rows, size_t k,
                        size_t row_elements, unsigned box_rows, CUtensorMap *out)
{
    cuuint64_t sizes[2] = {k, rows}, strides[1] = {row_elements * sizeof(uint16_t)};
    cuuint32_t box[2] = {DK_WGMMA_STEP_K, box_rows}, steps[2] = {1, 1};
    return encode(out, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)d_rows, sizes, strides, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
