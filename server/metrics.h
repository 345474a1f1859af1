/* metrics.h: histograms, counters and gauges, and their exposition text. Relaxed atomics, no lock on the hot
 * path: a scrape never waits for compute, and compute never waits for a scrape.
 *
 * Labels come from what the operator loaded (or lets clients upload, bounded by the limits below), never from
 * a request: shape="KxN" of a loaded model or "other", t_bucket of the engine's buckets (more rows than the
 * largest count there: they are cut into pieces of it), model="@adhoc" for requests without a loaded model
 * ('@' cannot stand in a model's name). The series of shape="other" appear with its first sample; all others
 * exist from registration, at zero.
 * Exemplars (OpenMetrics only): each bound of the request histograms of a shape and T bucket keeps its newest
 * traced request, by trace_id alone; a client can replace one, never add a series or a label.
 * Memory: about 65 KiB per shape and 25 buckets; at most DK_METRICS_MAX_SHAPES shapes. */
#ifndef DK_SERVER_METRICS_H
#define DK_SERVER_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/json_writer.h"
#include "proto/status.h"
#include "server/traceparent.h"

struct dk_metrics;

/* How a request's tensors came: the two dialects over HTTP, shared memory named in an HTTP request, and the
 * native ring. */
enum dk_transport {
    DK_TRANSPORT_HTTP_JSON,
    DK_TRANSPORT_HTTP_RAW,
    DK_TRANSPORT_HTTP_OIP_JSON,
    DK_TRANSPORT_HTTP_OIP_BINARY,
    DK_TRANSPORT_HTTP_OIP_SHM,
    DK_TRANSPORT_SHM,
    DK_TRANSPORT_COUNT
};
enum dk_outcome {
    DK_OUTCOME_OK,
    DK_OUTCOME_CLIENT_ERROR,
    DK_OUTCOME_BUSY,
    DK_OUTCOME_SERVER_ERROR,
    DK_OUTCOME_CANCELLED,
    DK_OUTCOME_COUNT
};
/* What a status counts as. */
enum dk_outcome dk_metrics_outcome(dk_status status);
/* Gauges and counters without labels. X(id, "name", "help", is_counter) */
#define DK_METRIC_SCALAR_MAP(X)                                                                              \
    X(QUEUE_DEPTH, "decomposek_queue_depth", "Jobs waiting for the executor.", 0)                            \
    X(IN_FLIGHT, "decomposek_in_flight_requests", "Requests between admission and answer.", 0)               \
    X(CONNECTIONS, "decomposek_http_connections", "Open HTTP connections.", 0)                               \
    X(READY, "decomposek_ready", "1 while the daemon accepts work.", 0)                                      \
    X(WEIGHTS_BYTES, "decomposek_weights_bytes", "Resident weights.", 0)                                     \
    X(WORKSPACE_BYTES, "decomposek_workspace_bytes", "Preallocated fp32 partials.", 0)                       \
    X(STAGING_BYTES, "decomposek_staging_bytes", "Preallocated request slabs.", 0)                           \
    X(SLABS_SMALL_USED, "decomposek_slabs_small_used", "Small request slabs in use.", 0)                     \
    X(SLABS_LARGE_USED, "decomposek_slabs_large_used", "Large request slabs in use.", 0)                     \
    X(CLIENT_REGIONS, "decomposek_client_regions", "Registered shared-memory regions of clients.", 0)        \
    X(HTTP_RECEIVED_BYTES, "decomposek_http_received_bytes_total", "Body bytes received.", 1)                \
    X(HTTP_SENT_BYTES, "decomposek_http_sent_bytes_total", "Body bytes sent by compute routes.", 1)          \
    X(HTTP_REFUSED, "decomposek_http_refused_total", "Requests refused before admission (4xx and 503).", 1)  \
    X(SHM_SESSIONS, "decomposek_shm_sessions", "Open sessions of the native ring.", 0)                       \
    X(SHM_BYTES, "decomposek_shm_bytes", "Shared memory and pushed weights of the native ring.", 0)          \
    X(SHM_OPENED, "decomposek_shm_opened_total", "Sessions of the native ring that were opened.", 1)         \
    X(SHM_REFUSED, "decomposek_shm_refused_total", "Clients refused at the handshake socket.", 1)            \
    X(SHM_DROPPED, "decomposek_shm_dropped_total", "Sessions dropped for breaking the protocol.", 1)         \
    X(UNAUTHORIZED, "decomposek_http_unauthorized_total", "Requests without a valid API key (401).", 1)      \
    X(MODEL_CHANGES, "decomposek_model_changes_total", "Models loaded, uploaded or removed over HTTP.", 1)   \
    X(MODEL_CHANGE_FAILURES, "decomposek_model_change_failures_total",                                       \
      "Changes of models over HTTP that were refused.", 1)                                                   \
    X(RELOADS, "decomposek_reloads_total", "Successful reloads of models.", 1)                               \
    X(RELOAD_FAILURES, "decomposek_reload_failures_total", "Reloads that kept the old models.", 1)
enum dk_metric_scalar {
#define DK_METRIC_SCALAR_ENUM(id, name, help, is_counter) DK_METRIC_##id,
    DK_METRIC_SCALAR_MAP(DK_METRIC_SCALAR_ENUM)
#undef DK_METRIC_SCALAR_ENUM
        DK_METRIC_SCALAR_COUNT
};

enum { DK_METRICS_MAX_SHAPES = 64, DK_METRICS_MAX_MODELS = 256 };

/* Times of one finished request, nanoseconds of CLOCK_MONOTONIC differences. */
struct dk_metrics_sample {
    int shape, model;      /* handles; model -1 for ad hoc; anything unknown counts as other and ad hoc */
    uint32_t bucket_index; /* of the rows; beyond the last bucket counts as the last */
    enum dk_transport transport;
    enum dk_outcome outcome;
    uint64_t rows;
    uint32_t piece_count; /* launches */
    uint64_t intake_ns;   /* request head to admission */
    uint64_t queue_ns, copy_ns, kernel_ns;
    uint64_t answer_ns;    /* end of the job to the answer */
    uint64_t request_ns;   /* all of it */
    bool has_times;        /* false: only the outcome counts (never reached the executor) */
    struct dk_trace trace; /* becomes an exemplar; zero: none */
};

/* `bucket_rows[bucket_count]` are the engine's buckets (label t_bucket); copied. */
dk_status dk_metrics_new(const uint32_t *bucket_rows, uint32_t bucket_count, struct dk_metrics **out,
                         struct dk_error *error);
void dk_metrics_free(struct dk_metrics *metrics);
/* Labels of decomposek_info (and it appears); the last call wins. Strings are copied; NULL is "". Without
 * memory the old labels stay. Thread: any. */
void dk_metrics_set_info(struct dk_metrics *metrics, const char *version, const char *backend,
                         const char *device, const char *isa);

/* Handle of shape "KxN" (all of its series are created, at zero); the same shape gives the same handle. -1
 * when full or without memory (then record with the "other" handle 0). Not on the hot path. Thread: any. */
int dk_metrics_shape(struct dk_metrics *metrics, uint64_t k, uint64_t n);
enum { DK_METRICS_SHAPE_OTHER = 0 };
/* Handle of a model's counters; the same name gives the same handle; -1 when full. Thread: any. */
int dk_metrics_model(struct dk_metrics *metrics, const char *name);

/* Hot path; wait-free; any thread. */
void dk_metrics_record(struct dk_metrics *metrics, const struct dk_metrics_sample *sample);
void dk_metrics_add(struct dk_metrics *metrics, enum dk_metric_scalar scalar, int64_t delta);
void dk_metrics_set(struct dk_metrics *metrics, enum dk_metric_scalar scalar, int64_t value);
int64_t dk_metrics_get(const struct dk_metrics *metrics, enum dk_metric_scalar scalar);
/* The counters of a model for the statistics extension; an unknown handle gives those of "@adhoc". */
struct dk_statistics;
const struct dk_statistics *dk_metrics_statistics(const struct dk_metrics *metrics, int model);
/* Executor: one launch of `rows` rows from `job_count` jobs (decomposek_batch_rows, decomposek_batch_jobs;
 * decomposek_request_rows is filled by dk_metrics_record). */
void dk_metrics_record_launch(struct dk_metrics *metrics, uint64_t rows, uint32_t job_count);

/* Append the exposition text (0.0.4, or OpenMetrics 1.0.0). Every histogram is cumulative with +Inf equal to
 * _count also under load, and no count ever falls from one scrape to the next. Without memory text->failed is
 * set. About 12 KiB per shape and bucket. Thread: any. */
void dk_metrics_write(const struct dk_metrics *metrics, bool is_openmetrics, struct dk_json_text *text);
/* Quantile 0..1 of the request duration of one shape and bucket from its histogram (linear inside a bucket),
 * seconds; NaN without samples. */
double dk_metrics_request_quantile(const struct dk_metrics *metrics, int shape, uint32_t bucket_index,
                                   double quantile);
/* For the status page: the label of a shape's handle ("" while its series are not shown), NULL past the last
 * handle; requests in all transports; a model's counters (-1: "@adhoc"). Thread: any. */
const char *dk_metrics_model_name(const struct dk_metrics *metrics, int model); /* NULL past the last */
const char *dk_metrics_shape_label(const struct dk_metrics *metrics, int shape);
uint64_t dk_metrics_request_count(const struct dk_metrics *metrics, int shape, uint32_t bucket_index);
uint64_t dk_metrics_model_requests(const struct dk_metrics *metrics, int model, enum dk_outcome outcome);
uint64_t dk_metrics_model_rows(const struct dk_metrics *metrics, int model);
struct dk_metrics_launches {
    uint64_t count, rows, jobs;
};
struct dk_metrics_launches dk_metrics_launches(const struct dk_metrics *metrics);

#endif
