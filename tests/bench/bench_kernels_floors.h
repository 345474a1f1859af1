/* bench_kernels_floors.h: kernels that no product can be faster than, and a stand-in for the layer before a
 * router. */
#ifndef DK_BENCH_KERNELS_FLOORS_H
#define DK_BENCH_KERNELS_FLOORS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All are capturable; `is_dependent`: launched with programmatic dependent launch. */
cudaError_t bench_empty_enqueue(bool is_dependent, cudaStream_t stream);
/* Reads `bytes` (a multiple of 16) at d_weights once, as the products do, and computes nothing. d_sink: 4
 * bytes. */
cudaError_t bench_read_enqueue(const void *d_weights, size_t bytes, void *d_sink, bool is_dependent,
                               cudaStream_t stream);
/* Occupies the device for `cycles` of its clock: over the time it took, the clock that the device runs at. */
cudaError_t bench_spin_enqueue(long long cycles, cudaStream_t stream);
/* One block a row: d_a[rows, row_bytes] = d_x. row_bytes is a multiple of 16. */
cudaError_t bench_producer_enqueue(void *d_a, const void *d_x, unsigned rows, size_t row_bytes,
                                   bool is_dependent, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
