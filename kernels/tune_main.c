/* tune_main.c: `decomposek-tune`: measure plans for shapes and write the plan cache that engines read at
 * start.
 *
 * A program of its own because the client links no kernels and the daemon should not hold up for minutes:
 * `decomposek tune` runs it. */
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decomposek.h"

enum { MAX_SHAPES = 64, EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_DEVICE = 3 };

struct shape {
    uint64_t n, k;
    dk_dtype dtype;
    dk_layout layout;
};

struct options {
    struct dk_engine_options engine;
    struct dk_tune_options tune;
    struct shape shapes[MAX_SHAPES];
    uint32_t shape_count;
    const char *cache_path; /* NULL: the default place */
};

static void usage(FILE *stream)
{
    fprintf(
        stream,
        "usage: decomposek tune [OPTION]...   (or decomposek-tune)\n"
        "Measure every plan for each shape on this machine and remember the fastest.\n"
        "\n"
        "  --shape K,N[,DTYPE[,LAYOUT]]  B of [K, N]; DTYPE fp32, bf16 (default) or fp16; LAYOUT nk "
        "(default) or\n"
        "                                kn as in the weights file; may repeat (default: 7168,256)\n"
        "  --plan-cache PATH             file to read and write (default: $XDG_CACHE_HOME/decomposek/plans, "
        "else\n"
        "                                $HOME/.cache/decomposek/plans)\n"
        "  --max-tokens ROWS             largest bucket (default 4096)\n"
        "  --force                       measure also what the file knows\n"
        "  --repeats COUNT               timings of the best plans (default 20)\n"
        "  --batch-invariant             plans whose bits do not depend on the batch, m <= 64\n"
        "  --dependent-launch            CUDA: plans for chains joined by programmatic dependent launch\n"
        "  --backend auto|cpu|cuda       (default auto)\n"
        "  --device INDEX                CUDA device (default 0)\n"
        "  --threads COUNT               CPU: compute threads (default: all)\n"
        "  --cuda-plugin PATH            libdecomposek_cuda.so\n"
        "  --help, --version\n"
        "\n"
        "Exit codes: 0 ok, 1 failed (also: the file could not be written), 2 usage, 3 no such backend.\n");
}

static bool parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *out, const char **end)
{
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        value = value * 10 + (uint64_t)(*at - '0');
        if (value > max)
            return false;
    }
    *end = at;
    *out = value;
    return at != text && value >= min;
}

static bool parse_u32(const char *text, uint32_t min, uint32_t max, uint32_t *out)
{
    const char *end;
    uint64_t value;
    if (!parse_number(text, min, max, &value, &end) || *end != '\0')
        return false;
    *out = (uint32_t)value;
    return true;
}

/* K,N[,DTYPE[,LAYOUT]] */
static bool parse_shape(const char *text, struct shape *out)
{
    *out = (struct shape){.dtype = DK_BF16, .layout = DK_LAYOUT_NK};
    if (!parse_number(text, 1, DK_MAX_K, &out->k, &text) || *text++ != ',' ||
        !parse_number(text, 1, DK_MAX_N, &out->n, &text))
        return false;
    if (*text == ',') {
        size_t length = strcspn(++text, ",");
        if (dk_dtype_parse(text, length, DK_DIALECT_NATIVE, &out->dtype) != DK_OK ||
            !dk_dtype_is_float(out->dtype))
            return false;
        text += length;
    }
    if (*text == ',') {
        text++;
        if (dk_layout_parse(text, strlen(text), &out->layout) != DK_OK)
            return false;
        text += strlen(text);
    }
    return *text == '\0';
}

static bool parse_backend(const char *text, dk_backend_kind *out)
{
    static const char *const names[] = {"auto", "cpu", "cuda"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (dk_backend_kind)i;
            return true;
        }
    }
    return false;
}

static bool take_option(struct options *options, int name)
{
    uint32_t index;
    switch (name) {
    case 's':
        return options->shape_count < MAX_SHAPES &&
               parse_shape(optarg, &options->shapes[options->shape_count++]);
    case 'c':
        options->cache_path = optarg;
        return *optarg != '\0';
    case 'm':
        return parse_u32(optarg, 1, 65536, &options->engine.max_tokens);
    case 'f':
        return options->tune.is_forced = true;
    case 'r':
        return parse_u32(optarg, 1, 1000, &options->tune.repeat_count);
    case 'i':
        return options->engine.is_batch_invariant = true;
    case 'd':
        return options->engine.use_dependent_launch = true;
    case 'b':
        return parse_backend(optarg, &options->engine.backend);
    case 'D':
        if (!parse_u32(optarg, 0, 1023, &index))
            return false;
        options->engine.device_index = (int)index;
        return true;
    case 't':
        return parse_u32(optarg, 1, 1024, &options->engine.thread_count);
    case 'p':
        options->engine.plugin_path = optarg;
        return *optarg != '\0';
    default:
        return false;
    }
}

/* -1: go on; else the exit code. */
static int parse_options(struct options *options, int argc, char **argv)
{
    static const struct option names[] = {{"shape", 1, NULL, 's'},
                                          {"plan-cache", 1, NULL, 'c'},
                                          {"max-tokens", 1, NULL, 'm'},
                                          {"force", 0, NULL, 'f'},
                                          {"repeats", 1, NULL, 'r'},
                                          {"batch-invariant", 0, NULL, 'i'},
                                          {"dependent-launch", 0, NULL, 'd'},
                                          {"backend", 1, NULL, 'b'},
                                          {"device", 1, NULL, 'D'},
                                          {"threads", 1, NULL, 't'},
                                          {"cuda-plugin", 1, NULL, 'p'},
                                          {"help", 0, NULL, 'h'},
                                          {"version", 0, NULL, 'v'},
                                          {NULL, 0, NULL, 0}};
    int row = 0;
    for (int name; (name = getopt_long(argc, argv, "", names, &row)) != -1;) {
        if (name == 'h') {
            usage(stdout);
            return EXIT_OK;
        }
        if (name == 'v') {
            printf("decomposek-tune %s\n", dk_version());
            return EXIT_OK;
        }
        if (name == '?')
            return EXIT_USAGE; /* getopt said why */
        if (!take_option(options, name)) {
            fprintf(stderr, "decomposek-tune: --%s: '%s' is not allowed (see --help)\n", names[row].name,
                    optarg ? optarg : "");
            return EXIT_USAGE;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "decomposek-tune: unexpected argument '%s' (see --help)\n", argv[optind]);
        return EXIT_USAGE;
    }
    if (options->shape_count == 0)
        (void)parse_shape("7168,256", &options->shapes[options->shape_count++]);
    return -1;
}

static bool print_bucket(void *context, const struct dk_tune_result *result)
{
    (void)context;
    const struct dk_plan *best = &result->candidates[result->best];
    const struct dk_plan *before = &result->candidates[result->before];
    double best_us = result->times_ns[result->best] / 1e3, before_us = result->times_ns[result->before] / 1e3;
    printf("%6u  %-28s %5u %7u %9.2f  ", result->bucket_rows, best->variant, best->split_k, best->chunk_k,
           best_us);
    if (result->best == result->before)
        printf("unchanged, of %u plans\n", result->candidate_count);
    else
        printf("%.2f with %s S=%u, of %u plans\n", before_us, before->variant, before->split_k,
               result->candidate_count);
    return fflush(stdout) == 0;
}

/* Values do not matter here, the tuner times random weights of its own. */
static int tune_shape(struct dk_engine *engine, const struct options *options, const struct shape *shape)
{
    struct dk_error error;
    struct dk_weights *weights = NULL;
    size_t count, bytes;
    void *data = NULL;
    int exit_code = EXIT_FAILED;
    if (dk_size_mul(shape->n, shape->k, &count) && dk_size_mul(count, dk_dtype_bytes(shape->dtype), &bytes))
        data = calloc(1, bytes);
    if (!data) {
        fprintf(stderr, "decomposek-tune: no memory for [%llu, %llu]\n", (unsigned long long)shape->k,
                (unsigned long long)shape->n);
        return EXIT_FAILED;
    }
    struct dk_weights_desc desc = {shape->n, shape->k, shape->dtype, shape->layout, data, NULL};
    printf("k=%llu n=%llu %s %s\n  rows  plan                             S   chunk  us/call  before\n",
           (unsigned long long)shape->k, (unsigned long long)shape->n,
           dk_dtype_name(shape->dtype, DK_DIALECT_NATIVE), dk_layout_name(shape->layout));
    if (dk_weights_new(engine, &desc, &weights, &error) == DK_OK) {
        struct dk_plan_origin origin = dk_plan_get_origin(weights);
        if (origin.tuned_count > 0)
            printf("  (%u buckets known already)\n", origin.tuned_count);
        if (dk_weights_tune(weights, &options->tune, &error) == DK_OK)
            exit_code = EXIT_OK;
    }
    if (exit_code != EXIT_OK)
        fprintf(stderr, "decomposek-tune: %s\n", error.message);
    dk_weights_free(weights);
    free(data);
    return exit_code;
}

static int run(struct options *options)
{
    struct dk_error error;
    struct dk_engine *engine = NULL;
    int exit_code = EXIT_OK;
    char path[PATH_MAX];
    if (!options->cache_path) {
        if (!dk_plan_cache_default_path(path, sizeof path)) {
            fprintf(stderr,
                    "decomposek-tune: neither HOME nor XDG_CACHE_HOME is set; say --plan-cache PATH\n");
            return EXIT_USAGE;
        }
        if (dk_plan_cache_make_folder(path, &error) != DK_OK) {
            fprintf(stderr, "decomposek-tune: %s\n", error.message);
            return EXIT_FAILED;
        }
        options->cache_path = path;
    }
    options->engine.plan_cache_path = options->cache_path;
    dk_status status = dk_engine_new(&options->engine, &engine, &error);
    if (status != DK_OK) {
        fprintf(stderr, "decomposek-tune: %s\n", error.message);
        return status == DK_UNAVAILABLE ? EXIT_DEVICE : EXIT_FAILED;
    }
    const struct dk_engine_info *info = dk_engine_get_info(engine);
    printf("%s\nplan cache: %s, %u plans\n", info->reason, options->cache_path, info->cached_plan_count);
    if (info->plan_cache_warning[0] != '\0')
        fprintf(stderr, "decomposek-tune: warning: plan cache %s: %s\n", options->cache_path,
                info->plan_cache_warning);
    options->tune.on_bucket = print_bucket;
    for (uint32_t i = 0; i < options->shape_count && exit_code == EXIT_OK; i++)
        exit_code = tune_shape(engine, options, &options->shapes[i]);
    dk_engine_free(engine);
    return exit_code;
}

int main(int argc, char **argv)
{
    static struct options options;
    int exit_code = parse_options(&options, argc, argv);
    if (exit_code < 0)
        exit_code = run(&options);
    return fflush(stdout) == 0 ? exit_code : EXIT_FAILED;
}
