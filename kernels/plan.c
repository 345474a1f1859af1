/* plan.c: shape -> chunks, tiles and workspace; the rules are derived in README.md. */
#include "kernels/plan.h"

#include <assert.h>

uint32_t dk_plan_chunk_k(uint64_t k)
{
    assert(k >= 1 && k <= DK_MAX_K);
    if (k <= 4) {
        return (uint32_t)k;
    }
    if (k <= 32) {
        return 4;
    }
    if (k < 208) {
        return 8;
    }
    if (k < 320) {
        return 16;
    }
    if (k <= DK_PLAN_CHUNK_K) {
        return (uint32_t)k;
    }
    uint64_t longest = dk_round_up(dk_ceil_div(k, DK_PLAN_MAX_SPLIT), DK_PLAN_INNER_K);
    return (uint32_t)(longest > DK_PLAN_CHUNK_K ? longest : DK_PLAN_CHUNK_K);
}

uint32_t dk_plan_split_k(uint64_t k, uint32_t chunk_k)
{
    return (uint32_t)dk_ceil_div(k, chunk_k);
}

uint64_t dk_plan_depth(uint64_t k, uint32_t chunk_k)
{
    uint64_t inner = chunk_k < DK_PLAN_INNER_K ? chunk_k : DK_PLAN_INNER_K;
    uint64_t blocks = dk_ceil_div(chunk_k, DK_PLAN_INNER_K);
    return inner + (blocks - 1) + (dk_plan_split_k(k, chunk_k) - 1);
}

uint64_t dk_plan_allowance(uint32_t chunk_k, uint32_t split_k)
{
    return 2 * (dk_ceil_div(chunk_k, 16) + split_k);
}

uint32_t dk_plan_panel_width(uint64_t n, uint64_t panel)
{
    uint64_t left = n - panel * DK_PLAN_PANEL_N;
    return left > 32 ? DK_PLAN_PANEL_N : left > 16 ? 32 : 16;
}

uint64_t dk_plan_padded_n(uint64_t n)
{
    uint64_t last = (n - 1) / DK_PLAN_PANEL_N;
    return last * DK_PLAN_PANEL_N + dk_plan_panel_width(n, last);
}

static uint64_t tile_count(uint64_t n, uint32_t rows)
{
    return dk_ceil_div(n, DK_PLAN_PANEL_N) * dk_ceil_div(rows, DK_PLAN_ROW_BLOCK);
}

size_t dk_plan_partials_bytes(uint64_t n, uint32_t split_k, uint32_t rows)
{
    size_t bytes;
    if (!dk_size_mul(dk_plan_padded_n(n), split_k, &bytes) || !dk_size_mul(bytes, rows, &bytes) ||
        !dk_size_mul(bytes, sizeof(float), &bytes)) {
        return SIZE_MAX;
    }
    return bytes;
}

size_t dk_plan_split_workspace_bytes(uint64_t n, uint32_t split_k, uint32_t rows)
{
    size_t bytes = dk_plan_partials_bytes(n, split_k, rows);
    size_t counters = tile_count(n, rows) * sizeof(uint32_t);
    return dk_size_add(bytes, counters, &bytes) ? bytes : SIZE_MAX;
}

/* Panels per task: as many as leave `wanted` tasks, so that A is converted and read less often. */
static uint32_t group_panels(uint64_t panels, uint64_t tasks_per_panel, uint64_t wanted)
{
    uint32_t group = DK_PLAN_MAX_GROUP;
    while (group > 1 && dk_ceil_div(panels, group) * tasks_per_panel < wanted) {
        group /= 2;
    }
    return group;
}

void dk_plan_make_cpu(uint64_t n, uint64_t k, uint32_t bucket_rows, uint32_t thread_count,
                      struct dk_plan *out)
{
    assert(n >= 1 && bucket_rows >= 1 && thread_count >= 1);
    uint32_t chunk_k = dk_plan_chunk_k(k);
    uint32_t split_k = dk_plan_split_k(k, chunk_k);
    uint64_t panels = dk_ceil_div(n, DK_PLAN_PANEL_N);
    uint64_t row_blocks = dk_ceil_div(bucket_rows, DK_PLAN_ROW_BLOCK);
    size_t split_bytes = dk_plan_split_workspace_bytes(n, split_k, bucket_rows);
    /* Four tiles a thread even out a thread that was held up; with fewer, K must supply the parallelism.
     * Chunks below one inner block exist for the error bound only and are not worth a task. */
    bool is_split = chunk_k >= DK_PLAN_INNER_K && split_k > 1 && thread_count > 1 &&
                    panels * row_blocks < 4 * (uint64_t)thread_count &&
                    split_bytes <= DK_PLAN_WORKSPACE_CAP_BYTES;
    uint64_t per_panel = is_split ? row_blocks * split_k : row_blocks;
    uint32_t group = group_panels(panels, per_panel, (is_split ? 8 : 4) * (uint64_t)thread_count);
    *out = (struct dk_plan){
        .bucket_rows = bucket_rows,
        .split_k = split_k,
        .chunk_k = chunk_k,
        .tile_m = bucket_rows < DK_PLAN_ROW_BLOCK ? bucket_rows : DK_PLAN_ROW_BLOCK,
        .tile_n = group * DK_PLAN_PANEL_N,
        .backend_variant = is_split ? DK_PLAN_SPLIT : DK_PLAN_TILED,
        .workspace_bytes = is_split ? split_bytes : 0,
    };
}

bool dk_plan_is_valid(const struct dk_plan *plan, uint64_t n, uint64_t k)
{
    return plan->variant && plan->bucket_rows >= 1 && plan->chunk_k >= 1 && plan->split_k >= 1 &&
           plan->tile_m >= 1 && plan->tile_n >= 1 && n >= 1 && dk_ceil_div(k, plan->chunk_k) == plan->split_k;
}
