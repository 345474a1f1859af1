/* cuda_plan.h: which plans could serve a bucket of rows, and which one is taken unless a tuner or the caller
 * says otherwise.
 */
#ifndef DK_KERNELS_CUDA_PLAN_H
#define DK_KERNELS_CUDA_PLAN_H

#include "kernels/backend.h"
#include "kernels/cuda/wgmma_plan.h"

/* dk_plan.backend_variant: the two-launch form, 1 + index of a variant, or a library's own number from
 * LIBRARY on. */
enum { DK_CUDA_TWO_LAUNCH = 0, DK_CUDA_FIRST_VARIANT = 1, DK_CUDA_LIBRARY = 1000 };

#define DK_CUDA_TWO_LAUNCH_NAME "two_launch_16x64x32"

struct dk_cuda_plan_rules {
    bool is_usable[DK_MAX_VARIANTS]; /* by variant index: runs on this device; wgmma variants: see `wgmma` */
    struct dk_wgmma_limits wgmma;
    bool is_dependent, is_batch_invariant;
    int forced; /* variant index or DK_CUDA_FORCE_* */
};
enum { DK_CUDA_FORCE_NONE = -1, DK_CUDA_FORCE_TWO_LAUNCH = -2 };

struct dk_cuda_plan_shape {
    uint64_t n, k;
    dk_dtype dtype; /* of the weights */
    uint32_t bucket_rows;
};

/* What every shape, type and alignment can fall back to. Its chunks depend on k alone, so a row's bits depend
 * neither on how many rows come with it nor on the device. */
void dk_cuda_plan_two_launch(const struct dk_cuda_plan_rules *rules, const struct dk_cuda_plan_shape *shape,
                             struct dk_plan *out);
/* The built-in plan. */
void dk_cuda_plan_choose(const struct dk_cuda_plan_rules *rules, const struct dk_cuda_plan_shape *shape,
                         struct dk_plan *out);
/* The name of the library plan that was faster than any of ours for this very shape and bucket; NULL: none,
 * or libraries are not for these rules. */
const char *dk_cuda_plan_find_library(const struct dk_cuda_plan_rules *rules,
                                      const struct dk_cuda_plan_shape *shape);
/* All plans of this backend's own kernels; fills at most `capacity`, answers how many there are. */
uint32_t dk_cuda_plan_candidates(const struct dk_cuda_plan_rules *rules,
                                 const struct dk_cuda_plan_shape *shape, struct dk_plan *out,
                                 uint32_t capacity);

#endif
