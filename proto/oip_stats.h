/* oip_stats.h: the statistics extension: what GET /v2/models/{m}/stats and /v2/models/stats answer. */
#ifndef DK_PROTO_OIP_STATS_H
#define DK_PROTO_OIP_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/json_writer.h"

struct dk_oip_duration {
    uint64_t count, ns;
};

struct dk_oip_batch_stats {
    uint64_t batch_size;
    struct dk_oip_duration compute_input, compute_infer, compute_output;
};

struct dk_oip_memory_usage {
    const char *type; /* "CPU", "GPU" */
    int64_t id;
    uint64_t byte_size;
};

struct dk_oip_model_stats {
    const char *name;
    uint64_t last_inference_ms; /* since 1970 (UTC); 0: never */
    uint64_t inference_count;   /* rows */
    uint64_t execution_count;   /* launches */
    struct dk_oip_duration success, fail, queue, compute_input, compute_infer, compute_output, cache_hit,
        cache_miss;
    const struct dk_oip_batch_stats *batches;
    size_t batch_count;
    const struct dk_oip_memory_usage *memory;
    size_t memory_count;
};

/* {"model_stats":[...]}, unsigned integers exact. */
void dk_oip_stats(struct dk_json_text *text, const struct dk_oip_model_stats *models, size_t model_count);

#endif
