/* wgmma_plan.h: which tile and how many chunks for a product: from measurement where there is one, else from
 * a model of the time. Pure. */
#ifndef DK_KERNELS_CUDA_WGMMA_PLAN_H
#define DK_KERNELS_CUDA_WGMMA_PLAN_H

#include "kernels/cuda/variant.h"

enum { DK_WGMMA_MAX_VARIANTS = 48, DK_WGMMA_MAX_SPLITS = 16 };

/* What one device can hold. Clusters of more than 8 blocks are not portable, and how many blocks of large
 * clusters fit depends on the chip's floor plan: asked for, not computed. */
struct dk_wgmma_limits {
    uint32_t shared_bytes; /* most of one block; 0: no wgmma kernel can run */
    uint16_t resident_blocks[DK_WGMMA_MAX_VARIANTS][DK_WGMMA_MAX_SPLITS + 1]; /* by splits; 0: cannot run */
};

/* A product that a kernel could compute: bf16, k % 8 == 0. */
struct dk_wgmma_product {
    uint64_t m, n, k;
    bool is_dependent;
};

struct dk_wgmma_choice {
    uint32_t variant; /* of dk_wgmma_variants */
    struct dk_variant_shape cut;
    uint32_t stages;
    double estimate_us;
};

/* Chunks of equal length, at most `splits` of them. False where the device cannot run such a cluster. */
bool dk_wgmma_cut(const struct dk_wgmma_limits *limits, uint32_t variant,
                  const struct dk_wgmma_product *product, uint32_t splits, struct dk_wgmma_choice *out);
/* The most promising choices, best first by the model; of one variant only, or of all (UINT32_MAX). Fills at
 * most `capacity`, returns how many it filled. */
uint32_t dk_wgmma_rank(const struct dk_wgmma_limits *limits, const struct dk_wgmma_product *product,
                       uint32_t only_variant, struct dk_wgmma_choice *out, uint32_t capacity);
/* What was fastest on an H200 for this very shape (wgmma_measured.def). */
bool dk_wgmma_find_measured(const struct dk_wgmma_limits *limits, const struct dk_wgmma_product *product,
                            struct dk_wgmma_choice *out);

#endif
