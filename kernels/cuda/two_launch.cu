/* two_launch.cu: partial GEMMs into [S,m,n] fp32, then one flat reduction with the fused epilogue. */
#include "kernels/cuda/two_launch.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace
{

constexpr int kTileM = DK_TWO_LAUNCH_TILE_M;
constexpr int kTileN = DK_TWO_LAUNCH_TILE_N;
constexpr int kTileK = DK_TWO_LAUNCH_TILE_K;
constexpr int kThreads = 256;
constexpr int kRowsPerThread = kTileM * kTileN / kThreads; /* 4 rows of one column */
constexpr int kReduceThreads = 256;

__device__ __forceinline__ float widen(float value)
{
    return value;
}
__device__ __forceinline__ float widen(__nv_bfloat16 value)
{
    return __bfloat162float(value);
}
__device__ __forceinline__ float widen(__half value)
{
    return __half2float(value);
}

/* grid (n tiles, S, m tiles). Sums of 16 products are closed before they join the chunk's accumulator:
 * rounding depth 16 + Kc/16 instead of Kc, which keeps the error inside the contract by worst-case analysis
 * for Kc >= 256 or so. */
template <typename A, typename B>
__global__ void __launch_bounds__(kThreads)
    partial_gemm(const A *__restrict__ a, size_t a_row_elements, const B *__restrict__ b,
                 float *__restrict__ partials, uint32_t m, uint32_t n, uint32_t k, uint32_t chunk_k)
{
    __shared__ float a_tile[kTileM][kTileK];
    __shared__ float b_tile[kTileK][kTileN];
    const uint32_t column = threadIdx.x % kTileN;
    const uint32_t row_group = threadIdx.x / kTileN;
    const uint32_t n_first = blockIdx.x * kTileN;
    const uint32_t m_first = blockIdx.z * kTileM;
    const uint32_t k_first = blockIdx.y * chunk_k;
    const uint32_t k_last = min(k, k_first + chunk_k);
    float sums[kRowsPerThread] = {};

    for (uint32_t k_tile = k_first; k_tile < k_last; k_tile += kTileK) {
        for (uint32_t i = threadIdx.x; i < kTileM * kTileK; i += kThreads) {
            const uint32_t row = m_first + i / kTileK;
            const uint32_t kk = k_tile + i % kTileK;
            a_tile[i / kTileK][i % kTileK] =
                row < m && kk < k_last ? widen(a[row * a_row_elements + kk]) : 0.0f;
        }
        for (uint32_t i = threadIdx.x; i < kTileK * kTileN; i += kThreads) {
            const uint32_t kk = k_tile + i / kTileN;
            const uint32_t nn = n_first + i % kTileN;
            b_tile[i / kTileN][i % kTileN] =
                kk < k_last && nn < n ? widen(b[static_cast<size_t>(kk) * n + nn]) : 0.0f;
        }
        __syncthreads();
        /* The padding beyond k_last is zero on both sides: 0 * 0, never 0 * infinity. */
#pragma unroll
        for (int half = 0; half < kTileK; half += 16) {
            float block[kRowsPerThread] = {};
#pragma unroll
            for (int kk = half; kk < half + 16; ++kk) {
                const float weight = b_tile[kk][column];
#pragma unroll
                for (int r = 0; r < kRowsPerThread; ++r)
                    block[r] = fmaf(a_tile[row_group * kRowsPerThread + r][kk], weight, block[r]);
            }
#pragma unroll
            for (int r = 0; r < kRowsPerThread; ++r)
                sums[r] += block[r];
        }
        __syncthreads();
    }
    if (n_first + column >= n)
        return;
#pragma unroll
    for (int r = 0; r < kRowsPerThread; ++r) {
        const uint32_t row = m_first + row_group * kRowsPerThread + r;
        if (row < m)
            partials[(static_cast<size_t>(blockIdx.y) * m + row) * n + n_first + column] = sums[r];
    }
}

__device__ __forceinline__ float apply_epilogue(float value, dk_epilogue epilogue)
{
    if (epilogue == DK_EPILOGUE_RELU)
        return value < 0.0f ? 0.0f : value; /* keeps NaN */
    if (epilogue == DK_EPILOGUE_SIGMOID)
        return 1.0f / (1.0f + expf(-value));
    return value;
}

__device__ __forceinline__ void store(float *c, float value)
{
    *c = value;
}
__device__ __forceinline__ void store(__nv_bfloat16 *c, float value)
{
    *c = __float2bfloat16_rn(value);
}
__device__ __forceinline__ void store(__half *c, float value)
{
    *c = __float2half_rn(value);
}

template <typename C>
__global__ void __launch_bounds__(kReduceThreads)
    reduce_epilogue(const float *__restrict__ partials, const float *__restrict__ bias, C *__restrict__ c,
                    size_t c_row_elements, uint32_t m, uint32_t n, uint32_t split_k, dk_epilogue epilogue)
{
    const size_t count = static_cast<size_t>(m) * n;
    const size_t stride = static_cast<size_t>(gridDim.x) * kReduceThreads;
    for (size_t i = static_cast<size_t>(blockIdx.x) * kReduceThreads + threadIdx.x; i < count; i += stride) {
        float sum = partials[i];
        for (uint32_t s = 1; s < split_k; ++s)
            sum += partials[s * count + i];
        const size_t row = i / n;
        const size_t column = i - row * n;
        if (bias != nullptr)
            sum += bias[column];
        store(c + row * c_row_elements + column, apply_epilogue(sum, epilogue));
    }
}

template <typename A, typename B>
cudaError_t launch_partial(const dk_two_launch_args &args, cudaStream_t stream)
{
    const dim3 grid((args.n + kTileN - 1) / kTileN, args.split_k, (args.m + kTileM - 1) / kTileM);
    partial_gemm<A, B><<<grid, kThreads, 0, stream>>>(static_cast<const A *>(args.d_a), args.a_row_elements,
                                                      static_cast<const B *>(args.d_b), args.d_partials,
                                                      args.m, args.n, args.k, args.chunk_k);
    return cudaGetLastError();
}

template <typename A> cudaError_t launch_partial_a(const dk_two_launch_args &args, cudaStream_t stream)
{
    switch (args.b_dtype) {
    case DK_FP32:
        return launch_partial<A, float>(args, stream);
    case DK_BF16:
        return launch_partial<A, __nv_bfloat16>(args, stream);
    case DK_FP16:
        return launch_partial<A, __half>(args, stream);
    default:
        return cudaErrorInvalidValue;
    }
}

template <typename C> cudaError_t launch_reduce(const dk_two_launch_args &args, cudaStream_t stream)
{
    const size_t count = static_cast<size_t>(args.m) * args.n;
    const size_t blocks = (count + kReduceThreads - 1) / kReduceThreads;
    const unsigned grid =
        static_cast<unsigned>(blocks < 4096 ? blocks : 4096); /* the kernel strides over the rest */
    reduce_epilogue<C><<<grid, kReduceThreads, 0, stream>>>(args.d_partials, args.d_bias,
                                                            static_cast<C *>(args.d_c), args.c_row_elements,
                                                            args.m, args.n, args.split_k, args.epilogue);
    return cudaGetLastError();
}

} // namespace

extern "C" cudaError_t dk_two_launch_enqueue(const dk_two_launch_args *args, cudaStream_t stream)
{
    cudaError_t error = cudaErrorInvalidValue;
    switch (args->a_dtype) {
    case DK_FP32:
        error = launch_partial_a<float>(*args, stream);
        break;
    case DK_BF16:
        error = launch_partial_a<__nv_bfloat16>(*args, stream);
        break;
    case DK_FP16:
        error = launch_partial_a<__half>(*args, stream);
        break;
    default:
        break;
    }
    if (error != cudaSuccess)
        return error;
    switch (args->c_dtype) {
    case DK_FP32:
        return launch_reduce<float>(*args, stream);
    case DK_BF16:
        return launch_reduce<__nv_bfloat16>(*args, stream);
    case DK_FP16:
        return launch_reduce<__half>(*args, stream);
    default:
        return cudaErrorInvalidValue;
    }
}
