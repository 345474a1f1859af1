/* cuda_plan.c: chunks of 256 until there are 64 of them, then longer ones. */
#include "kernels/cuda/cuda_plan.h"

#include "kernels/cuda/two_launch.h"

/* K = 7168, N = 256 gives 28 chunks x 4 column tiles = 112 blocks at one row tile: most of a 132-SM device,
 * with partials of 117 MB at 4,096 rows. */
enum { MIN_CHUNK_K = 256, MAX_SPLIT_K = 64 };

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

void dk_cuda_plan_choose(uint64_t n, uint64_t k, uint32_t bucket_rows, struct dk_plan *out)
{
    uint64_t chunk = ceil_div(k, MAX_SPLIT_K);
    if (chunk < MIN_CHUNK_K)
        chunk = MIN_CHUNK_K;
    chunk = ceil_div(chunk, DK_TWO_LAUNCH_TILE_K) *
            DK_TWO_LAUNCH_TILE_K; /* whole K tiles; the last takes the rest */
    uint64_t split = ceil_div(k, chunk);
    *out = (struct dk_plan){
        .variant = "cuda_two_launch_fma_16x64x32",
        .bucket_rows = bucket_rows,
        .split_k = (uint32_t)split,
        .chunk_k = (uint32_t)chunk,
        .tile_m = DK_TWO_LAUNCH_TILE_M,
        .tile_n = DK_TWO_LAUNCH_TILE_N,
        .workspace_bytes = (size_t)(split * bucket_rows * n * sizeof(float)),
    };
}
