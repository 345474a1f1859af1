/* cuda_plan.c: the built-in choice (measured on an H200, README.md) and the list that a tuner chooses from.
 */
#include "kernels/cuda/cuda_plan.h"

#include <assert.h>
#include <stddef.h>

#include "kernels/cuda/two_launch.h"
#include "kernels/plan.h"

/* K = 7168, N = 256 gives 28 chunks x 4 column tiles = 112 blocks at one row tile: most of a 132-SM device,
 * with partials of 117 MB at 4,096 rows. */
enum { MIN_CHUNK_K = 256, MAX_SPLIT_K = 64, MAX_SMALL_ROWS = 64, MIN_WGMMA_ROWS = 17, WGMMA_CANDIDATES = 24 };

static uint32_t fixed_chunk_k(uint64_t k)
{
    uint64_t chunk = dk_ceil_div(k, MAX_SPLIT_K);
    return (uint32_t)dk_round_up(chunk < MIN_CHUNK_K ? MIN_CHUNK_K : chunk, DK_TWO_LAUNCH_TILE_K);
}

static void make_two_launch(const struct dk_cuda_plan_rules *rules, const struct dk_cuda_plan_shape *shape,
                            uint32_t chunk_k, struct dk_plan *out)
{
    uint64_t split_k = dk_ceil_div(shape->k, chunk_k);
    *out = (struct dk_plan){
        .variant = DK_CUDA_TWO_LAUNCH_NAME,
        .bucket_rows = shape->bucket_rows,
        .split_k = (uint32_t)split_k,
        .chunk_k = chunk_k,
        .tile_m = DK_TWO_LAUNCH_TILE_M,
        .tile_n = DK_TWO_LAUNCH_TILE_N,
        .is_dependent = rules->is_dependent,
        .backend_variant = DK_CUDA_TWO_LAUNCH,
        .workspace_bytes = (size_t)(split_k * shape->bucket_rows * shape->n) * sizeof(float),
    };
}

void dk_cuda_plan_two_launch(const struct dk_cuda_plan_rules *rules, const struct dk_cuda_plan_shape *shape,
                             struct dk_plan *out)
{
    make_two_launch(rules, shape, fixed_chunk_k(shape->k), out);
}

/* The tree that every m shares under batch invariance: the first that some tile takes any m of this k with.
 */
static uint32_t invariant_tree(const struct dk_cuda_plan_rules *rules, const struct dk_cuda_plan_shape *shape)
{
    uint32_t tree = DK_TREE_NONE;
    struct dk_variant_shape cut;
    for (uint32_t i = 0; dk_variant_at(i) != NULL; i++) {
        const struct dk_variant *variant = dk_variant_at(i);
        if (rules->is_usable[i] && variant->is_row_tiled && variant->tree != DK_TREE_NONE &&
            (tree == DK_TREE_NONE || variant->tree < tree) &&
            dk_variant_fit(variant, 1, shape->n, shape->k, &cut))
            tree = variant->tree;
    }
    return tree;
}

static void make_single_launch(const struct dk_cuda_plan_rules *rules, const struct dk_cuda_plan_shape *shape,
                               uint32_t index, const struct dk_variant_shape *cut, struct dk_plan *out)
{
    const struct dk_variant *variant = dk_variant_at(index);
    /* Fall-backs need their workspace too. */
    dk_cuda_plan_two_launch(rules, shape, out);
    out->variant = variant->name;
    out->split_k = cut->split_k;
    out->chunk_k = cut->chunk_k;
    out->tile_m = variant->rows;
    out->tile_n = variant->columns;
    out->backend_variant = DK_CUDA_FIRST_VARIANT + index;
}

/* True and a plan when variant `index`, none of the wgmma family, may serve the shape. */
static bool make_variant(const struct dk_cuda_plan_rules *rules, const struct dk_cuda_plan_shape *shape,
                         uint32_t index, struct dk_plan *out)
{
    struct dk_variant_shape cut;
    if (!rules->is_usable[index] || shape->dtype != DK_BF16 ||
        !dk_variant_fit(dk_variant_at(index), shape->bucket_rows, shape->n, shape->k, &cut))
        return false;
    make_single_launch(rules, shape, index, &cut, out);
    return true;
}

/* What was fastest on an H200 (README.md), first match first; whatever no row suits goes to the two launches.
 */
struct preference {
    uint32_t rows;  /* buckets up to here */
    uint32_t modes; /* PLAIN, DEPENDENT or both: a chain of dependent launches has favourites of its own */
    uint32_t min_k, max_n; /* 0: any */
    const char *variant;
};
enum { PLAIN = 1, DEPENDENT = 2, BOTH = 3, LONG_K = 5121, LONGER_K = 8193 };
static const struct preference preferences[] = {
    {1, PLAIN, 0, 256, "dot_1x1_v1"},
    {1, PLAIN, 0, 0, "dot_1x1_v2"},
    {1, PLAIN, 0, 0, "dot_1x1_v4"},
    {1, PLAIN, 0, 256, "pieces_1x1_s1"},
    {1, PLAIN, 0, 0, "pieces_1x1_s2"},
    {1, DEPENDENT, LONG_K, 256, "cluster_4x8_x8"},
    {1, DEPENDENT, LONG_K, 0, "cluster_4x16_x8_s2"},
    {1, DEPENDENT, 0, 0, "dot_1x1_v2"},
    {2, PLAIN, 0, 256, "pieces_2x1_s1"},
    {2, PLAIN, 0, 0, "pieces_2x1_s2"},
    {2, PLAIN, 0, 256, "dot_2x1_v2"},
    {4, PLAIN, 0, 0, "cluster_4x8_x8_s2"},
    {4, PLAIN, 0, 0, "cluster_4x16_x16_w16"},
    {4, DEPENDENT, LONG_K, 256, "cluster_4x8_x8"},
    {4, DEPENDENT, 0, 0, "cluster_4x16_x8_s2"},
    {4, DEPENDENT, LONGER_K, 256, "cluster_4x16_x16_w16"},
    {4, DEPENDENT, LONGER_K, 0, "cluster_4x16_x16_s2w8"},
    {4, DEPENDENT, 0, 0, "cluster_4x16_x16_long"},
    {4, BOTH, 0, 0, "cluster_4x16_x16_w16"},
    {4, BOTH, 0, 0, "cluster_4x16_x16_long"},
    {4, BOTH, 0, 0, "diagonal_4x2_s1"},
    {8, PLAIN, 0, 0, "cluster_8x8_x8_s2"},
    {8, DEPENDENT, 5120, 0, "cluster_8x16_x16"},
    {8, DEPENDENT, 0, 0, "cluster_4x16_x8_s2"},
    {8, BOTH, 0, 0, "cluster_8x16_x16_w16"},
    {16, PLAIN, LONG_K, 256, "cluster_16x8_x8_chain"},
    {16, PLAIN, LONG_K, 256, "cluster_16x16_x16"},
    {16, PLAIN, LONG_K, 0, "cluster_16x32_x16_s2"},
    {16, PLAIN, 0, 0, "cluster_16x8_x8"},
    {16, DEPENDENT, LONG_K, 256, "cluster_16x16_x16_s2"},
    {16, DEPENDENT, LONG_K, 0, "cluster_16x32_x16_s2"},
    {16, DEPENDENT, 0, 160, "cluster_4x16_x8_s2"},
    {16, DEPENDENT, 0, 0, "cluster_8x16_x8"},
    {16, BOTH, 0, 128, "cluster_16x16_x16_w16"},
    {16, PLAIN, 0, 0, "cluster_16x16_x8_long"},
    {16, DEPENDENT, LONGER_K, 0, "cluster_16x16_x8_long"},
    {16, BOTH, 0, 0, "cluster_16x16_x16_w16"},
    {32, PLAIN, LONG_K, 0, "staged_32x64_x16"},
    {32, PLAIN, 4096, 0, "cluster_16x16_x16"},
    {32, PLAIN, 0, 0, "cluster_16x8_x8"},
    {32, DEPENDENT, LONG_K, 256, "cluster_16x32_x16_s2"},
    {32, DEPENDENT, LONG_K, 0, "staged_32x64_x16"},
    {32, DEPENDENT, 0, 128, "cluster_8x16_x8"},
    {32, DEPENDENT, 0, 0, "cluster_16x16_x8"},
    {32, BOTH, 0, 128, "staged_32x32_x16_u16"},
    {32, BOTH, 0, 256, "cluster_16x16_x8_long"},
    {32, BOTH, 0, 0, "staged_32x32_x16_u16"},
    {64, PLAIN, 0, 160, "staged_64x32_x16"},
    {64, PLAIN, 0, 0, "staged_64x64_x16"},
    {64, DEPENDENT, LONG_K, 0, "staged_64x32_x16"},
    {64, DEPENDENT, 0, 0, "staged_32x32_x16"},
    {64, BOTH, 0, 0, "cluster_16x16_x8_long"},
    {64, BOTH, 0, 0, "cluster_16x16_x16_long"},
    {1024, BOTH, 0, 0, "staged_64x32_x16"},
    {1024, BOTH, 0, 0, "staged_32x32_x16_u16"},
};

static bool is_match(const struct preference *preference, const struct dk_cuda_plan_rules *rules,
                     const struct dk_cuda_plan_shape *shape)
{
    return shape->bucket_rows <= preference->rows &&
           (preference->modes & (rules->is_dependent ? DEPENDENT : PLAIN)) != 0 &&
           shape->k >= preference->min_k && (preference->max_n == 0 || shape->n <= preference->max_n);
}

/* `tree`: only variants of this one, unless DK_TREE_NONE. */
static bool choose_variant(const struct dk_cuda_plan_rules *rules, const struct dk_cuda_plan_shape *shape,
                           uint32_t tree, struct dk_plan *out)
{
    for (size_t i = 0; i < sizeof preferences / sizeof preferences[0]; i++) {
        uint32_t index = dk_variant_find(preferences[i].variant);
        if (is_match(&preferences[i], rules, shape) &&
            (tree == DK_TREE_NONE || dk_variant_at(index)->tree == tree) &&
            make_variant(rules, shape, index, out))
            return true;
    }
    return false;
}

/* A fixed tree wants a variant of it for every m: where the table has none, the largest tile will do. */
static bool choose_invariant(const struct dk_cuda_plan_rules *rules, const struct dk_cuda_plan_shape *shape,
                             struct dk_plan *out)
{
    uint32_t tree = invariant_tree(rules, shape), most_rows = 0;
    struct dk_plan plan;
    if (tree == DK_TREE_NONE || choose_variant(rules, shape, tree, out))
        return tree != DK_TREE_NONE;
    for (uint32_t i = 0; dk_variant_at(i) != NULL; i++)
        if (dk_variant_at(i)->tree == tree && dk_variant_at(i)->rows > most_rows &&
            make_variant(rules, shape, i, &plan)) {
            most_rows = dk_variant_at(i)->rows;
            *out = plan;
        }
    return most_rows > 0;
}

static struct dk_wgmma_product wgmma_product(const struct dk_cuda_plan_rules *rules,
                                             const struct dk_cuda_plan_shape *shape)
{
    return (struct dk_wgmma_product){shape->bucket_rows, shape->n, shape->k, rules->is_dependent};
}

static bool can_use_wgmma(const struct dk_cuda_plan_shape *shape)
{
    return shape->dtype == DK_BF16 && shape->k % 8 == 0 && shape->bucket_rows >= MIN_WGMMA_ROWS;
}

static void make_wgmma(const struct dk_cuda_plan_rules *rules, const struct dk_cuda_plan_shape *shape,
                       const struct dk_wgmma_choice *choice, struct dk_plan *out)
{
    make_single_launch(rules, shape, dk_variant_first_wgmma() + choice->variant, &choice->cut, out);
}

/* As measured, else as the model says. */
static bool choose_wgmma(const struct dk_cuda_plan_rules *rules, const struct dk_cuda_plan_shape *shape,
                         struct dk_plan *out)
{
    struct dk_wgmma_product product = wgmma_product(rules, shape);
    struct dk_wgmma_choice choice;
    if (!can_use_wgmma(shape) || (!dk_wgmma_find_measured(&rules->wgmma, &product, &choice) &&
                                  dk_wgmma_rank(&rules->wgmma, &product, UINT32_MAX, &choice, 1) == 0))
        return false;
    make_wgmma(rules, shape, &choice, out);
    return true;
}

/* Tests force variants also where no plan would take them. */
static bool force_variant(const struct dk_cuda_plan_rules *rules, const struct dk_cuda_plan_shape *shape,
                          struct dk_plan *out)
{
    uint32_t index = (uint32_t)rules->forced;
    struct dk_wgmma_product product = wgmma_product(rules, shape);
    struct dk_wgmma_choice choice;
    if (index < dk_variant_first_wgmma())
        return make_variant(rules, shape, index, out);
    if (shape->dtype != DK_BF16 || shape->k % 8 != 0 ||
        dk_wgmma_rank(&rules->wgmma, &product, index - dk_variant_first_wgmma(), &choice, 1) == 0)
        return false;
    make_wgmma(rules, shape, &choice, out);
    return true;
}

void dk_cuda_plan_choose(const struct dk_cuda_plan_rules *rules, const struct dk_cuda_plan_shape *shape,
                         struct dk_plan *out)
{
    bool is_chosen = false;
    if (rules->forced >= 0)
        is_chosen = force_variant(rules, shape, out);
    else if (rules->forced == DK_CUDA_FORCE_NONE)
        is_chosen = rules->is_batch_invariant
                        ? choose_invariant(rules, shape, out)
                        : choose_wgmma(rules, shape, out) || choose_variant(rules, shape, DK_TREE_NONE, out);
    if (!is_chosen)
        dk_cuda_plan_two_launch(rules, shape, out);
}

const char *dk_cuda_plan_find_library(const struct dk_cuda_plan_rules *rules,
                                      const struct dk_cuda_plan_shape *shape)
{
    static const struct {
        uint32_t k, n, rows, modes;
        const char *name;
    } measured[] = {
#define DK_LIBRARY_MEASURED(k, n, rows, modes, name) {k, n, rows, modes, #name},
#include "kernels/cuda/wgmma_measured.def"
    };
    if (rules->forced != DK_CUDA_FORCE_NONE || rules->is_batch_invariant || shape->dtype != DK_BF16)
        return NULL;
    for (size_t i = 0; i < sizeof measured / sizeof measured[0]; i++)
        if (measured[i].k == shape->k && measured[i].n == shape->n &&
            measured[i].rows == shape->bucket_rows &&
            (measured[i].modes & (rules->is_dependent ? DEPENDENT : PLAIN)) != 0)
            return measured[i].name;
    return NULL;
}

/* Counts every plan, keeps those that fit. */
static void append(const struct dk_plan *plan, struct dk_plan *out, uint32_t capacity, uint32_t *count)
{
    if (*count < capacity)
        out[*count] = *plan;
    (*count)++;
}

/* Small tiles of many rows read the weights over and over. */
static bool is_worth_trying(const struct dk_variant *variant, uint32_t rows)
{
    enum { SMALL_ROWS = 64, LEAST_TILE = 32, MOST_ROWS = 1024 };
    return rows <= SMALL_ROWS || (variant->rows >= LEAST_TILE && rows <= MOST_ROWS);
}

/* The model's best for this shape, and the measured choice if it is none of them. */
static void append_wgmma(const struct dk_cuda_plan_rules *rules, const struct dk_cuda_plan_shape *shape,
                         struct dk_plan *out, uint32_t capacity, uint32_t *count)
{
    struct dk_wgmma_choice choices[WGMMA_CANDIDATES + 1];
    struct dk_wgmma_product product = wgmma_product(rules, shape);
    struct dk_plan plan;
    if (!can_use_wgmma(shape))
        return;
    uint32_t found = dk_wgmma_rank(&rules->wgmma, &product, UINT32_MAX, choices, WGMMA_CANDIDATES);
    struct dk_wgmma_choice *best = &choices[found];
    bool is_listed = !dk_wgmma_find_measured(&rules->wgmma, &product, best);
    for (uint32_t i = 0; i < found; i++)
        is_listed =
            is_listed || (choices[i].variant == best->variant && choices[i].cut.split_k == best->cut.split_k);
    for (uint32_t i = 0; i < found + !is_listed; i++) {
        make_wgmma(rules, shape, &choices[i], &plan);
        append(&plan, out, capacity, count);
    }
}

uint32_t dk_cuda_plan_candidates(const struct dk_cuda_plan_rules *rules,
                                 const struct dk_cuda_plan_shape *shape, struct dk_plan *out,
                                 uint32_t capacity)
{
    struct dk_plan plan, chosen;
    uint32_t count = 0, tree = rules->is_batch_invariant ? invariant_tree(rules, shape) : DK_TREE_NONE;
    bool is_any_order = !rules->is_batch_invariant;
    dk_cuda_plan_choose(rules, shape, &chosen);
    if (rules->forced != DK_CUDA_FORCE_NONE) {
        append(&chosen, out, capacity, &count);
        return count;
    }
    for (uint32_t i = 0; i < dk_variant_first_wgmma(); i++) {
        const struct dk_variant *variant = dk_variant_at(i);
        bool is_right = is_any_order || (tree != DK_TREE_NONE && variant->tree == tree);
        bool is_chosen = chosen.backend_variant == DK_CUDA_FIRST_VARIANT + i;
        if (is_right && (is_chosen || is_worth_trying(variant, shape->bucket_rows)) &&
            make_variant(rules, shape, i, &plan))
            append(&plan, out, capacity, &count);
    }
    if (is_any_order)
        append_wgmma(rules, shape, out, capacity, &count);
    /* The two launches have other bits, and beyond small T they are far slower. */
    if (count > 0 && (!is_any_order || shape->bucket_rows > MAX_SMALL_ROWS))
        return count;
    uint32_t fixed = fixed_chunk_k(shape->k);
    for (uint32_t chunk = fixed;; chunk *= 2) {
        make_two_launch(rules, shape, chunk, &plan);
        append(&plan, out, capacity, &count);
        if (!is_any_order || chunk >= shape->k || chunk >= 8 * fixed) /* other chunks are other bits */
            return count;
    }
}
