/* bench_kernels.c: `bench_kernels router`: every plan of the CUDA backend, cuBLAS and the floors, in one run.
 *
 * A chain of calls as long as the model has routers is captured in a graph and replayed; the median counts.
 * Cold: as many weights as calls, more than the L2 holds. Hot: one. pdl1: launches joined by programmatic
 * dependent launch. pair: what a call adds to a chain of kernels that each write the A of the next call.
 * Libraries are timed without PDL: their kernels do not take part in it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decomposek.h"
#include "tests/bench/bench_kernels_chain.h"
#include "tests/bench/bench_kernels_floors.h"
#include "tests/bench/bench_kernels_options.h"
#include "tests/bench/bench_kernels_report.h"
#include "tests/bench/bench_kernels_shapes.h"

#include "bench_commit.h"

enum { MAX_LAYERS = 128, MAX_PLANS = 256, ENGINES = 4 };

/* Engines differ in what their plans are made for: bit 0 PDL, bit 1 batch invariance. */
struct bench {
    struct bench_options options;
    struct bench_report report;
    struct dk_engine *engines[ENGINES];
    struct dk_weights *weights[ENGINES][MAX_LAYERS];
    const struct bench_shape *shape;
    void *d_a, *d_x, *d_c, *d_reads; /* d_reads: bf16 weights of all layers, for the floor */
};

struct timing {
    struct dk_plan plan;
    double cold_us, hot_us, pair_us; /* 0: not timed */
    bool is_built_in;
};

static void die(const char *what, const struct dk_error *error)
{
    fprintf(stderr, "bench_kernels: %s%s%s\n", what, error ? ": " : "", error ? error->message : "");
    exit(1);
}

static bool is_library(const struct dk_plan *plan)
{
    return strncmp(plan->variant, "cublas", strlen("cublas")) == 0;
}

static void open_engines(struct bench *bench)
{
    struct dk_error error;
    for (uint32_t i = 0; i < (bench->options.with_invariant ? ENGINES : 2u); i++) {
        struct dk_engine_options options = {.backend = DK_BACKEND_CUDA,
                                            .plugin_path = bench->options.plugin_path,
                                            .use_dependent_launch = i & 1,
                                            .is_batch_invariant = i & 2};
        if (dk_engine_new(&options, &bench->engines[i], &error) != DK_OK)
            die("no CUDA backend", &error);
    }
}

static void make_weights(struct bench *bench)
{
    size_t count = (size_t)bench->shape->k * bench->shape->n;
    uint16_t *values = malloc(count * sizeof *values);
    struct dk_error error;
    if (!values)
        die("out of memory", NULL);
    bench->d_reads = bench_random_bf16(count * bench->shape->layers);
    bench_check(cudaMemcpy(values, bench->d_reads, count * 2, cudaMemcpyDeviceToHost), "copy weights");
    struct dk_weights_desc desc = {bench->shape->n, bench->shape->k, DK_BF16, DK_LAYOUT_NK, values, NULL};
    for (uint32_t e = 0; e < ENGINES && bench->engines[e]; e++)
        for (uint32_t i = 0; i < bench->shape->layers; i++)
            if (dk_weights_new(bench->engines[e], &desc, &bench->weights[e][i], &error) != DK_OK)
                die("weights", &error);
    free(values);
}

static void free_weights(struct bench *bench)
{
    for (uint32_t e = 0; e < ENGINES && bench->engines[e]; e++)
        for (uint32_t i = 0; i < bench->shape->layers; i++)
            dk_weights_free(bench->weights[e][i]);
    bench_check(cudaFree(bench->d_reads), "free weights");
}

static double time_plan(const struct bench *bench, uint32_t engine, uint32_t m, const struct dk_plan *plan,
                        bool is_cold)
{
    struct dk_error error;
    double ns = 0.0;
    struct dk_measure measure = {
        .weights = (const struct dk_weights *const *)bench->weights[engine],
        .weight_count = is_cold ? bench->shape->layers : 1,
        .m = m,
        .a_dtype = DK_BF16,
        .c_dtype = DK_FP32,
        .chain_count = bench->shape->layers,
        .repeat_count = bench->options.repeats,
    };
    dk_status status = dk_plan_measure(&measure, plan, &ns, &error);
    if (status != DK_OK && status != DK_UNSUPPORTED)
        die(plan->variant, &error);
    return ns / 1e3;
}

struct pair {
    const struct bench *bench;
    uint32_t engine, m;
    void *workspace;
    bool with_product;
};

static bool enqueue_pair(void *context, unsigned index, cudaStream_t stream)
{
    const struct pair *pair = context;
    const struct bench_shape *shape = pair->bench->shape;
    struct dk_error error;
    bool is_dependent = pair->engine & 1;
    if (bench_producer_enqueue(pair->bench->d_a, pair->bench->d_x, pair->m, shape->k * 2ul, is_dependent,
                               stream) != cudaSuccess)
        return false;
    if (!pair->with_product)
        return true;
    struct dk_call call = {.m = pair->m,
                           .a = pair->bench->d_a,
                           .a_row_elements = shape->k,
                           .a_dtype = DK_BF16,
                           .c = pair->bench->d_c,
                           .c_row_elements = shape->n,
                           .c_dtype = DK_FP32,
                           .workspace = pair->workspace,
                           .stream = stream};
    return dk_enqueue(pair->bench->weights[pair->engine][index], &call, &error) == DK_OK;
}

static double time_pair(struct bench *bench, uint32_t engine, uint32_t m, const struct dk_plan *plan)
{
    struct dk_error error;
    struct pair pair = {.bench = bench, .engine = engine, .m = m};
    const struct dk_plan before = *dk_plan_get(bench->weights[engine][0], m);
    uint32_t bucket = dk_engine_bucket_index(bench->engines[engine], m);
    for (uint32_t i = 0; i < bench->shape->layers; i++)
        if (dk_plan_set(bench->weights[engine][i], bucket, plan, &error) != DK_OK)
            die("set a plan", &error);
    if (dk_workspace_new(bench->engines[engine], plan->workspace_bytes, &pair.workspace, &error) != DK_OK)
        die("workspace", &error);
    double alone = bench_chain_us(enqueue_pair, &pair, bench->shape->layers, bench->options.repeats);
    pair.with_product = true;
    double both = bench_chain_us(enqueue_pair, &pair, bench->shape->layers, bench->options.repeats);
    dk_workspace_free(bench->engines[engine], pair.workspace);
    for (uint32_t i = 0; i < bench->shape->layers; i++) /* other m of the bucket come later */
        (void)dk_plan_set(bench->weights[engine][i], bucket, &before, &error);
    return alone < 0.0 || both < 0.0 ? 0.0 : both - alone;
}

struct floor {
    const struct bench *bench;
    bool is_dependent, is_reading;
};

static bool enqueue_floor(void *context, unsigned index, cudaStream_t stream)
{
    const struct floor *floor = context;
    size_t bytes = (size_t)floor->bench->shape->k * floor->bench->shape->n * 2;
    if (!floor->is_reading)
        return bench_empty_enqueue(floor->is_dependent, stream) == cudaSuccess;
    return bench_read_enqueue((const char *)floor->bench->d_reads + index * bytes, bytes, floor->bench->d_c,
                              floor->is_dependent, stream) == cudaSuccess;
}

static double time_floor(const struct bench *bench, bool is_dependent, bool is_reading)
{
    struct floor floor = {bench, is_dependent, is_reading};
    return bench_chain_us(enqueue_floor, &floor, bench->shape->layers, bench->options.repeats);
}

static void report(struct bench *bench, uint32_t engine, uint32_t m, const struct timing *t)
{
    if (t->cold_us <= 0.0)
        return;
    struct bench_result result = {bench->shape,   m,          engine & 1, engine >> 1, &t->plan,
                                  t->is_built_in, t->cold_us, t->hot_us,  t->pair_us};
    bench_report_add(&bench->report, &result);
}

static bool is_same(const struct dk_plan *a, const struct dk_plan *b)
{
    return strcmp(a->variant, b->variant) == 0 && a->split_k == b->split_k && a->chunk_k == b->chunk_k;
}

/* The fastest of one T: ours for each engine, and the libraries'. */
struct row {
    struct timing ours[ENGINES], cublas, lt;
    double built_in_us[ENGINES];
};

static void keep_fastest(struct timing *best, const struct timing *t)
{
    if (t->cold_us > 0.0 && (best->cold_us <= 0.0 || t->cold_us < best->cold_us))
        *best = *t;
}

/* Times all plans of one kind for `m` rows, cold. */
static void time_plans(struct bench *bench, uint32_t engine, uint32_t m, bool of_libraries, struct row *row)
{
    static struct dk_plan plans[MAX_PLANS];
    uint32_t count = dk_plan_candidates(bench->weights[engine][0], m, plans, MAX_PLANS);
    const struct dk_plan built_in = *dk_plan_get(bench->weights[engine][0], m);
    for (uint32_t i = 0; i < count && i < MAX_PLANS; i++) {
        struct timing t = {.plan = plans[i], .is_built_in = is_same(&plans[i], &built_in)};
        if (is_library(&t.plan) != of_libraries ||
            (bench->options.is_built_in_only && !of_libraries && !t.is_built_in))
            continue;
        t.cold_us = time_plan(bench, engine, m, &t.plan, true);
        report(bench, engine, m, &t);
        if (t.is_built_in)
            row->built_in_us[engine] = t.cold_us;
        keep_fastest(!of_libraries                           ? &row->ours[engine]
                     : strcmp(t.plan.variant, "cublas") == 0 ? &row->cublas
                                                             : &row->lt,
                     &t);
        if (bench->options.is_listing_all)
            printf("    m=%-4u pdl%u %-26s S=%-3u %7.2f\n", m, engine & 1, t.plan.variant, t.plan.split_k,
                   t.cold_us);
    }
}

static void time_ours(struct bench *bench, uint32_t m, struct row *row)
{
    for (uint32_t e = 0; e < ENGINES && bench->engines[e]; e++) {
        time_plans(bench, e, m, false, row);
        struct timing *ours = &row->ours[e];
        /* A plan chosen as the fastest of many profits from noise: its own time is taken anew. */
        if (bench->options.is_built_in_only)
            continue;
        ours->cold_us = time_plan(bench, e, m, &ours->plan, true);
        ours->hot_us = time_plan(bench, e, m, &ours->plan, false);
        ours->pair_us = e < 2 ? time_pair(bench, e, m, &ours->plan) : 0.0;
        report(bench, e, m, ours);
    }
}

static void print_row(const struct bench *bench, uint32_t m, const struct row *row)
{
    const struct timing *ours = row->ours;
    double bytes = 2.0 * bench->shape->k * bench->shape->n;
    printf("%5u %6.2f %6.2f %6.2f %6.2f %6.2f %6.2f %7.2f %6.2f %5.0f  %s | %s", m, ours[0].cold_us,
           ours[1].cold_us, ours[0].hot_us, ours[1].hot_us, ours[0].pair_us, ours[1].pair_us,
           row->cublas.cold_us, row->lt.cold_us, bytes / ours[0].cold_us / 1e3, ours[0].plan.variant,
           ours[1].plan.variant);
    printf("  built-in %.2f/%.2f", row->built_in_us[0], row->built_in_us[1]);
    if (bench->engines[2])
        printf("  invariant %.2f/%.2f", ours[2].cold_us, ours[3].cold_us);
    printf("\n");
}

enum { SPIN_CYCLES = 2000000 };

static bool enqueue_spin(void *context, unsigned index, cudaStream_t stream)
{
    (void)context;
    (void)index;
    return bench_spin_enqueue(SPIN_CYCLES, stream) == cudaSuccess;
}

static void print_floors(const struct bench *bench)
{
    printf("floors: empty node %.2f/%.2f, reading the weights %.2f/%.2f (pdl0/pdl1, cold); %.0f MHz\n",
           time_floor(bench, false, false), time_floor(bench, true, false), time_floor(bench, false, true),
           time_floor(bench, true, true), SPIN_CYCLES / bench_chain_us(enqueue_spin, NULL, 1, 5));
}

static uint32_t largest_tokens(const struct bench_options *options)
{
    uint32_t largest = 1;
    for (uint32_t i = 0; i < options->token_count; i++)
        largest = options->tokens[i] > largest ? options->tokens[i] : largest;
    return largest;
}

static void run_shape(struct bench *bench, const struct bench_shape *shape)
{
    uint32_t most = largest_tokens(&bench->options);
    bench->shape = shape;
    make_weights(bench);
    bench->d_a = bench_random_bf16((size_t)most * shape->k);
    bench->d_x = bench_random_bf16((size_t)most * shape->k);
    bench_check(cudaMalloc(&bench->d_c, (size_t)most * shape->n * sizeof(float)), "allocate C");
    printf("\n[T,%u] x [%u,%u]  %s, %u calls a chain; microseconds\n", shape->k, shape->k, shape->n,
           shape->models, shape->layers);
    print_floors(bench);
    static struct row rows[BENCH_MAX_TOKENS_ITEMS];
    memset(rows, 0, sizeof rows);
    for (uint32_t i = 0; i < bench->options.token_count; i++)
        time_ours(bench, bench->options.tokens[i], &rows[i]);
    print_floors(bench); /* once more: a drift of the machine shows */
    /* Last, so that their kernels change nothing for ours. Not the reason, though, why an empty node
     * sometimes takes 0.80 instead of 0.62 for the rest of a process's life: that is there before they run.
     */
    for (uint32_t i = 0; i < bench->options.token_count; i++)
        time_plans(bench, 0, bench->options.tokens[i], true, &rows[i]);
    printf("    T  cold0  cold1   hot0   hot1  pair0  pair1  cublas     Lt  GB/s  plan pdl0 | pdl1\n");
    for (uint32_t i = 0; i < bench->options.token_count; i++)
        print_row(bench, bench->options.tokens[i], &rows[i]);
    print_floors(bench);
    fflush(stdout);
    bench_check(cudaFree(bench->d_c), "free C");
    bench_check(cudaFree(bench->d_x), "free A");
    bench_check(cudaFree(bench->d_a), "free A");
    free_weights(bench);
}

int main(int argc, char **argv)
{
    static struct bench bench;
    if (!bench_options_parse(argc, argv, &bench.options)) {
        bench_options_usage(stderr);
        return 2;
    }
    if (!bench_report_open(&bench.report, bench.options.csv_path, bench.options.json_path))
        return 1;
    open_engines(&bench);
    bench_report_begin(&bench.report, dk_engine_get_info(bench.engines[0]), DK_COMMIT);
    for (uint32_t i = 0; i < bench.options.shape_count; i++)
        run_shape(&bench, &bench.options.shapes[i]);
    for (uint32_t e = 0; e < ENGINES; e++)
        dk_engine_free(bench.engines[e]);
    return bench_report_end(&bench.report) ? 0 : 1;
}
