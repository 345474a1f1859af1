/* tree.cuh: the one order in which kernels that share a tree add up a row's products, so that its bits do not
 * depend on the tile that computes it.
 *
 *   piece  32 of K, two mma m16n8k16 chained: lane quarter q holds K 8q..8q+7, first mma 8q..8q+3
 *   unit   two neighbouring pieces: first + second
 *   chunk  1/16 of K, rounded up to whole units: even units in order + odd units in order
 *   sum    (chunk 0 + chunk 1) + (chunk 2 + chunk 3) + ...: 8 pairs in order
 * Where a piece, unit or chunk lies beyond k it counts as zero. */
#ifndef DK_KERNELS_CUDA_TREE_CUH
#define DK_KERNELS_CUDA_TREE_CUH

#include <cstdint>

namespace dk
{

constexpr int kPieceK = 32, kUnitK = 64, kChunks = 16;

/* Units of each chunk of k. */
__host__ __device__ constexpr uint32_t chunk_units(uint32_t k)
{
    return (k + kChunks * kUnitK - 1) / (kChunks * kUnitK);
}

/* Sum of `count` <= MAX units, a stride apart; MAX and count agree where IS_EXACT. */
template <int MAX, bool IS_EXACT>
__device__ __forceinline__ float sum_units(const float *units, uint32_t stride, uint32_t count)
{
    float even = 0.0f, odd = 0.0f;
#pragma unroll
    for (int i = 0; i < MAX; ++i) {
        const float unit = IS_EXACT || i < count ? units[i * stride] : 0.0f;
        (i % 2 ? odd : even) += unit;
    }
    return even + odd;
}

/* Sum of the parts that the ranks of a cluster sent: chunks where there are 16, pairs of chunks where 8. */
template <int SPLITS> __device__ __forceinline__ float sum_ranks(const float *parts, uint32_t stride)
{
    static_assert(SPLITS == kChunks || SPLITS == kChunks / 2, "a rank is a chunk or a pair");
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < SPLITS; i += SPLITS / 8)
        sum += SPLITS == kChunks ? parts[i * stride] + parts[(i + 1) * stride] : parts[i * stride];
    return sum;
}

} // namespace dk

#endif
