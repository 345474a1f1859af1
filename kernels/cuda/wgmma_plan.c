/* wgmma_plan.c: see wgmma_plan.h. */
#include "kernels/cuda/wgmma_plan.h"

#include <stddef.h>
#include <string.h>

#include "kernels/cuda/wgmma_args.h"
#include "kernels/plan.h"

/* Fitted to 2,831 timings on an H200 (7 router shapes, m = 24..4,096); 6 % off on average. */
static const double launch_us = 0.95;          /* a graph node, the first loads, the last stores */
static const double wave_us = 0.85;            /* filling and draining the blocks once */
static const double product_us = 0.76e-3;      /* one step of 64 experts x 1 token */
static const double block_bytes_us = 100e3;    /* L2 to one multiprocessor */
static const double chip_bytes_us = 9000e3;    /* L2 to all of them */
static const double paired_bytes_us = 11700e3; /* the same where the blocks that share A run together */
static const double send_bytes_us = 28e3;      /* from block to block */
static const double pair_us = 0.13, split_us = 0.03;

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double estimate_us(const struct dk_wgmma_limits *limits, const struct dk_wgmma_product *product,
                          const struct dk_wgmma_choice *choice)
{
    const struct dk_wgmma_variant *variant = &dk_wgmma_variants[choice->variant];
    uint32_t splits = choice->cut.split_k;
    uint64_t blocks =
        dk_ceil_div(product->m, variant->base.rows) * dk_ceil_div(product->n, variant->base.columns) * splits;
    uint64_t resident = limits->resident_blocks[choice->variant][splits];
    double waves = (double)dk_ceil_div(blocks, resident);
    double together = (double)(blocks < resident ? blocks : resident);
    double steps = (double)dk_ceil_div(choice->cut.chunk_k, DK_WGMMA_STEP_K);
    uint64_t rows = product->m < variant->base.rows ? product->m : variant->base.rows;
    double slots = (double)dk_ceil_div(variant->base.columns / 16 * dk_ceil_div(rows, 8), splits);
    double bytes = steps * dk_wgmma_stage_bytes(variant->base.columns, variant->base.rows);
    double chip = variant->column_tiles > 1 ? paired_bytes_us : chip_bytes_us;
    double load = larger(bytes / block_bytes_us, bytes * together / chip);
    double multiply = steps * variant->base.columns / 64 * variant->base.rows * 2 * product_us;
    double send = slots * (splits - 1) * DK_WGMMA_SLOT_BYTES / send_bytes_us;
    return launch_us + waves * (wave_us + larger(load, multiply) + send) +
           (variant->column_tiles > 1 ? pair_us : 0.0) + (product->is_dependent ? 0.0 : split_us * splits);
}

/* As many as fit, as far as there is K for them. */
static uint32_t stages_that_fit(const struct dk_wgmma_limits *limits, const struct dk_variant *variant,
                                uint32_t splits, uint32_t steps)
{
    uint32_t stages = steps < DK_WGMMA_MAX_STAGES ? steps : DK_WGMMA_MAX_STAGES;
    while (stages > 0 &&
           dk_wgmma_shared_bytes(variant->columns, variant->rows, splits, stages) > limits->shared_bytes)
        stages--;
    return stages;
}

bool dk_wgmma_cut(const struct dk_wgmma_limits *limits, uint32_t variant,
                  const struct dk_wgmma_product *product, uint32_t splits, struct dk_wgmma_choice *out)
{
    const struct dk_wgmma_variant *recipe = &dk_wgmma_variants[variant];
    uint64_t steps = dk_ceil_div(product->k, DK_WGMMA_STEP_K), chunk = dk_ceil_div(steps, splits);
    uint64_t chunk_k = chunk * DK_WGMMA_STEP_K < product->k ? chunk * DK_WGMMA_STEP_K : product->k;
    uint32_t split_k = (uint32_t)dk_ceil_div(steps, chunk);
    uint64_t column_tiles = dk_ceil_div(product->n, recipe->base.columns);
    uint32_t stages = stages_that_fit(limits, &recipe->base, split_k, (uint32_t)chunk);
    if (limits->resident_blocks[variant][split_k] == 0 || stages < (chunk < 2 ? 1 : 2) ||
        column_tiles % recipe->column_tiles != 0 || column_tiles > UINT16_MAX ||
        dk_ceil_div(product->m, recipe->base.rows) > UINT16_MAX)
        return false;
    *out = (struct dk_wgmma_choice){
        .variant = variant,
        .cut = {.warps = recipe->base.warps, .chunk_k = (uint32_t)chunk_k, .split_k = split_k},
        .stages = stages,
    };
    out->estimate_us = estimate_us(limits, product, out);
    return true;
}

static void insert(struct dk_wgmma_choice *list, uint32_t *count, uint32_t capacity,
                   const struct dk_wgmma_choice *choice)
{
    uint32_t at = *count;
    while (at > 0 && list[at - 1].estimate_us > choice->estimate_us)
        at--;
    if (at == capacity)
        return;
    uint32_t kept = *count < capacity ? *count : capacity - 1;
    memmove(&list[at + 1], &list[at], (kept - at) * sizeof *list);
    list[at] = *choice;
    *count = kept + 1;
}

uint32_t dk_wgmma_rank(const struct dk_wgmma_limits *limits, const struct dk_wgmma_product *product,
                       uint32_t only_variant, struct dk_wgmma_choice *out, uint32_t capacity)
{
    uint32_t count = 0;
    for (uint32_t v = 0; v < dk_wgmma_variant_count; v++) {
        uint32_t before = 0; /* several counts of splits can end in the same chunks */
        for (uint32_t splits = 1; splits <= DK_WGMMA_MAX_SPLITS; splits++) {
            struct dk_wgmma_choice choice;
            if ((only_variant != UINT32_MAX && v != only_variant) ||
                !dk_wgmma_cut(limits, v, product, splits, &choice) || choice.cut.split_k == before)
                continue;
            before = choice.cut.split_k;
            insert(out, &count, capacity, &choice);
        }
    }
    return count;
}

struct measured {
    uint32_t k, n, rows;
    struct {
        const char *variant;
        uint32_t splits;
    } plain, dependent;
};
static const struct measured measured[] = {
#define DK_WGMMA_MEASURED(k, n, rows, plain, plain_splits, dependent, dependent_splits)                      \
    {k, n, rows, {#plain, plain_splits}, {#dependent, dependent_splits}},
#include "kernels/cuda/wgmma_measured.def"
};

static uint32_t find_variant(const char *name)
{
    for (uint32_t i = 0; i < dk_wgmma_variant_count; i++)
        if (strcmp(dk_wgmma_variants[i].base.name, name) == 0)
            return i;
    return UINT32_MAX;
}

bool dk_wgmma_find_measured(const struct dk_wgmma_limits *limits, const struct dk_wgmma_product *product,
                            struct dk_wgmma_choice *out)
{
    for (size_t i = 0; i < sizeof measured / sizeof measured[0]; i++) {
        const struct measured *row = &measured[i];
        if (row->k != product->k || row->n != product->n || row->rows != product->m)
            continue;
        uint32_t variant = find_variant(product->is_dependent ? row->dependent.variant : row->plain.variant);
        uint32_t splits = product->is_dependent ? row->dependent.splits : row->plain.splits;
        return variant != UINT32_MAX && dk_wgmma_cut(limits, variant, product, splits, out);
    }
    return false;
}
