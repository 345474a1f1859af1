/* bench_kernels_options.h: what bench_kernels was asked to time. */
#ifndef DK_BENCH_KERNELS_OPTIONS_H
#define DK_BENCH_KERNELS_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tests/bench/bench_kernels_shapes.h"

enum { BENCH_MAX_TOKENS_ITEMS = 64 };

struct bench_options {
    const char *plugin_path, *csv_path, *json_path;
    uint32_t repeats, tokens[BENCH_MAX_TOKENS_ITEMS], token_count;
    struct bench_shape shapes[BENCH_SHAPE_COUNT];
    uint32_t shape_count;
    bool with_invariant, is_listing_all, is_built_in_only;
};

/* False for whatever is not understood. */
bool bench_options_parse(int argc, char **argv, struct bench_options *out);
void bench_options_usage(FILE *stream);

#endif
