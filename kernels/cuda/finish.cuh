/* finish.cuh: how a sum becomes an element of C: bias, epilogue, cast, store. */
#ifndef DK_KERNELS_CUDA_FINISH_CUH
#define DK_KERNELS_CUDA_FINISH_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/small_args.h"
#include "proto/gemm.h"

namespace dk
{

__device__ __forceinline__ float apply_epilogue(float value, uint32_t epilogue)
{
    if (epilogue == DK_EPILOGUE_RELU)
        return value < 0.0f ? 0.0f : value; /* keeps NaN */
    if (epilogue == DK_EPILOGUE_SIGMOID)
        return 1.0f / (1.0f + expf(-value));
    return value;
}

/* The types are run-time values: measured, the branches cost nothing behind a reduction across threads. */
__device__ __forceinline__ void store_element(const dk_small_args &args, uint32_t row, uint32_t column,
                                              float sum)
{
    if (args.bias != nullptr)
        sum += args.bias[column];
    sum = apply_epilogue(sum, args.epilogue);
    const size_t at = static_cast<size_t>(row) * args.c_stride + column;
    if (args.is_c_bf16)
        static_cast<__nv_bfloat16 *>(args.c)[at] = __float2bfloat16_rn(sum);
    else
        static_cast<float *>(args.c)[at] = sum;
}

/* The two bf16 of a word, exactly, as fp32. */
__device__ __forceinline__ float low_half(uint32_t word)
{
    return __uint_as_float(word << 16);
}
__device__ __forceinline__ float high_half(uint32_t word)
{
    return __uint_as_float(word & 0xffff0000u);
}

} // namespace dk

#endif
