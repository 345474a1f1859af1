/* top_view.h: what happened between two scrapes: rates and quantiles by shape, as text and JSON. */
#ifndef DK_CLIENT_TOP_VIEW_H
#define DK_CLIENT_TOP_VIEW_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>

#include "client/top_snapshot.h"
#include "proto/json_writer.h"

/* One line. Times in microseconds; NaN: nothing happened, or not known. */
struct dk_top_row {
    char shape[DK_TOP_SHAPE_BYTES];
    uint64_t bucket;                                 /* 0: all buckets of the shape */
    double requests_per_s, rows_per_s, failed_per_s; /* the last two by shape only */
    double p50_us, p99_us, queue_p99_us, kernel_mean_us;
};

struct dk_top_view {
    struct dk_top_row *rows; /* busiest first */
    size_t row_count;
    double elapsed_s;
    bool is_restarted; /* counters began again in between: rates count from the new beginning */
    double requests_per_s, rows_per_s, failed_per_s; /* all models together, admitted requests */
    double refused_per_s;                            /* refused before admission, over HTTP */
    double batch_rows, batch_jobs;                   /* means of a launch; NaN without launches */
    double cpu_fraction;                             /* of one processor */
    const struct dk_top_snapshot *now;               /* borrowed */
};

/* `models` is the answer of GET /v1/models, or NULL: which shape a model's rows and failures count for (those
 * without a model count as "other"). With `by_bucket` a line for each T bucket that had requests, else a line
 * for each shape. DK_NO_MEMORY. `before` may be NULL: everything since the daemon's start, with elapsed_s NaN
 * and no rates. */
dk_status dk_top_view_make(const struct dk_top_snapshot *before, const struct dk_top_snapshot *now,
                           const cJSON *models, bool by_bucket, struct dk_top_view *out,
                           struct dk_error *error);
void dk_top_view_deinit(struct dk_top_view *view);

/* Quantile of a histogram's growth (before may be NULL), linear inside a bucket, seconds: the way Prometheus
 * computes it. The last finite bound for what is beyond it; NaN without growth. */
double dk_top_quantile(const struct dk_top_histogram *before, const struct dk_top_histogram *now,
                       double quantile);

/* Two lines of summary and a table. False when memory ran out or the stream failed. */
bool dk_top_view_text(const struct dk_top_view *view, bool by_bucket, FILE *stream);
/* One object, one line. Sets text->failed without memory. */
void dk_top_view_json(const struct dk_top_view *view, struct dk_json_text *text);

#endif
