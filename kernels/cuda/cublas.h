/* cublas.h: cuBLAS and cuBLASLt as candidates beside our kernels: found with dlopen, never needed. */
#ifndef DK_KERNELS_CUDA_CUBLAS_H
#define DK_KERNELS_CUDA_CUBLAS_H

#include <cuda_runtime_api.h>

#include "kernels/cuda/cuda_plan.h"

struct dk_cublas; /* the libraries, a handle each, and the algorithms found; thread-safe */

/* Loads nothing yet: that is done when candidates are first asked for. NULL: out of memory. */
struct dk_cublas *dk_cublas_new(void);
void dk_cublas_free(struct dk_cublas *cublas); /* NULL-safe */

/* One B as the libraries see it. */
struct dk_cublas_b {
    uint64_t n, k;
    size_t row_elements; /* of w, >= k */
    dk_dtype dtype;
    const void *d_w; /* [n, k] */
};

/* Plans for `rows` rows: `cublas` and up to eight of cuBLASLt's heuristics, all with fp32 accumulation.
 * Writes up to `capacity`, returns how many there are: 0 without the libraries of our CUDA version, and for a
 * B of a type they are not used for (fp32: its products are IEEE here, and the libraries' choice of mode is
 * not ours to trust). `fallback_bytes`: workspace of the plan that steps in where the libraries refuse. The
 * current device must be the one that the plans are for. */
uint32_t dk_cublas_candidates(struct dk_cublas *cublas, const struct dk_cublas_b *b, uint32_t rows,
                              size_t fallback_bytes, struct dk_plan *out, uint32_t capacity);

static inline bool dk_cublas_is_plan(const struct dk_plan *plan)
{
    return plan->backend_variant >= DK_CUDA_LIBRARY;
}
/* A must be of B's type. */
static inline bool dk_cublas_can_serve(const struct dk_cublas_b *b, const struct dk_call *call)
{
    return call->a_dtype == b->dtype;
}
/* Where the fp32 product goes: into C itself when it needs no bias, epilogue or cast; else to the front of
 * the workspace as [1, m, n], for the reduction kernel to finish. `has_bias`: the call's or the weights' own.
 */
static inline bool dk_cublas_is_direct(const struct dk_call *call, bool has_bias)
{
    return call->c_dtype == DK_FP32 && call->epilogue == DK_EPILOGUE_NONE && !has_bias;
}
/* Enqueue the product on call->stream, see dk_cublas_is_direct. `plan` is one of the candidates. Capturable;
 * the libraries' own scratch lies in call->workspace behind the product. Where a heuristic does not take this
 * very call (alignment, leading dimension), `cublas` does. False, and nothing enqueued, when that refuses as
 * well. */
bool dk_cublas_enqueue(struct dk_cublas *cublas, const struct dk_cublas_b *b, const struct dk_plan *plan,
                       const struct dk_call *call, bool is_direct);

#endif
