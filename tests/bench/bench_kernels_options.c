/* bench_kernels_options.c: see bench_kernels_options.h. */
#include "tests/bench/bench_kernels_options.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

void bench_options_usage(FILE *stream)
{
    fprintf(stream, "usage: bench_kernels router [OPTION]...\n"
                    "  --tokens LIST     1,2,4,... (default 1..16 and 32,64,...,1024)\n"
                    "  --shape K,N       only this shape; may repeat (default: DeepSeek-V3's)\n"
                    "  --all-shapes      every router of bench_kernels_shapes.h\n"
                    "  --repeats COUNT   replays of each chain (default 20)\n"
                    "  --invariant       batch-invariant plans as well\n"
                    "  --list            print every plan, not only the fastest\n"
                    "  --built-in        of our own plans only those that are taken without tuning\n"
                    "  --csv FILE        every plan as a row, for bench_plot.py\n"
                    "  --plugin FILE     libdecomposek_cuda.so\n"
                    "  --json FILE       the same as JSON, with GPU, clocks, commit and version\n");
}

static bool parse_tokens(struct bench_options *options, const char *text)
{
    char *end;
    options->token_count = 0;
    do {
        unsigned long value = strtoul(text, &end, 10);
        if (end == text || value < 1 || value > 4096 || options->token_count == BENCH_MAX_TOKENS_ITEMS)
            return false;
        options->tokens[options->token_count++] = (uint32_t)value;
        text = end + 1;
    } while (*end == ',');
    return *end == '\0';
}

static bool parse_shape(struct bench_options *options, const char *text)
{
    unsigned k, n;
    if (sscanf(text, "%u,%u", &k, &n) != 2 || k < 8 || k % 8 != 0 || n < 1 || k > 65536 || n > 65536 ||
        options->shape_count == BENCH_SHAPE_COUNT)
        return false;
    struct bench_shape shape = {"given", k, n, 58};
    for (size_t i = 0; i < BENCH_SHAPE_COUNT; i++)
        if (bench_shapes[i].k == k && bench_shapes[i].n == n)
            shape = bench_shapes[i];
    options->shapes[options->shape_count++] = shape;
    return true;
}

bool bench_options_parse(int argc, char **argv, struct bench_options *out)
{
    static const struct option names[] = {
        {"tokens", 1, NULL, 't'},   {"shape", 1, NULL, 's'},     {"all-shapes", 0, NULL, 'A'},
        {"repeats", 1, NULL, 'r'},  {"invariant", 0, NULL, 'i'}, {"list", 0, NULL, 'l'},
        {"csv", 1, NULL, 'c'},      {"plugin", 1, NULL, 'p'},    {"json", 1, NULL, 'j'},
        {"built-in", 0, NULL, 'b'}, {NULL, 0, NULL, 0}};
    *out = (struct bench_options){.repeats = 20};
    bool is_good = parse_tokens(out, "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,32,64,128,256,512,1024");
    for (int name; is_good && (name = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (name) {
        case 't':
            is_good = parse_tokens(out, optarg);
            break;
        case 's':
            is_good = parse_shape(out, optarg);
            break;
        case 'A':
            memcpy(out->shapes, bench_shapes, sizeof bench_shapes);
            out->shape_count = BENCH_SHAPE_COUNT;
            break;
        case 'r':
            out->repeats = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'i':
            out->with_invariant = true;
            break;
        case 'b':
            out->is_built_in_only = true;
            break;
        case 'l':
            out->is_listing_all = true;
            break;
        case 'c':
            out->csv_path = optarg;
            break;
        case 'p':
            out->plugin_path = optarg;
            break;
        case 'j':
            out->json_path = optarg;
            break;
        default:
            is_good = false;
        }
    }
    if (out->shape_count == 0)
        out->shapes[out->shape_count++] = bench_shapes[0];
    return is_good && optind == argc - 1 && strcmp(argv[optind], "router") == 0;
}
