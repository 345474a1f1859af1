/* finish.cuh: how a sum becomes an element of C: bias, epilogue, cast, store. */
#ifndef DK_KERNELS_CUDA_FINISH_CUH
#define DK_KERNELS_CUDA_FINISH_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/small_args.h"
#include "proto/gemm.h"

namespace dk
{

/* Within 1 ulp, without the long way round of a division. */
__device__ __forceinline__ float reciprocal(float value)
{
    float result;
    asm("rcp.approx.f32 %0, %1;" : "=f"(result) : "f"(value));
    return result;
}

__device__ __forceinline__ float sigmoid(float value)
{
    return reciprocal(1.0f + expf(-value));
}

/* Asked for before a kernel waits for its last sums, so that it is there when they are. */
template <bool IS_LEAN> __device__ __forceinline__ float load_bias(const dk_small_args &args, uint32_t column)
{
    return !IS_LEAN && args.bias != nullptr ? args.bias[column] : 0.0f;
}

/* IS_LEAN: C is fp32, no bias, no sigmoid. The code of the other cases, even when it is jumped over, costs up
 * to 0.1 us of 2.5; ReLU costs nothing. */
template <bool IS_LEAN>
__device__ __forceinline__ void store_element(const dk_small_args &args, uint32_t row, uint32_t column,
                                              float sum, float bias)
{
    const float biased = IS_LEAN ? sum : sum + bias;
    float value = biased < args.floor ? args.floor : biased; /* keeps NaN */
    const size_t at = static_cast<size_t>(row) * args.c_stride + column;
    if constexpr (!IS_LEAN) {
        if (args.is_sigmoid)
            value = sigmoid(value);
        if (args.is_c_bf16) {
            static_cast<__nv_bfloat16 *>(args.c)[at] = __float2bfloat16_rn(value);
            return;
        }
    }
    static_cast<float *>(args.c)[at] = value;
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
