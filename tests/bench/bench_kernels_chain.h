/* bench_kernels_chain.h: the time of a chain of launches: a replayed CUDA graph between two events. */
#ifndef DK_BENCH_KERNELS_CHAIN_H
#define DK_BENCH_KERNELS_CHAIN_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

/* Enqueue link `index` on `stream`; false stops. */
typedef bool (*bench_link)(void *context, unsigned index, cudaStream_t stream);
/* Median over `repeats` replays of `count` links, microseconds a link; a negative number when a link failed.
 */
double bench_chain_us(bench_link link, void *context, unsigned count, unsigned repeats);
/* Ends the program with the text of `error` when there is one. */
void bench_check(cudaError_t error, const char *what);
/* Device memory with random bf16 in [-1, 1). */
void *bench_random_bf16(size_t count);

#endif
