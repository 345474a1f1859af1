/* product.c: one product as tasks for the pool: split over K with a workspace, or tiled without. */
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/reduce.h"
#include "kernels/cpu/small_k.h"

#include <stdatomic.h>
#include <string.h>

enum { CACHE_LINE = 64 };

/* Below this many multiply-adds waking another thread costs more than it saves. */
static const double inline_work = 64e3;

struct product {
    struct dk_cpu_device *device;
    const struct dk_cpu_weights *weights;
    const struct dk_plan *plan;
    const struct dk_call *call;
    struct dk_output output;
    uint64_t n, k, panel_count;
    uint32_t row_block_count, group, group_count;
    bool is_a_direct; /* A is fp32 and aligned: the micro-kernels read it in place */
    /* Split form only. */
    float *partials; /* [S, m, padded n] */
    size_t partial_row, partial_plane;
    _Atomic uint32_t *arrivals; /* per tile: chunks done */
};

/* Rows [row0, row0+rows) x panels [panel0, panel0+panels) of the product. */
struct tile {
    uint64_t row0, panel0;
    uint32_t rows, panels;
};

/* Sums of a tile's panel p at sums + p * panel_stride, rows `row_stride` apart. */
struct sums {
    float *first;
    size_t row_stride, panel_stride;
};

/* First row of block `block`: blocks hold whole strips, as evenly as that goes. */
static uint64_t first_row(const struct product *product, uint32_t block)
{
    uint64_t strips = dk_ceil_div(product->call->m, DK_MICRO_ROWS);
    uint64_t row = strips * block / product->row_block_count * DK_MICRO_ROWS;
    return row < product->call->m ? row : product->call->m;
}

static struct tile tile_at(const struct product *product, uint32_t index)
{
    uint32_t block = index % product->row_block_count, group = index / product->row_block_count;
    uint64_t panel0 = (uint64_t)group * product->group, left = product->panel_count - panel0;
    uint64_t row0 = first_row(product, block);
    return (struct tile){.row0 = row0,
                         .panel0 = panel0,
                         .rows = (uint32_t)(first_row(product, block + 1) - row0),
                         .panels = left < product->group ? (uint32_t)left : product->group};
}

/* One block of steps against all rows of the tile: the first strip widens B for the others. */
static void run_strips(const struct dk_isa *isa, const struct dk_micro *block, uint32_t rows, float *wide)
{
    uint32_t strip_count = (rows + DK_MICRO_ROWS - 1) / DK_MICRO_ROWS;
    struct dk_micro strip = *block;
    bool is_widening = strip_count > 1 && block->b_dtype != DK_FP32;
    for (uint32_t i = 0, row = 0; i < strip_count; i++, row += strip.rows) {
        strip.rows = rows / strip_count + (i < rows % strip_count);
        strip.a = block->a + row * block->a_stride;
        strip.c = block->c + row * block->c_stride;
        strip.wide = is_widening && i == 0 ? wide : NULL;
        isa->micro(&strip);
        if (is_widening && i == 0) {
            strip.b = wide;
            strip.b_dtype = DK_FP32;
        }
    }
}

/* Rows of A that the next slice will read: asked for a little at a time while this slice is computed. */
struct ahead {
    const char *a; /* NULL: nothing */
    size_t row_bytes;
    uint32_t rows, line_count;
    uint32_t step, step_count;
};

static void fetch_ahead(struct ahead *ahead)
{
    uint32_t begin = ahead->rows * ahead->step / ahead->step_count;
    uint32_t end = ahead->rows * (ahead->step + 1) / ahead->step_count;
    for (uint32_t row = begin; ahead->a && row < end; row++) {
        for (uint32_t line = 0; line < ahead->line_count; line++) {
            __builtin_prefetch(ahead->a + row * ahead->row_bytes + line * CACHE_LINE, 0, 2);
        }
    }
    ahead->step++;
}

/* One panel over steps [k0, k0 + k_count) of A at `a` (its first step). */
static void run_panel(const struct product *product, const float *a, size_t a_stride, uint32_t rows,
                      uint64_t panel_index, uint64_t k0, uint32_t k_count, struct sums sums,
                      bool is_accumulating, float *wide, struct ahead *ahead)
{
    const struct dk_cpu_weights *weights = product->weights;
    dk_dtype dtype = weights->base.dtype;
    uint32_t width = dk_plan_panel_width(product->n, panel_index);
    const char *panel =
        (const char *)weights->packed + panel_index * dk_panel_stride_bytes(product->k, dtype);
    struct dk_micro block = {
        .b_dtype = dtype,
        .width = width,
        .rows = rows,
        .a_stride = a_stride,
        .c = sums.first,
        .c_stride = sums.row_stride,
    };
    /* A single strip needs no widened copy, so it takes all its steps in one call. */
    uint32_t length = rows <= DK_MICRO_ROWS ? k_count : DK_CPU_WIDE_K;
    for (uint32_t k = 0; k < k_count; k += length) {
        block.k_count = k_count - k < length ? k_count - k : length;
        block.a = a + k;
        block.b = dk_panel_step(panel, dtype, k0 + k, width);
        block.is_accumulating = is_accumulating || k > 0;
        run_strips(product->device->isa, &block, rows, wide);
        fetch_ahead(ahead);
    }
}

static const char *a_at(const struct product *product, const struct tile *tile, uint64_t k)
{
    const struct dk_call *call = product->call;
    return (const char *)call->a + (tile->row0 * call->a_row_elements + k) * dk_dtype_bytes(call->a_dtype);
}

/* A[tile rows, k0 .. k0+k_count) as fp32: in place, or widened into the thread's slice. */
static const float *slice_of_a(const struct product *product, const struct tile *tile, uint64_t k0,
                               uint32_t k_count, struct dk_cpu_scratch *scratch, size_t *stride)
{
    const struct dk_call *call = product->call;
    const char *a = a_at(product, tile, k0);
    if (product->is_a_direct) {
        *stride = call->a_row_elements;
        return (const float *)(const void *)a;
    }
    size_t row_bytes = call->a_row_elements * dk_dtype_bytes(call->a_dtype);
    for (uint32_t row = 0; row < tile->rows; row++) {
        product->device->isa->widen(a + row * row_bytes, call->a_dtype,
                                    scratch->a + (size_t)row * DK_CPU_SLICE_STRIDE, k_count);
    }
    *stride = DK_CPU_SLICE_STRIDE;
    return scratch->a;
}

/* What follows the slice [k, k + k_count) in the same rows. */
static struct ahead ahead_of(const struct product *product, const struct tile *tile, uint64_t k,
                             uint32_t k_count)
{
    size_t item = dk_dtype_bytes(product->call->a_dtype);
    uint64_t next = k + k_count, left = product->k - next;
    uint64_t length = left < DK_CPU_SLICE_K ? left : DK_CPU_SLICE_K;
    uint32_t blocks = tile->rows <= DK_MICRO_ROWS ? 1 : (uint32_t)dk_ceil_div(k_count, DK_CPU_WIDE_K);
    return (struct ahead){
        .a = left > 0 && tile->rows > DK_MICRO_ROWS ? a_at(product, tile, next) : NULL,
        .row_bytes = product->call->a_row_elements * item,
        .rows = tile->rows,
        .line_count = (uint32_t)dk_ceil_div(length * item, CACHE_LINE),
        .step_count = tile->panels * blocks,
    };
}

/* All panels of the tile over one chunk; `sums` is overwritten. */
static void run_chunk(const struct product *product, const struct tile *tile, uint32_t chunk,
                      struct sums sums, struct dk_cpu_scratch *scratch)
{
    uint64_t begin = (uint64_t)chunk * product->plan->chunk_k;
    uint64_t end = begin + product->plan->chunk_k < product->k ? begin + product->plan->chunk_k : product->k;
    for (uint64_t k = begin; k < end; k += DK_CPU_SLICE_K) {
        uint32_t k_count = (uint32_t)(end - k < DK_CPU_SLICE_K ? end - k : DK_CPU_SLICE_K);
        size_t stride;
        const float *a = slice_of_a(product, tile, k, k_count, scratch, &stride);
        struct ahead ahead = ahead_of(product, tile, k, k_count);
        for (uint32_t p = 0; p < tile->panels; p++) {
            struct sums panel = {sums.first + p * sums.panel_stride, sums.row_stride, 0};
            run_panel(product, a, stride, tile->rows, tile->panel0 + p, k, k_count, panel, k > begin,
                      scratch->wide, &ahead);
        }
    }
}

/* Rows of panel p of the tile are final: `sums` has chunk_count planes. */
static void finish_panel(const struct product *product, const struct tile *tile, uint32_t p,
                         const float *sums, size_t row_stride, uint32_t chunk_count, size_t plane_stride)
{
    uint64_t column0 = (tile->panel0 + p) * DK_PLAN_PANEL_N;
    uint64_t left = product->n - column0;
    uint32_t columns = left < DK_PLAN_PANEL_N ? (uint32_t)left : DK_PLAN_PANEL_N;
    for (uint32_t row = 0; row < tile->rows; row++) {
        dk_reduce_row(sums + row * row_stride, chunk_count, plane_stride, tile->row0 + row, column0, columns,
                      &product->output);
    }
}

static void run_tiled_task(void *context, uint32_t index, uint32_t thread_index)
{
    const struct product *product = context;
    struct dk_cpu_scratch *scratch = &product->device->scratch[thread_index];
    struct tile tile = tile_at(product, index);
    const size_t panel_floats = sizeof scratch->total[0] / sizeof(float);
    for (uint32_t chunk = 0; chunk < product->plan->split_k; chunk++) {
        float *to = chunk == 0 ? scratch->total[0] : scratch->chunk[0];
        run_chunk(product, &tile, chunk, (struct sums){to, DK_PLAN_PANEL_N, panel_floats}, scratch);
        for (uint32_t p = 0; chunk > 0 && p < tile.panels; p++) {
            for (size_t i = 0; i < (size_t)tile.rows * DK_PLAN_PANEL_N; i++) {
                scratch->total[p][i] += scratch->chunk[p][i];
            }
        }
    }
    for (uint32_t p = 0; p < tile.panels; p++) {
        finish_panel(product, &tile, p, scratch->total[p], DK_PLAN_PANEL_N, 1, 0);
    }
}

/* Task order: chunks of a tile are neighbours, so a thread's share is one run through the packed panels and
 * it usually reduces what it computed. */
static void run_split_task(void *context, uint32_t index, uint32_t thread_index)
{
    const struct product *product = context;
    uint32_t split_k = product->plan->split_k;
    uint32_t tile_index = index / split_k, chunk = index % split_k;
    struct tile tile = tile_at(product, tile_index);
    float *origin = product->partials + tile.row0 * product->partial_row + tile.panel0 * DK_PLAN_PANEL_N;
    struct sums sums = {origin + chunk * product->partial_plane, product->partial_row, DK_PLAN_PANEL_N};
    run_chunk(product, &tile, chunk, sums, &product->device->scratch[thread_index]);
    /* The last chunk to arrive finishes the tile; the sum itself is always in chunk order. */
    if (atomic_fetch_add_explicit(&product->arrivals[tile_index], 1, memory_order_acq_rel) + 1 < split_k) {
        return;
    }
    for (uint32_t p = 0; p < tile.panels; p++) {
        finish_panel(product, &tile, p, origin + (size_t)p * DK_PLAN_PANEL_N, product->partial_row, split_k,
                     product->partial_plane);
    }
}

static bool is_worth_threads(const struct product *product)
{
    return (double)product->call->m * (double)product->n * (double)product->k >= inline_work;
}

static void run_tasks(const struct product *product, dk_pool_task task, uint32_t task_count)
{
    if (is_worth_threads(product)) {
        dk_pool_run(product->device->pool, task, (void *)(uintptr_t)product, task_count);
        return;
    }
    for (uint32_t i = 0; i < task_count; i++) {
        task((void *)(uintptr_t)product, i, 0);
    }
}

void dk_cpu_product(struct dk_cpu_device *device, const struct dk_cpu_weights *weights,
                    const struct dk_plan *plan, const struct dk_call *call)
{
    struct product product = {
        .device = device,
        .weights = weights,
        .plan = plan,
        .call = call,
        .output = {call->c, call->c_row_elements, call->c_dtype, call->epilogue,
                   call->bias               ? call->bias
                   : weights->base.has_bias ? weights->bias
                                            : NULL,
                   device->isa},
        .n = weights->base.n,
        .k = weights->base.k,
        .panel_count = dk_ceil_div(weights->base.n, DK_PLAN_PANEL_N),
        .row_block_count = (uint32_t)dk_ceil_div(call->m, plan->tile_m),
        .group = plan->tile_n / DK_PLAN_PANEL_N,
        .is_a_direct = call->a_dtype == DK_FP32 && (uintptr_t)call->a % sizeof(float) == 0,
    };
    if (dk_cpu_is_small_k(plan) && !is_worth_threads(&product)) {
        dk_cpu_small_k(device->isa, device->scratch, weights, plan, call, &product.output);
        return;
    }
    product.group_count = (uint32_t)dk_ceil_div(product.panel_count, product.group);
    uint32_t tile_count = product.group_count * product.row_block_count;
    if (plan->backend_variant == DK_PLAN_TILED) {
        run_tasks(&product, run_tiled_task, tile_count);
        return;
    }
    product.partials = call->workspace;
    product.partial_row = dk_plan_padded_n(product.n);
    product.partial_plane = product.partial_row * call->m;
    product.arrivals =
        (_Atomic uint32_t *)(void *)((char *)call->workspace +
                                     dk_plan_partials_bytes(product.n, plan->split_k, (uint32_t)call->m));
    for (uint32_t i = 0; i < tile_count; i++) {
        atomic_init(&product.arrivals[i], 0);
    }
    run_tasks(&product, run_split_task, tile_count * plan->split_k);
}
