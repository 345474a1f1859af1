/* top_snapshot.h: what one scrape of /metrics says of shapes, models and queues. */
#ifndef DK_CLIENT_TOP_SNAPSHOT_H
#define DK_CLIENT_TOP_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/native_api.h"
#include "proto/status.h"

enum { DK_TOP_SHAPE_BYTES = 48, DK_TOP_MAX_BOUNDS = 64 };

enum dk_top_histogram_kind { DK_TOP_REQUEST, DK_TOP_QUEUE, DK_TOP_KERNEL, DK_TOP_HISTOGRAM_COUNT };

/* Cumulative counts per upper bound, seconds; the last bound is +Inf. Transports are summed. */
struct dk_top_histogram {
    double sum; /* of the values */
    uint32_t bound_count;
    double bounds[DK_TOP_MAX_BOUNDS];
    uint64_t counts[DK_TOP_MAX_BOUNDS];
};

/* One shape and T bucket. */
struct dk_top_series {
    char shape[DK_TOP_SHAPE_BYTES]; /* "7168x256", or "other" */
    uint64_t bucket;
    struct dk_top_histogram histograms[DK_TOP_HISTOGRAM_COUNT];
};

struct dk_top_model {
    char name[DK_MODEL_NAME_BYTES + 1];
    uint64_t rows, ok_count, failed_count; /* admitted; failed: every outcome but ok */
};

/* Sum and count of a histogram. */
struct dk_top_sum {
    double sum;
    uint64_t count;
};

struct dk_top_snapshot {
    uint64_t taken_ns;   /* CLOCK_MONOTONIC, by the caller */
    double start_time_s; /* of the daemon, Unix time; 0: not said */
    double queue_depth, in_flight, is_ready, cpu_s, resident_bytes; /* NaN: not said */
    uint64_t refused_count; /* before admission: such requests belong to no model */
    struct dk_top_sum batch_rows, batch_jobs;
    char version[64], backend[32], device[160];
    struct dk_top_series *series;
    size_t series_count, series_capacity;
    struct dk_top_model *models;
    size_t model_count, model_capacity;
};

/* Read an exposition text. Unknown series are passed over. DK_BAD_REQUEST names the line; DK_TOO_LARGE: more
 * bounds, series or models than a daemon can have; DK_NO_MEMORY. On failure *out is empty. */
dk_status dk_top_snapshot_read(const char *text, size_t length, struct dk_top_snapshot *out,
                               struct dk_error *error);
void dk_top_snapshot_deinit(struct dk_top_snapshot *snapshot);

#endif
