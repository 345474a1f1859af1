/* variant.c: finding variants, and fitting one to a shape. */
#include "kernels/cuda/variant.h"

#include <stddef.h>
#include <string.h>

#include "kernels/plan.h"

const struct dk_variant *dk_variant_at(uint32_t index)
{
    const struct {
        const struct dk_variant *variants;
        uint32_t count;
    } families[] = {{dk_dot_variants, dk_dot_variant_count},
                    {dk_diagonal_variants, dk_diagonal_variant_count},
                    {dk_pieces_variants, dk_pieces_variant_count},
                    {dk_cluster_variants, dk_cluster_variant_count},
                    {dk_staged_variants, dk_staged_variant_count}};
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (index < families[i].count)
            return &families[i].variants[index];
        index -= families[i].count;
    }
    return index < dk_wgmma_variant_count ? &dk_wgmma_variants[index].base : NULL;
}

uint32_t dk_variant_first_wgmma(void)
{
    return dk_dot_variant_count + dk_diagonal_variant_count + dk_pieces_variant_count +
           dk_cluster_variant_count + dk_staged_variant_count;
}

uint32_t dk_variant_find(const char *name)
{
    const struct dk_variant *variant;
    for (uint32_t i = 0; (variant = dk_variant_at(i)) != NULL; i++)
        if (strcmp(variant->name, name) == 0)
            return i;
    return UINT32_MAX;
}

/* The shared tree has 16 chunks of whole units of 64. */
enum { TREE_QUANTUM_K = 16 * 64 };

bool dk_variant_fit(const struct dk_variant *variant, uint64_t m, uint64_t n, uint64_t k,
                    struct dk_variant_shape *out)
{
    if (k % 8 != 0 || n < 16 || m > (variant->is_row_tiled ? UINT64_C(65535) * variant->rows : variant->rows))
        return false;
    uint64_t pass_of_warps = (uint64_t)variant->splits * variant->warp_k;
    uint64_t covered = dk_round_up(k, variant->tree == DK_TREE_SHARED ? TREE_QUANTUM_K : pass_of_warps);
    uint64_t warps = dk_ceil_div(covered, pass_of_warps);
    if (warps > variant->warps) {
        if (!variant->is_long)
            return false;
        covered = dk_round_up(k, pass_of_warps * variant->warps);
    }
    if (warps > variant->warps || variant->family == DK_FAMILY_STAGED) /* whose warps share all of K */
        warps = variant->warps;
    uint64_t chunk_k = covered / variant->splits;
    *out = (struct dk_variant_shape){
        .warps = (uint32_t)warps,
        .chunk_k = (uint32_t)(chunk_k < k ? chunk_k : k),
        .split_k = (uint32_t)dk_ceil_div(k, chunk_k),
        .is_exact = pass_of_warps * variant->warps == k && n % variant->columns == 0 &&
                    (variant->is_row_tiled ? m <= variant->rows : m == variant->rows),
    };
    return true;
}
