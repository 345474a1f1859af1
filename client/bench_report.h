/* bench_report.h: results of a benchmark as a table and as JSON. */
#ifndef DK_CLIENT_BENCH_REPORT_H
#define DK_CLIENT_BENCH_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "client/bench.h"
#include "proto/json_writer.h"

struct dk_bench_report {
    const struct dk_bench *bench;
    const uint64_t *rows;                 /* [count] */
    const struct dk_load_result *results; /* [count] */
    uint32_t count;
};

/* Commit that this program was built from, "-dirty" when the tree had changes, "unknown" outside git. */
extern const char dk_bench_commit[];

/* A table with a line per rows value, times in microseconds, then sentences on what went wrong: failures by
 * status, a rate that was not reached, a run that was stopped. False when memory ran out or the stream
 * failed. */
bool dk_bench_report_text(const struct dk_bench_report *report, FILE *stream);
/* One object, one line. Sets text->failed without memory. */
void dk_bench_report_json(const struct dk_bench_report *report, struct dk_json_text *text);

/* Open loop: less than 99 % of the arrivals of the window were sent inside it. */
bool dk_bench_rate_was_missed(const struct dk_load_plan *plan, const struct dk_load_result *result);

#endif
