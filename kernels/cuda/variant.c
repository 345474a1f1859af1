/* variant.c: finding variants, and fitting one to a shape. */
#include "kernels/cuda/variant.h"

#include <stddef.h>
#include <string.h>

#include "kernels/plan.h"

const struct dk_variant *dk_variant_at(uint32_t index)
{
    if (index < dk_dot_variant_count)
        return &dk_dot_variants[index];
    index -= dk_dot_variant_count;
    if (index < dk_diagonal_variant_count)
        return &dk_diagonal_variants[index];
    index -= dk_diagonal_variant_count;
    if (index < dk_cluster_variant_count)
        return &dk_cluster_variants[index];
    index -= dk_cluster_variant_count;
    return index < dk_wgmma_variant_count ? &dk_wgmma_variants[index].base : NULL;
}

uint32_t dk_variant_first_wgmma(void)
{
    return dk_dot_variant_count + dk_diagonal_variant_count + dk_cluster_variant_count;
}

uint32_t dk_variant_find(const char *name)
{
    const struct dk_variant *variant;
    for (uint32_t i = 0; (variant = dk_variant_at(i)) != NULL; i++)
        if (strcmp(variant->name, name) == 0)
            return i;
    return UINT32_MAX;
}

bool dk_variant_fit(const struct dk_variant *variant, uint64_t m, uint64_t n, uint64_t k,
                    struct dk_variant_shape *out)
{
    if (k % 8 != 0 || n < 16 || m > (variant->is_row_tiled ? UINT64_C(65535) * variant->rows : variant->rows))
        return false;
    uint64_t warps = dk_ceil_div(k, (uint64_t)variant->splits * variant->warp_k);
    if (warps > variant->warps) {
        if (!variant->is_long)
            return false;
        warps = variant->warps;
    }
    uint64_t pass_k = warps * variant->warp_k;
    uint64_t chunk_k = dk_ceil_div(k, variant->splits * pass_k) * pass_k;
    *out = (struct dk_variant_shape){
        .warps = (uint32_t)warps,
        .chunk_k = (uint32_t)(chunk_k < k ? chunk_k : k),
        .split_k = (uint32_t)dk_ceil_div(k, chunk_k),
        .is_exact = warps == variant->warps && chunk_k * variant->splits == k && n % variant->columns == 0 &&
                    (variant->is_row_tiled ? m <= variant->rows : m == variant->rows),
    };
    return true;
}
