/* bench_kernels_report.h: every timing of a run as CSV rows and as JSON, with what they were measured on. */
#ifndef DK_BENCH_KERNELS_REPORT_H
#define DK_BENCH_KERNELS_REPORT_H

#include <stdio.h>

#include "decomposek.h"
#include "tests/bench/bench_kernels_shapes.h"

struct bench_report {
    FILE *csv, *json; /* NULL: not wanted */
    unsigned result_count;
};

struct bench_result {
    const struct bench_shape *shape;
    unsigned m, pdl, invariant;
    const struct dk_plan *plan;
    bool is_built_in;
    double cold_us, hot_us, pair_us; /* 0: not timed */
};

/* Opens the files that have a path. False, with the path on stderr, when one cannot be written. */
bool bench_report_open(struct bench_report *out, const char *csv_path, const char *json_path);
/* Product, commit, device and its clocks now; on stdout too. */
void bench_report_begin(const struct bench_report *report, const struct dk_engine_info *info,
                        const char *commit);
void bench_report_add(struct bench_report *report, const struct bench_result *result);
/* The clocks once more. False when a file could not be written to its end. */
bool bench_report_end(struct bench_report *report);

#endif
