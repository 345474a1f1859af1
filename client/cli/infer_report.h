/* infer_report.h: what `infer` prints and writes of an answer. */
#ifndef DK_CLIENT_CLI_INFER_REPORT_H
#define DK_CLIENT_CLI_INFER_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "client/remote.h"

/* Nearest-rank quantile of `count` >= 1 values sorted ascending: q 0.5 of 4 values is the second. */
double dk_quantile(const double *sorted, size_t count, double q);

struct dk_infer_report {
    const struct dk_remote_request *request;
    const struct dk_remote_reply *reply; /* of the last exchange */
    const double *round_trips_us;        /* sorted; NULL unless repeated */
    size_t round_trip_count;
    const char *output; /* file y was written to, or NULL */
};
/* A few lines; the first values of the first rows. */
void dk_infer_report_text(const struct dk_infer_report *report, FILE *stream);
/* One JSON object; it holds "y" unless y was written to a file. False when memory ran out. */
bool dk_infer_report_json(const struct dk_infer_report *report, FILE *stream);

/* Write y as .npy (bf16 widened to '<f4', which is exact) when `path` ends in .npy or is "-" and not
 * `is_raw`; else bare little-endian values. */
dk_status dk_infer_write_output(const struct dk_remote_reply *reply, const char *path, bool is_raw,
                                struct dk_error *error);

#endif
