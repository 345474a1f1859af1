/* two_launch.cu: partial GEMMs into [S,m,n] fp32, then one flat reduction with the fused epilogue. */
#include "kernels/cuda/two_launch.h"

#include <type_traits>

#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/partial_mma.cuh"
#include "kernels/cuda/ptx_sm90.cuh"

namespace
{

constexpr int kTileM = DK_TWO_LAUNCH_TILE_M;
constexpr int kTileN = DK_TWO_LAUNCH_TILE_N;
constexpr int kTileK = DK_TWO_LAUNCH_TILE_K;
constexpr int kThreads = 256;
constexpr int kRowsPerThread = kTileM * kTileN / kThreads; /* 4 rows of one column */
constexpr int kStride = kTileK + 4; /* 16-byte reads of neighbouring columns miss no bank */
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

/* Rows [first, first + ROWS) x [k0, k_end) of a row-major operand into shared memory as fp32, zeros beyond: 0
 * * 0, never 0 * infinity. IS_ALIGNED: 16-byte aligned rows, and k0 and k_end multiples of 16 bytes. */
template <int ROWS, bool IS_ALIGNED, typename T>
__device__ __forceinline__ void load_tile(const T *source, size_t row_elements, uint32_t first,
                                          uint32_t row_count, uint32_t k0, uint32_t k_end,
                                          float (*tile)[kStride])
{
    constexpr int kVector = IS_ALIGNED ? 16 / sizeof(T) : 1;
    constexpr int kPerRow = kTileK / kVector;
    for (uint32_t i = threadIdx.x; i < ROWS * kPerRow; i += kThreads) {
        const uint32_t row = i / kPerRow, kk = i % kPerRow * kVector;
        const bool is_inside = first + row < row_count && k0 + kk < k_end;
        const T *from = source + (first + row) * row_elements + k0 + kk;
        if constexpr (IS_ALIGNED) {
            uint4 bits = make_uint4(0, 0, 0, 0);
            if (is_inside)
                bits = dk::load_activations(from);
            const T *values = reinterpret_cast<const T *>(&bits);
#pragma unroll
            for (int v = 0; v < kVector; ++v)
                tile[row][kk + v] = widen(values[v]);
        } else {
            tile[row][kk] = is_inside ? widen(*from) : 0.0f;
        }
    }
}

/* grid (n tiles, S, m tiles). Sums of 16 products are closed before they join the chunk's accumulator:
 * rounding depth 16 + Kc/16 instead of Kc, which keeps the error inside the contract by worst-case analysis
 * for Kc >= 256 or so. */
template <typename A, typename B, bool IS_ALIGNED>
__global__ void __launch_bounds__(kThreads)
    partial_gemm(const A *a, size_t a_row_elements, const B *b, size_t b_row_elements, float *partials,
                 uint32_t m, uint32_t n, uint32_t k, uint32_t chunk_k)
{
    __shared__ __align__(16) float a_tile[kTileM][kStride];
    __shared__ __align__(16) float b_tile[kTileN][kStride];
    const uint32_t column = threadIdx.x % kTileN, row_group = threadIdx.x / kTileN;
    const uint32_t n_first = blockIdx.x * kTileN, m_first = blockIdx.z * kTileM;
    const uint32_t k_first = blockIdx.y * chunk_k, k_last = min(k, k_first + chunk_k);
    float sums[kRowsPerThread] = {};

    dk::grid_dependency_trigger();
    dk::grid_dependency_wait(); /* A may be, and the partials still are, in use by the kernels before */
    for (uint32_t k_tile = k_first; k_tile < k_last; k_tile += kTileK) {
        load_tile<kTileM, IS_ALIGNED>(a, a_row_elements, m_first, m, k_tile, k_last, a_tile);
        load_tile<kTileN, IS_ALIGNED>(b, b_row_elements, n_first, n, k_tile, k_last, b_tile);
        __syncthreads();
#pragma unroll
        for (int half = 0; half < kTileK; half += 16) {
            float block[kRowsPerThread] = {};
#pragma unroll
            for (int kk = half; kk < half + 16; kk += 4) {
                const float4 w = *reinterpret_cast<const float4 *>(&b_tile[column][kk]);
#pragma unroll
                for (int r = 0; r < kRowsPerThread; ++r) {
                    const float4 x =
                        *reinterpret_cast<const float4 *>(&a_tile[row_group * kRowsPerThread + r][kk]);
                    block[r] = fmaf(x.x, w.x, block[r]);
                    block[r] = fmaf(x.y, w.y, block[r]);
                    block[r] = fmaf(x.z, w.z, block[r]);
                    block[r] = fmaf(x.w, w.w, block[r]);
                }
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

__device__ __forceinline__ float apply_epilogue(float value, uint32_t epilogue)
{
    if (epilogue == DK_EPILOGUE_SIGMOID)
        return dk::sigmoid(value);
    return epilogue == DK_EPILOGUE_RELU && value < 0.0f ? 0.0f : value; /* keeps NaN */
}

template <int WIDTH> struct Partial;
template <> struct Partial<1> {
    float v[1];
};
template <> struct alignas(16) Partial<4> {
    float v[4];
};

/* Flat over the m * n elements, WIDTH at a time (n is a multiple of it): chunks in index order, whatever the
 * width. */
template <typename C, int WIDTH>
__global__ void __launch_bounds__(kReduceThreads)
    reduce_epilogue(const float *partials, const float *bias, C *c, size_t c_row_elements, uint32_t m,
                    uint32_t n, uint32_t split_k, uint32_t epilogue)
{
    const size_t count = static_cast<size_t>(m) * n / WIDTH;
    const size_t stride = static_cast<size_t>(gridDim.x) * kReduceThreads;
    const Partial<WIDTH> *slab = reinterpret_cast<const Partial<WIDTH> *>(partials);
    dk::grid_dependency_trigger();
    dk::grid_dependency_wait();
    for (size_t i = static_cast<size_t>(blockIdx.x) * kReduceThreads + threadIdx.x; i < count; i += stride) {
        Partial<WIDTH> sum = slab[i];
#pragma unroll 8
        for (uint32_t s = 1; s < split_k; ++s) {
            const Partial<WIDTH> part = slab[s * count + i];
#pragma unroll
            for (int j = 0; j < WIDTH; ++j)
                sum.v[j] += part.v[j];
        }
        const size_t row = i * WIDTH / n;
        const size_t column = i * WIDTH - row * n;
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            const float value = bias != nullptr ? sum.v[j] + bias[column + j] : sum.v[j];
            store(c + row * c_row_elements + column + j, apply_epilogue(value, epilogue));
        }
    }
}

/* Both launches share one way to be enqueued. */
struct Launcher {
    cudaStream_t stream;
    bool is_dependent;

    template <typename... Parameters, typename... Arguments>
    cudaError_t operator()(void (*kernel)(Parameters...), dim3 grid, unsigned threads,
                           Arguments... arguments) const
    {
        cudaLaunchAttribute attribute;
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = grid;
        config.blockDim = dim3(threads);
        config.stream = stream;
        config.attrs = &attribute;
        config.numAttrs = is_dependent ? 1 : 0;
        return cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
    }
};

bool is_vector_aligned(const void *pointer, size_t row_elements, size_t element_bytes)
{
    return reinterpret_cast<uintptr_t>(pointer) % 16 == 0 && row_elements * element_bytes % 16 == 0;
}

template <typename A, typename B, bool IS_ALIGNED>
cudaError_t launch_aligned(const dk_two_launch_args &args, const Launcher &launch)
{
    const dim3 grid((args.n + kTileN - 1) / kTileN, args.split_k, (args.m + kTileM - 1) / kTileM);
    return launch(partial_gemm<A, B, IS_ALIGNED>, grid, kThreads, static_cast<const A *>(args.d_a),
                  args.a_row_elements, static_cast<const B *>(args.d_b), args.b_row_elements, args.d_partials,
                  args.m, args.n, args.k, args.chunk_k);
}

/* What partial_mma.cuh takes when it is aligned as well. */
template <typename A, typename B>
constexpr bool kIsForTensorCores = std::is_same_v<A, B> && sizeof(A) == sizeof(uint16_t);

template <typename T, int TILES>
cudaError_t launch_mma_tiles(const dk_two_launch_args &args, const Launcher &launch)
{
    const dim3 grid((args.n + dk::kPartialColumns - 1) / dk::kPartialColumns, args.split_k,
                    (args.m + 8 * TILES - 1) / (8 * TILES));
    return launch(dk::partial_mma<T, TILES>, grid, dk::kPartialWarps * 32, static_cast<const T *>(args.d_a),
                  args.a_row_elements, static_cast<const T *>(args.d_b), args.b_row_elements, args.d_partials,
                  args.m, args.n, args.k, args.chunk_k);
}

template <typename T> cudaError_t launch_mma(const dk_two_launch_args &args, const Launcher &launch)
{
    if (args.m <= 8)
        return launch_mma_tiles<T, 1>(args, launch);
    if (args.m <= 16)
        return launch_mma_tiles<T, 2>(args, launch);
    return args.m <= 32 ? launch_mma_tiles<T, 4>(args, launch) : launch_mma_tiles<T, 8>(args, launch);
}

template <typename A, typename B>
cudaError_t launch_partial(const dk_two_launch_args &args, const Launcher &launch)
{
    const bool is_aligned = args.k % 8 == 0 && args.chunk_k % 8 == 0 &&
                            is_vector_aligned(args.d_a, args.a_row_elements, sizeof(A)) &&
                            is_vector_aligned(args.d_b, args.b_row_elements, sizeof(B));
    if constexpr (kIsForTensorCores<A, B>)
        return is_aligned ? launch_mma<A>(args, launch) : launch_aligned<A, B, false>(args, launch);
    else
        return is_aligned ? launch_aligned<A, B, true>(args, launch)
                          : launch_aligned<A, B, false>(args, launch);
}

template <typename A> cudaError_t launch_partial_a(const dk_two_launch_args &args, const Launcher &launch)
{
    switch (args.b_dtype) {
    case DK_FP32:
        return launch_partial<A, float>(args, launch);
    case DK_BF16:
        return launch_partial<A, __nv_bfloat16>(args, launch);
    case DK_FP16:
        return launch_partial<A, __half>(args, launch);
    default:
        return cudaErrorInvalidValue;
    }
}

template <typename C> cudaError_t launch_reduce(const dk_two_launch_args &args, const Launcher &launch)
{
    const bool is_wide = args.n % 4 == 0 && reinterpret_cast<uintptr_t>(args.d_partials) % 16 == 0;
    const size_t count = static_cast<size_t>(args.m) * args.n / (is_wide ? 4 : 1);
    const size_t blocks = (count + kReduceThreads - 1) / kReduceThreads;
    const dim3 grid(
        static_cast<unsigned>(blocks < 4096 ? blocks : 4096)); /* the kernel strides over the rest */
    return launch(is_wide ? reduce_epilogue<C, 4> : reduce_epilogue<C, 1>, grid, kReduceThreads,
                  args.d_partials, args.d_bias, static_cast<C *>(args.d_c), args.c_row_elements, args.m,
                  args.n, args.split_k, static_cast<uint32_t>(args.epilogue));
}

template <typename... Kernels> cudaError_t load_all(Kernels... kernels)
{
    cudaError_t error = cudaSuccess;
    cudaFuncAttributes attributes;
    ((error = error != cudaSuccess ? error : cudaFuncGetAttributes(&attributes, kernels)), ...);
    return error;
}
template <typename A, typename B> cudaError_t load_partial()
{
    if constexpr (kIsForTensorCores<A, B>)
        return load_all(dk::partial_mma<A, 1>, dk::partial_mma<A, 2>, dk::partial_mma<A, 4>,
                        dk::partial_mma<A, 8>, partial_gemm<A, B, false>);
    else
        return load_all(partial_gemm<A, B, true>, partial_gemm<A, B, false>);
}
template <typename T> cudaError_t load_type()
{
    cudaFuncAttributes attributes;
    cudaError_t error = load_partial<T, float>();
    if (error == cudaSuccess)
        error = load_partial<T, __nv_bfloat16>();
    if (error == cudaSuccess)
        error = load_partial<T, __half>();
    if (error == cudaSuccess)
        error = cudaFuncGetAttributes(&attributes, reduce_epilogue<T, 4>);
    return error != cudaSuccess ? error : cudaFuncGetAttributes(&attributes, reduce_epilogue<T, 1>);
}

} // namespace

extern "C" cudaError_t dk_two_launch_prepare(void)
{
    cudaError_t error = load_type<float>();
    if (error == cudaSuccess)
        error = load_type<__nv_bfloat16>();
    return error != cudaSuccess ? error : load_type<__half>();
}

extern "C" cudaError_t dk_two_launch_reduce(const dk_two_launch_args *args, cudaStream_t stream)
{
    const Launcher launch = {stream, args->is_dependent};
    switch (args->c_dtype) {
    case DK_FP32:
        return launch_reduce<float>(*args, launch);
    case DK_BF16:
        return launch_reduce<__nv_bfloat16>(*args, launch);
    case DK_FP16:
        return launch_reduce<__half>(*args, launch);
    default:
        return cudaErrorInvalidValue;
    }
}

extern "C" cudaError_t dk_two_launch_enqueue(const dk_two_launch_args *args, cudaStream_t stream)
{
    const Launcher launch = {stream, args->is_dependent};
    cudaError_t error = cudaErrorInvalidValue;
    switch (args->a_dtype) {
    case DK_FP32:
        error = launch_partial_a<float>(*args, launch);
        break;
    case DK_BF16:
        error = launch_partial_a<__nv_bfloat16>(*args, launch);
        break;
    case DK_FP16:
        error = launch_partial_a<__half>(*args, launch);
        break;
    default:
        break;
    }
    return error != cudaSuccess ? error : dk_two_launch_reduce(args, stream);
}
