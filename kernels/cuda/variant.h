/* variant.h: the table of compiled single-launch kernels (variants.def) as data: what each covers and how it
 * is launched.
 */
#ifndef DK_KERNELS_CUDA_VARIANT_H
#define DK_KERNELS_CUDA_VARIANT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum dk_variant_family {
    DK_FAMILY_DOT,
    DK_FAMILY_DIAGONAL,
    DK_FAMILY_PIECES,
    DK_FAMILY_CLUSTER,
    DK_FAMILY_STAGED,
    DK_FAMILY_WGMMA
};
/* dk_variant.tree: the order in which a row's products are added up; equal trees give equal bits. NONE: as
 * the plan says. SHARED is tree.cuh's; the long kernels have one for each cluster size (LONG + splits);
 * CHAINED is a kernel's own. */
enum { DK_TREE_NONE, DK_TREE_SHARED, DK_TREE_CHAINED, DK_TREE_LONG };

struct dk_variant {
    const char *name;
    enum dk_variant_family family;
    /* [is_exact][is_lean]. Exact: whole tiles and dense rows of A only, so that bounds are known. Lean: C is
     * fp32, no bias, no sigmoid. No exact kernels where is_long. */
    const void *kernels[2][2];
    uint32_t rows, columns; /* tile of C that one block (or cluster) finishes */
    uint32_t splits;        /* blocks along K: the cluster's size */
    uint32_t warps;         /* most of a block, and all of an exact one */
    uint32_t warp_k; /* K that a block covers in one pass, divided by these warps; 0: K goes through the block
                        step by step */
    bool is_long;    /* makes as many passes as k needs; the others make one */
    bool is_row_tiled;     /* takes any m, tile after tile; the others take m <= rows */
    uint32_t tree;         /* DK_TREE_*, DK_TREE_LONG + splits */
    const char *note;      /* where it won, or why it is kept */
    uint32_t shared_bytes; /* dynamic shared memory of a block */
};

/* base.splits is the most; a plan says how many. */
struct dk_wgmma_variant {
    struct dk_variant base;
    uint32_t column_tiles; /* neighbouring expert tiles in one cluster */
};

extern const struct dk_variant dk_dot_variants[], dk_diagonal_variants[], dk_pieces_variants[],
    dk_cluster_variants[], dk_staged_variants[];
extern const struct dk_wgmma_variant dk_wgmma_variants[];
extern const uint32_t dk_dot_variant_count, dk_diagonal_variant_count, dk_pieces_variant_count,
    dk_cluster_variant_count, dk_staged_variant_count, dk_wgmma_variant_count;

enum { DK_MAX_VARIANTS = 128 };
/* In the order of variants.def; NULL past the last. */
const struct dk_variant *dk_variant_at(uint32_t index);
/* Index of the first wgmma variant; the others of that family follow in their order. */
uint32_t dk_variant_first_wgmma(void);
/* Index of the variant called `name`; UINT32_MAX when there is none. */
uint32_t dk_variant_find(const char *name);

/* How a variant cuts one product. */
struct dk_variant_shape {
    uint32_t warps;
    uint32_t chunk_k; /* K per block; split_k blocks have work, the rest of the cluster adds zeros */
    uint32_t split_k;
    bool is_exact; /* whole tiles; the exact kernel also wants dense rows */
};
/* False when the variant cannot compute m rows of [k, n]. Types and alignment are the caller's. Not for wgmma
 * variants: see wgmma_plan.h. */
bool dk_variant_fit(const struct dk_variant *variant, uint64_t m, uint64_t n, uint64_t k,
                    struct dk_variant_shape *out);

#ifdef __cplusplus
}
#endif
#endif
