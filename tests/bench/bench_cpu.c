/* bench_cpu.c: our CPU kernels against OpenBLAS, interleaved in one process, medians.
 *
 * Candidates take turns in bursts of calls; between turns everybody's idle threads get time to fall asleep
 * (OpenBLAS' workers spin for tens of milliseconds and would take the core from the next candidate). The
 * first calls of a burst warm the caches and are not counted. Ratio: the faster sgemm (weights as [k, n] or
 * [n, k], fp32) over the candidate. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "decomposek.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/clock.h"

enum {
    MAX_CANDIDATES = 8,
    MAX_SAMPLES = 8192,
    REST_US = 60000,
    WARM_CALLS = 3,
    MAX_ROWS_ITEMS = 32,
    MAX_ROTATE = 256
};

struct options {
    uint64_t n, k;
    uint32_t threads, rounds, rotate;
    uint64_t burst_us; /* a burst is about this long */
    dk_dtype a_dtype, b_dtype;
    bool is_showing_fastest; /* the table shows the fastest call: for a machine that others use too */
    const char *json_path;
    uint32_t rows[MAX_ROWS_ITEMS], rows_count;
};

struct candidate {
    char name[32];
    struct dk_engine *engine; /* ours, or NULL: OpenBLAS */
    struct dk_weights *weights[MAX_ROTATE];
    void *workspace;
    dk_layout layout; /* OpenBLAS */
    bool is_sgemv;
    double samples[MAX_SAMPLES]; /* microseconds */
    uint32_t sample_count;
    uint32_t next_weights;
};

struct bench {
    struct options options;
    struct dk_blas *blas;
    struct candidate candidates[MAX_CANDIDATES];
    uint32_t candidate_count;
    float **b_kn, **b_nk; /* [rotate] fp32 weights of OpenBLAS */
    float *a;             /* fp32 rows */
    void *a_narrow;       /* the same in a_dtype */
    float *c;
    FILE *json;
    bool has_json_row;
};

static void die(const char *what)
{
    fprintf(stderr, "bench_cpu: %s\n", what);
    exit(1);
}

static void *must_alloc(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory) {
        die("out of memory");
    }
    return memory;
}

static float next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(int32_t)*state * 0x1p-31f;
}

static void add_ours(struct bench *bench, const char *isa)
{
    const struct options *o = &bench->options;
    struct dk_engine_options engine_options = {
        .backend = DK_BACKEND_CPU, .thread_count = o->threads, .cpu_isa = isa};
    struct dk_error error;
    struct candidate *candidate = &bench->candidates[bench->candidate_count];
    if (dk_engine_new(&engine_options, &candidate->engine, &error) != DK_OK) {
        printf("# without %s: %s\n", isa, error.message);
        return;
    }
    snprintf(candidate->name, sizeof candidate->name, "%s", isa);
    void *data = must_alloc(o->n * o->k * dk_dtype_bytes(o->b_dtype));
    for (uint32_t i = 0; i < o->rotate; i++) {
        dk_convert_from_float(bench->b_nk[i], data, o->b_dtype, o->n * o->k);
        struct dk_weights_desc desc = {o->n, o->k, o->b_dtype, DK_LAYOUT_NK, data, NULL};
        if (dk_weights_new(candidate->engine, &desc, &candidate->weights[i], &error) != DK_OK) {
            die(error.message);
        }
    }
    free(data);
    size_t bytes = dk_workspace_bytes(candidate->weights[0], 4096);
    if (dk_workspace_new(candidate->engine, bytes, &candidate->workspace, &error) != DK_OK) {
        die(error.message);
    }
    bench->candidate_count++;
}

static void add_blas(struct bench *bench, const char *name, dk_layout layout, bool is_sgemv)
{
    struct candidate *candidate = &bench->candidates[bench->candidate_count++];
    snprintf(candidate->name, sizeof candidate->name, "%s", name);
    candidate->layout = layout;
    candidate->is_sgemv = is_sgemv;
}

static void fill_weights(struct bench *bench)
{
    const struct options *o = &bench->options;
    uint32_t state = 1;
    bench->b_kn = must_alloc(o->rotate * sizeof *bench->b_kn);
    bench->b_nk = must_alloc(o->rotate * sizeof *bench->b_nk);
    for (uint32_t i = 0; i < o->rotate; i++) {
        bench->b_kn[i] = must_alloc(o->n * o->k * sizeof(float));
        bench->b_nk[i] = must_alloc(o->n * o->k * sizeof(float));
        for (uint64_t n = 0; n < o->n; n++) {
            for (uint64_t k = 0; k < o->k; k++) {
                float value = next_random(&state);
                bench->b_kn[i][k * o->n + n] = value;
                bench->b_nk[i][n * o->k + k] = value;
            }
        }
    }
}

static void fill_rows(struct bench *bench)
{
    const struct options *o = &bench->options;
    uint32_t most = 0, state = 2;
    for (uint32_t i = 0; i < o->rows_count; i++) {
        most = o->rows[i] > most ? o->rows[i] : most;
    }
    bench->a = must_alloc(most * o->k * sizeof(float));
    bench->a_narrow = must_alloc(most * o->k * sizeof(float));
    bench->c = must_alloc(most * o->n * sizeof(float));
    for (uint64_t i = 0; i < most * o->k; i++) {
        bench->a[i] = next_random(&state);
    }
    dk_convert_from_float(bench->a, bench->a_narrow, o->a_dtype, most * o->k);
}

static void run_once(struct bench *bench, struct candidate *candidate, uint32_t rows)
{
    const struct options *o = &bench->options;
    uint32_t index = candidate->next_weights;
    candidate->next_weights = index + 1 < o->rotate ? index + 1 : 0;
    if (candidate->engine) {
        struct dk_call call = {.m = rows,
                               .a = bench->a_narrow,
                               .a_row_elements = o->k,
                               .a_dtype = o->a_dtype,
                               .c = bench->c,
                               .c_row_elements = o->n,
                               .workspace = candidate->workspace};
        struct dk_error error;
        if (dk_enqueue(candidate->weights[index], &call, &error) != DK_OK) {
            die(error.message);
        }
        return;
    }
    float *b = candidate->layout == DK_LAYOUT_KN ? bench->b_kn[index] : bench->b_nk[index];
    struct dk_blas_product product = {rows, o->n, o->k, bench->a, b, bench->c, o->k, o->n, candidate->layout};
    (candidate->is_sgemv ? dk_blas_sgemv : dk_blas_sgemm)(bench->blas, &product);
}

static void run_burst(struct bench *bench, struct candidate *candidate, uint32_t rows)
{
    usleep(REST_US);
    uint32_t warm = WARM_CALLS > bench->options.rotate ? WARM_CALLS : bench->options.rotate;
    for (uint32_t i = 0; i < warm; i++) {
        run_once(bench, candidate, rows);
    }
    uint64_t begin = dk_cpu_now_ns(), now = begin;
    while (now - begin < bench->options.burst_us * 1000 && candidate->sample_count < MAX_SAMPLES) {
        run_once(bench, candidate, rows);
        uint64_t end = dk_cpu_now_ns();
        candidate->samples[candidate->sample_count++] = (double)(end - now) * 1e-3;
        now = end;
    }
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(struct candidate *candidate)
{
    qsort(candidate->samples, candidate->sample_count, sizeof(double), compare_doubles);
    return candidate->samples[candidate->sample_count / 2];
}

static void report(struct bench *bench, uint32_t rows)
{
    double medians[MAX_CANDIDATES] = {0}, best_sgemm = 0;
    for (uint32_t i = 0; i < bench->candidate_count; i++) {
        struct candidate *candidate = &bench->candidates[i];
        if (candidate->sample_count == 0) {
            continue;
        }
        medians[i] = median(candidate);
        medians[i] = bench->options.is_showing_fastest ? candidate->samples[0] : medians[i];
        bool is_sgemm = !candidate->engine && !candidate->is_sgemv;
        if (is_sgemm && (best_sgemm == 0 || medians[i] < best_sgemm)) {
            best_sgemm = medians[i];
        }
    }
    printf("%5u", rows);
    for (uint32_t i = 0; i < bench->candidate_count; i++) {
        const struct candidate *candidate = &bench->candidates[i];
        if (candidate->sample_count == 0) {
            printf("  %18s", "-");
            continue;
        }
        char cell[40];
        snprintf(cell, sizeof cell, best_sgemm > 0 ? "%.1f (%.2fx)" : "%.1f", medians[i],
                 best_sgemm / medians[i]);
        printf("  %18s", cell);
        if (bench->json) {
            fprintf(bench->json,
                    "%s\n    {\"rows\": %u, \"candidate\": \"%s\", \"median_us\": %.2f, \"min_us\": %.2f, "
                    "\"calls\": %u, \"ratio_to_sgemm\": %.3f}",
                    bench->has_json_row ? "," : "", rows, candidate->name, medians[i], candidate->samples[0],
                    candidate->sample_count, best_sgemm / medians[i]);
            bench->has_json_row = true;
        }
    }
    printf("\n");
    fflush(stdout);
}

static void measure(struct bench *bench, uint32_t rows)
{
    for (uint32_t i = 0; i < bench->candidate_count; i++) {
        bench->candidates[i].sample_count = 0;
    }
    for (uint32_t round = 0; round < bench->options.rounds; round++) {
        for (uint32_t i = 0; i < bench->candidate_count; i++) {
            if (!bench->candidates[i].is_sgemv || rows == 1) {
                run_burst(bench, &bench->candidates[i], rows);
            }
        }
    }
    report(bench, rows);
}

static void parse_rows(const char *text, struct options *options)
{
    options->rows_count = 0;
    for (char *end; *text != '\0' && options->rows_count < MAX_ROWS_ITEMS;
         text = *end == ',' ? end + 1 : end) {
        unsigned long value = strtoul(text, &end, 10);
        if (end == text || value < 1 || value > 4096) {
            die("--rows takes numbers from 1 to 4096 with commas between");
        }
        options->rows[options->rows_count++] = (uint32_t)value;
    }
}

static dk_dtype parse_dtype(const char *text)
{
    dk_dtype dtype;
    if (dk_dtype_parse(text, strlen(text), DK_DIALECT_NATIVE, &dtype) != DK_OK || !dk_dtype_is_float(dtype)) {
        die("types are fp32, bf16 and fp16");
    }
    return dtype;
}

static uint32_t parse_count(const char *text, uint32_t most)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < 1 || value > most) {
        die("a number is out of range");
    }
    return (uint32_t)value;
}

static void parse_options(int argc, char **argv, struct options *options)
{
    static const struct option names[] = {
        {"json", 1, NULL, 'j'},     {"rows", 1, NULL, 'r'},    {"rounds", 1, NULL, 'o'},
        {"threads", 1, NULL, 't'},  {"k", 1, NULL, 'k'},       {"n", 1, NULL, 'n'},
        {"a", 1, NULL, 'a'},        {"b", 1, NULL, 'b'},       {"rotate", 1, NULL, 'R'},
        {"burst-us", 1, NULL, 'u'}, {"fastest", 0, NULL, 'f'}, {NULL, 0, NULL, 0}};
    for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (option) {
        case 'j':
            options->json_path = optarg;
            break;
        case 'r':
            parse_rows(optarg, options);
            break;
        case 'o':
            options->rounds = parse_count(optarg, 1000);
            break;
        case 't':
            options->threads = parse_count(optarg, 1024);
            break;
        case 'k':
            options->k = parse_count(optarg, 1 << 20);
            break;
        case 'n':
            options->n = parse_count(optarg, 1 << 16);
            break;
        case 'a':
            options->a_dtype = parse_dtype(optarg);
            break;
        case 'b':
            options->b_dtype = parse_dtype(optarg);
            break;
        case 'f':
            options->is_showing_fastest = true;
            break;
        case 'R':
            options->rotate = parse_count(optarg, MAX_ROTATE);
            break;
        case 'u':
            options->burst_us = parse_count(optarg, 10000000);
            break;
        default:
            die("usage: bench_cpu [--rows 1,16] [--k K] [--n N] [--a TYPE] [--b TYPE] [--threads N] "
                "[--rounds N] "
                "[--burst-us N] [--rotate WEIGHTS] [--fastest] [--json FILE]");
        }
    }
}

static void print_head(struct bench *bench)
{
    const struct options *o = &bench->options;
    const char *core = bench->blas ? dk_blas_core_name(bench->blas) : "none";
    const char *model =
        bench->candidate_count > 0 ? dk_engine_get_info(bench->candidates[0].engine)->device_name : "unknown";
    const char *a = dk_dtype_name(o->a_dtype, DK_DIALECT_NATIVE);
    const char *b = dk_dtype_name(o->b_dtype, DK_DIALECT_NATIVE);
    printf("# %s, %u threads, [T,%llu] x [%llu,%llu], A %s, B %s, %u weights in turn; OpenBLAS core %s\n",
           model, o->threads, (unsigned long long)o->k, (unsigned long long)o->k, (unsigned long long)o->n, a,
           b, o->rotate, core);
    printf("# microseconds per call, %s (speed relative to the faster sgemm)\n%5s",
           o->is_showing_fastest ? "fastest" : "median", "T");
    for (uint32_t i = 0; i < bench->candidate_count; i++) {
        printf("  %18s", bench->candidates[i].name);
    }
    printf("\n");
    if (bench->json) {
        fprintf(bench->json,
                "{\"cpu\": \"%s\", \"threads\": %u, \"version\": \"%s\", \"openblas_core\": \"%s\", \"k\": "
                "%llu, \"n\": %llu, \"a_dtype\": \"%s\", \"b_dtype\": \"%s\", \"rotated_weights\": %u, "
                "\"results\": [",
                model, o->threads, dk_version(), core, (unsigned long long)o->k, (unsigned long long)o->n, a,
                b, o->rotate);
    }
}

static void free_all(struct bench *bench)
{
    for (uint32_t i = 0; i < bench->candidate_count; i++) {
        struct candidate *candidate = &bench->candidates[i];
        for (uint32_t j = 0; candidate->engine && j < bench->options.rotate; j++) {
            dk_weights_free(candidate->weights[j]);
        }
        if (candidate->engine) {
            dk_workspace_free(candidate->engine, candidate->workspace);
        }
        dk_engine_free(candidate->engine);
    }
    for (uint32_t i = 0; i < bench->options.rotate; i++) {
        free(bench->b_kn[i]);
        free(bench->b_nk[i]);
    }
    free(bench->b_kn);
    free(bench->b_nk);
    free(bench->a);
    free(bench->a_narrow);
    free(bench->c);
    dk_blas_close(bench->blas);
}

int main(int argc, char **argv)
{
    static struct bench bench = {.options = {.n = 256,
                                             .k = 7168,
                                             .threads = 2,
                                             .rounds = 5,
                                             .rotate = 1,
                                             .burst_us = 20000,
                                             .a_dtype = DK_FP32,
                                             .b_dtype = DK_BF16}};
    parse_rows("1,2,4,8,16,32,64,128,256,512", &bench.options);
    parse_options(argc, argv, &bench.options);
    if (bench.options.json_path && !(bench.json = fopen(bench.options.json_path, "we"))) {
        die("cannot write the JSON file");
    }
    fill_weights(&bench);
    fill_rows(&bench);
    add_ours(&bench, "avx512");
    add_ours(&bench, "avx2");
    bench.blas = dk_blas_open(bench.options.threads);
    if (bench.blas) {
        add_blas(&bench, "sgemm_kn", DK_LAYOUT_KN, false);
        add_blas(&bench, "sgemm_nk", DK_LAYOUT_NK, false);
        add_blas(&bench, "sgemv_nk", DK_LAYOUT_NK, true);
    }
    print_head(&bench);
    for (uint32_t i = 0; i < bench.options.rows_count; i++) {
        measure(&bench, bench.options.rows[i]);
    }
    if (bench.json) {
        fprintf(bench.json, "\n]}\n");
        fclose(bench.json);
    }
    free_all(&bench);
    return 0;
}
