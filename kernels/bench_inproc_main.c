/* bench_inproc_main.c: `decomposek-bench-inproc`: time products inside one process and write each time to
 * standard output, for `decomposek bench --transport inproc`.
 *
 * A program of its own because the client links no kernels. Output: one line of JSON that says what computes,
 * then records of two 64-bit values in this machine's byte order: nanoseconds from when the call was due to
 * its end, and nanoseconds inside the kernels; UINT64_MAX there: the call was due and not made, and had
 * waited so long by the end. The last record is {UINT64_MAX, nanoseconds that a call was late at most};
 * without it the run was cut short. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "decomposek.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_DEVICE = 3 };
enum { BATCH = 4096, CHECKED_COLUMNS = 8 };

struct options {
    struct dk_engine_options engine;
    uint64_t n, k, rows;
    dk_dtype dtype, a_dtype;
    uint64_t warmup_ms, duration_ms, rate, seed;
    bool is_constant; /* arrivals at even distances; else Poisson */
};

/* What one run needs. */
struct product {
    struct dk_engine *engine;
    struct dk_weights *weights;
    char *a, *b;
    float *c;
    void *workspace;
    struct dk_call call;
};

struct records {
    uint64_t values[BATCH][2];
    size_t count;
    bool failed;
};

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* SplitMix64 */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* [-1, 1) with few bits, exact in every type. */
static char *make_values(uint64_t count, dk_dtype dtype, uint64_t *state)
{
    size_t bytes;
    if (!dk_size_mul(count, dk_dtype_bytes(dtype), &bytes))
        return NULL;
    char *out = malloc(bytes > 0 ? bytes : 1);
    for (size_t i = 0; out && i < count; i++) {
        float value = (float)((int)(next_random(state) >> 57) - 64) / 64.0f;
        dk_convert_from_float(&value, out + i * dk_dtype_bytes(dtype), dtype, 1);
    }
    return out;
}

/* --- options ------------------------------------------------------------------------------------------- */

static void usage(FILE *stream)
{
    fprintf(stream,
            "usage: decomposek-bench-inproc [OPTION]...   (see: decomposek bench --transport inproc)\n"
            "Time products in this process and write the times to standard output, in binary.\n"
            "\n"
            "  --shape K,N          of B (default 7168,256)\n"
            "  --dtype DTYPE        of B: fp32, bf16 (default) or fp16\n"
            "  --a-dtype DTYPE      of A (default bf16)\n"
            "  --rows COUNT         of A (default 1)\n"
            "  --warmup-ms, --duration-ms MS   (default 0, 1000)\n"
            "  --rate CALLS         a second; 0: one after the other (default)\n"
            "  --constant           even distances instead of Poisson arrivals\n"
            "  --seed SEED          of values and arrivals\n"
            "  --backend auto|cpu|cuda, --threads COUNT\n"
            "  --help, --version\n");
}

static bool parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out, const char **end)
{
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (value > (max - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *end = at;
    *out = value;
    return at != text && value >= min;
}

static bool parse_whole(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    const char *end;
    return parse_u64(text, min, max, out, &end) && *end == '\0';
}

static bool parse_shape(const char *text, struct options *out)
{
    return parse_u64(text, 1, DK_MAX_K, &out->k, &text) && *text++ == ',' &&
           parse_whole(text, 1, DK_MAX_N, &out->n);
}

static bool parse_dtype(const char *text, dk_dtype *out)
{
    return dk_dtype_parse(text, strlen(text), DK_DIALECT_NATIVE, out) == DK_OK && dk_dtype_is_float(*out);
}

static bool parse_backend(const char *text, dk_backend_kind *out)
{
    static const char *const names[] = {"auto", "cpu", "cuda"};
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (dk_backend_kind)i;
            return true;
        }
    return false;
}

static bool take_option(struct options *options, int name)
{
    uint64_t count;
    switch (name) {
    case 's':
        return parse_shape(optarg, options);
    case 'b':
        return parse_dtype(optarg, &options->dtype);
    case 'a':
        return parse_dtype(optarg, &options->a_dtype);
    case 'r':
        return parse_whole(optarg, 1, DK_MAX_M, &options->rows);
    case 'w':
        return parse_whole(optarg, 0, 86400000, &options->warmup_ms);
    case 'd':
        return parse_whole(optarg, 1, 86400000, &options->duration_ms);
    case 'R':
        return parse_whole(optarg, 0, 1000000000, &options->rate);
    case 'c':
        return options->is_constant = true;
    case 'e':
        return parse_whole(optarg, 0, UINT64_MAX, &options->seed);
    case 'B':
        return parse_backend(optarg, &options->engine.backend);
    case 't':
        if (!parse_whole(optarg, 1, 1024, &count))
            return false;
        options->engine.thread_count = (uint32_t)count;
        return true;
    default:
        return false;
    }
}

/* -1: go on; else the exit code. */
static int parse_options(struct options *options, int argc, char **argv)
{
    static const struct option names[] = {
        {"shape", 1, NULL, 's'},   {"dtype", 1, NULL, 'b'},     {"a-dtype", 1, NULL, 'a'},
        {"rows", 1, NULL, 'r'},    {"warmup-ms", 1, NULL, 'w'}, {"duration-ms", 1, NULL, 'd'},
        {"rate", 1, NULL, 'R'},    {"constant", 0, NULL, 'c'},  {"seed", 1, NULL, 'e'},
        {"backend", 1, NULL, 'B'}, {"threads", 1, NULL, 't'},   {"help", 0, NULL, 'h'},
        {"version", 0, NULL, 'v'}, {NULL, 0, NULL, 0}};
    int row = 0;
    for (int name; (name = getopt_long(argc, argv, "", names, &row)) != -1;) {
        if (name == 'h') {
            usage(stdout);
            return EXIT_OK;
        }
        if (name == 'v') {
            printf("decomposek-bench-inproc %s\n", dk_version());
            return EXIT_OK;
        }
        if (name == '?')
            return EXIT_USAGE; /* getopt said why */
        if (!take_option(options, name)) {
            fprintf(stderr, "decomposek-bench-inproc: --%s: '%s' is not allowed (see --help)\n",
                    names[row].name, optarg ? optarg : "");
            return EXIT_USAGE;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "decomposek-bench-inproc: unexpected argument '%s' (see --help)\n", argv[optind]);
        return EXIT_USAGE;
    }
    return -1;
}

/* --- the product --------------------------------------------------------------------------------------- */

static void product_deinit(struct product *product)
{
    if (product->workspace)
        dk_workspace_free(product->engine, product->workspace);
    dk_weights_free(product->weights);
    dk_engine_free(product->engine);
    free(product->a);
    free(product->b);
    free(product->c);
}

static dk_status product_init(struct product *product, const struct options *options, struct dk_error *error)
{
    uint64_t state = options->seed;
    size_t c_bytes;
    dk_status status = dk_engine_new(&options->engine, &product->engine, error);
    if (status != DK_OK)
        return status;
    const struct dk_engine_info *info = dk_engine_get_info(product->engine);
    if (options->rows > info->max_tokens)
        return dk_fail(error, DK_TOO_LARGE, "%llu rows; one call takes %u at most",
                       (unsigned long long)options->rows, info->max_tokens);
    product->a = make_values(options->rows * options->k, options->a_dtype, &state);
    product->b = make_values(options->n * options->k, options->dtype, &state);
    product->c = dk_size_mul(options->rows * options->n, sizeof(float), &c_bytes) ? malloc(c_bytes) : NULL;
    if (!product->a || !product->b || !product->c)
        return dk_fail(error, DK_NO_MEMORY, "no memory for the operands");
    const struct dk_weights_desc desc = {options->n,   options->k, options->dtype,
                                         DK_LAYOUT_NK, product->b, NULL};
    status = dk_weights_new(product->engine, &desc, &product->weights, error);
    if (status == DK_OK)
        status = dk_workspace_new(product->engine, dk_workspace_bytes(product->weights, options->rows),
                                  &product->workspace, error);
    product->call = (struct dk_call){.m = options->rows,
                                     .a = product->a,
                                     .a_row_elements = options->k,
                                     .a_dtype = options->a_dtype,
                                     .c = product->c,
                                     .c_row_elements = options->n,
                                     .c_dtype = DK_FP32,
                                     .workspace = product->workspace};
    return status;
}

static double value_at(const char *values, uint64_t index, dk_dtype dtype)
{
    float value;
    dk_convert_to_float(values + index * dk_dtype_bytes(dtype), dtype, &value, 1);
    return (double)value;
}

/* A few columns of the first and the last row against binary64, within the contract's bound. */
static dk_status check(const struct product *product, const struct options *options, struct dk_error *error)
{
    dk_status status = dk_run_host(product->weights, &product->call, NULL, error);
    const struct dk_plan *plan = dk_plan_get(product->weights, options->rows);
    double depth = ceil((double)plan->chunk_k / 16.0) + (double)plan->split_k;
    for (uint64_t i = 0; status == DK_OK && i < 2 * CHECKED_COLUMNS; i++) {
        uint64_t row = i < CHECKED_COLUMNS ? 0 : options->rows - 1;
        uint64_t column = i % CHECKED_COLUMNS * options->n / CHECKED_COLUMNS;
        double sum = 0, size = 0, found = (double)product->c[row * options->n + column];
        for (uint64_t at = 0; at < options->k; at++) {
            double term = value_at(product->a, row * options->k + at, options->a_dtype) *
                          value_at(product->b, column * options->k + at, options->dtype);
            sum += term;
            size += fabs(term);
        }
        if (!(fabs(found - sum) <= depth * 0x1p-23 * size))
            status = dk_fail(error, DK_INTERNAL, "c[%llu][%llu] is %.9g, expected %.9g",
                             (unsigned long long)row, (unsigned long long)column, found, sum);
    }
    return status;
}

/* --- the run ------------------------------------------------------------------------------------------- */

static void flush_records(struct records *records)
{
    if (fwrite(records->values, sizeof records->values[0], records->count, stdout) != records->count)
        records->failed = true;
    records->count = 0;
}

static void add_record(struct records *records, uint64_t first, uint64_t second)
{
    if (records->count == BATCH)
        flush_records(records);
    records->values[records->count][0] = first;
    records->values[records->count++][1] = second;
}

static double interval_ns(const struct options *options, uint64_t *state)
{
    double mean = 1e9 / (double)options->rate;
    if (options->is_constant)
        return mean;
    return -mean * log((double)((next_random(state) >> 11) + 1) * 0x1p-53);
}

static dk_status measure(const struct product *product, const struct options *options,
                         struct records *records, struct dk_error *error)
{
    uint64_t state = options->seed + 1, max_late_ns = 0, begin_ns = now_ns();
    double due = 0; /* open loop: nanoseconds since the beginning */
    uint64_t window_ns = begin_ns + options->warmup_ms * 1000000u;
    uint64_t end_ns = window_ns + options->duration_ms * 1000000u;
    for (;;) {
        uint64_t due_ns, now = now_ns();
        if (options->rate > 0) {
            due += interval_ns(options, &state);
            due_ns = begin_ns + (uint64_t)due;
            while (now < due_ns && now < end_ns)
                now = now_ns();
        } else {
            due_ns = now;
        }
        if (due_ns >= end_ns)
            break;
        if (due_ns >= window_ns && now - due_ns > max_late_ns)
            max_late_ns = now - due_ns;
        if (now >= end_ns) { /* due, and too late to be made */
            if (due_ns >= window_ns)
                add_record(records, end_ns - due_ns, UINT64_MAX);
            continue;
        }
        uint64_t kernel_ns = 0;
        dk_status status = dk_run_host(product->weights, &product->call, &kernel_ns, error);
        if (status != DK_OK)
            return status;
        if (due_ns >= window_ns)
            add_record(records, now_ns() - due_ns, kernel_ns);
        if (records->failed)
            return dk_fail(error, DK_IO_ERROR, "cannot write the times");
    }
    add_record(records, UINT64_MAX, max_late_ns);
    flush_records(records);
    return records->failed || fflush(stdout) != 0 ? dk_fail(error, DK_IO_ERROR, "cannot write the times")
                                                  : DK_OK;
}

/* Names of devices hold no characters that JSON would have to escape; what does is left out. */
static void print_header(const struct product *product, const struct options *options)
{
    const struct dk_engine_info *info = dk_engine_get_info(product->engine);
    const struct dk_plan *plan = dk_plan_get(product->weights, options->rows);
    char device[sizeof info->device_name];
    size_t length = 0;
    for (const char *at = info->device_name; *at; at++)
        if (*at >= ' ' && *at < 0x7F && *at != '"' && *at != '\\')
            device[length++] = *at;
    device[length] = '\0';
    printf("{\"version\":\"%s\",\"backend\":\"%s\",\"device\":\"%s\",\"isa\":\"%s\",\"variant\":\"%s\","
           "\"split_k\":%u}\n",
           dk_version(), info->backend, device, info->isa, plan->variant, plan->split_k);
}

int main(int argc, char **argv)
{
    static struct options options = {
        .n = 256, .k = 7168, .rows = 1, .dtype = DK_BF16, .a_dtype = DK_BF16, .duration_ms = 1000};
    static struct records records;
    struct product product = {0};
    struct dk_error error;
    int exit_code = parse_options(&options, argc, argv);
    if (exit_code >= 0)
        return fflush(stdout) == 0 ? exit_code : EXIT_FAILED;
    dk_status status = product_init(&product, &options, &error);
    if (status == DK_OK)
        status = check(&product, &options, &error);
    if (status == DK_OK) {
        print_header(&product, &options);
        status = measure(&product, &options, &records, &error);
    }
    if (status != DK_OK)
        fprintf(stderr, "decomposek-bench-inproc: %s\n", error.message);
    product_deinit(&product);
    return status == DK_OK ? EXIT_OK : status == DK_UNAVAILABLE ? EXIT_DEVICE : EXIT_FAILED;
}
