/* metrics_store.h: where the numbers lie (private to metrics*.c). */
#ifndef DK_SERVER_METRICS_STORE_H
#define DK_SERVER_METRICS_STORE_H

#include <pthread.h>
#include <stdatomic.h>

#include "proto/native_api.h"
#include "server/metrics.h"
#include "server/statistics.h"
#include "server/traceparent.h"

/* X(bound in nanoseconds, le text). The texts are the canonical ones of OpenMetrics, used in both formats. */
#define DK_KERNEL_BOUNDS(X)                                                                                  \
    X(500, "5e-07")                                                                                          \
    X(1000, "1e-06")                                                                                         \
    X(1500, "1.5e-06")                                                                                       \
    X(2000, "2e-06")                                                                                         \
    X(2500, "2.5e-06")                                                                                       \
    X(3000, "3e-06")                                                                                         \
    X(4000, "4e-06")                                                                                         \
    X(5000, "5e-06")                                                                                         \
    X(7500, "7.5e-06")                                                                                       \
    X(10000, "1e-05")                                                                                        \
    X(15000, "1.5e-05")                                                                                      \
    X(20000, "2e-05")                                                                                        \
    X(30000, "3e-05")                                                                                        \
    X(50000, "5e-05")                                                                                        \
    X(75000, "7.5e-05")                                                                                      \
    X(100000, "0.0001")                                                                                      \
    X(200000, "0.0002")                                                                                      \
    X(500000, "0.0005")                                                                                      \
    X(1000000, "0.001")                                                                                      \
    X(10000000, "0.01")                                                                                      \
    X(100000000, "0.1")
#define DK_REQUEST_BOUNDS(X)                                                                                 \
    X(5000, "5e-06")                                                                                         \
    X(7500, "7.5e-06")                                                                                       \
    X(10000, "1e-05")                                                                                        \
    X(15000, "1.5e-05")                                                                                      \
    X(20000, "2e-05")                                                                                        \
    X(30000, "3e-05")                                                                                        \
    X(50000, "5e-05")                                                                                        \
    X(75000, "7.5e-05")                                                                                      \
    X(100000, "0.0001")                                                                                      \
    X(150000, "0.00015")                                                                                     \
    X(200000, "0.0002")                                                                                      \
    X(300000, "0.0003")                                                                                      \
    X(500000, "0.0005")                                                                                      \
    X(750000, "0.00075")                                                                                     \
    X(1000000, "0.001")                                                                                      \
    X(2000000, "0.002")                                                                                      \
    X(5000000, "0.005")                                                                                      \
    X(10000000, "0.01")                                                                                      \
    X(50000000, "0.05")                                                                                      \
    X(100000000, "0.1")                                                                                      \
    X(1000000000, "1.0")                                                                                     \
    X(10000000000, "10.0")
/* Rows and jobs; the bounds are plain counts. */
#define DK_COUNT_BOUNDS(X)                                                                                   \
    X(0, "0.0")                                                                                              \
    X(1, "1.0")                                                                                              \
    X(2, "2.0")                                                                                              \
    X(4, "4.0")                                                                                              \
    X(8, "8.0")                                                                                              \
    X(16, "16.0")                                                                                            \
    X(32, "32.0")                                                                                            \
    X(64, "64.0")                                                                                            \
    X(128, "128.0")                                                                                          \
    X(256, "256.0")                                                                                          \
    X(512, "512.0")                                                                                          \
    X(1024, "1024.0")                                                                                        \
    X(2048, "2048.0")                                                                                        \
    X(4096, "4096.0")                                                                                        \
    X(16384, "16384.0")                                                                                      \
    X(65536, "65536.0")

#define DK_KERNEL_BOUND_ENUM(bound, text)  DK_KERNEL_BOUND_##bound,
#define DK_REQUEST_BOUND_ENUM(bound, text) DK_REQUEST_BOUND_##bound,
#define DK_COUNT_BOUND_ENUM(bound, text)   DK_COUNT_BOUND_##bound,
enum { DK_KERNEL_BOUNDS(DK_KERNEL_BOUND_ENUM) DK_KERNEL_BOUND_COUNT };
enum { DK_REQUEST_BOUNDS(DK_REQUEST_BOUND_ENUM) DK_REQUEST_BOUND_COUNT };
enum { DK_COUNT_BOUNDS(DK_COUNT_BOUND_ENUM) DK_COUNT_BOUND_COUNT };
#undef DK_KERNEL_BOUND_ENUM
#undef DK_REQUEST_BOUND_ENUM
#undef DK_COUNT_BOUND_ENUM

struct dk_bounds {
    const uint64_t *values; /* ascending */
    const char *const *texts;
    uint32_t count;
    bool is_time; /* nanoseconds, written as seconds */
};
extern const struct dk_bounds dk_kernel_bounds, dk_request_bounds, dk_count_bounds;

typedef _Atomic uint64_t dk_counter;

/* A histogram is a run of counters: one per bound, one for +Inf (not cumulative), then the sum. */
#define DK_HISTOGRAM_WORDS(bound_count) ((bound_count) + 2)

struct dk_shape_series;
struct dk_model_series;
/* Those of an unknown handle are "other" and "@adhoc". */
struct dk_shape_series *dk_metrics_shape_series(const struct dk_metrics *metrics, int handle);
struct dk_model_series *dk_metrics_model_series(const struct dk_metrics *metrics, int handle);

/* One traced request; see metrics_exemplar.c for who may touch it when. Zero: none yet. */
struct dk_exemplar {
    _Atomic uint32_t turn, transport;
    _Atomic uint64_t trace_high, trace_low, value_ns, unix_ms;
};
struct dk_exemplar_sample {
    struct dk_trace trace;
    uint64_t value_ns, unix_ms;
    uint32_t transport;
};
/* Wait-free; when two store at once one of them is left out. Thread: any. */
void dk_exemplar_store(struct dk_exemplar *exemplar, const struct dk_trace *trace,
                       enum dk_transport transport, uint64_t value_ns);
/* False when there is none, or one is being written. Thread: any. */
bool dk_exemplar_load(const struct dk_exemplar *exemplar, struct dk_exemplar_sample *out);

/* All histograms of one shape and T bucket. Exemplars: one for each bound of the request histograms, shared
 * by the transports: memory grows by half instead of fourfold. */
struct dk_cell {
    struct dk_exemplar exemplars[DK_REQUEST_BOUND_COUNT + 1];
    dk_counter request[DK_TRANSPORT_COUNT][DK_HISTOGRAM_WORDS(DK_REQUEST_BOUND_COUNT)];
    dk_counter queue[DK_HISTOGRAM_WORDS(DK_REQUEST_BOUND_COUNT)];
    dk_counter copy[DK_HISTOGRAM_WORDS(DK_KERNEL_BOUND_COUNT)];
    dk_counter kernel[DK_HISTOGRAM_WORDS(DK_KERNEL_BOUND_COUNT)];
};

struct dk_shape_series {
    uint64_t k, n;
    char label[48];         /* "KxN" or "other" */
    _Atomic bool is_shown;  /* "other" appears with its first sample */
    struct dk_cell cells[]; /* bucket_count */
};

struct dk_model_series {
    char name[DK_MODEL_NAME_BYTES + 1];
    dk_counter requests[DK_OUTCOME_COUNT];
    dk_counter rows;
    struct dk_statistics statistics;
};

/* A rendered label set; old ones are kept until the end because a scrape may still read them. */
struct dk_info_text {
    struct dk_info_text *previous;
    char labels[];
};

struct dk_metrics {
    uint32_t bucket_count;
    uint32_t bucket_rows[32];
    pthread_mutex_t registration; /* shapes, models and info: writers only */
    _Atomic uint32_t shape_count, model_count;
    struct dk_shape_series *_Atomic shapes[DK_METRICS_MAX_SHAPES + 1]; /* 0: other */
    struct dk_model_series *_Atomic models[DK_METRICS_MAX_MODELS + 1]; /* 0: ad hoc; handle h is at h + 1 */
    struct dk_info_text *_Atomic info;
    _Atomic int64_t scalars[DK_METRIC_SCALAR_COUNT];
    dk_counter request_rows[DK_HISTOGRAM_WORDS(DK_COUNT_BOUND_COUNT)];
    dk_counter batch_rows[DK_HISTOGRAM_WORDS(DK_COUNT_BOUND_COUNT)];
    dk_counter batch_jobs[DK_HISTOGRAM_WORDS(DK_COUNT_BOUND_COUNT)];
    int statm_fd;              /* kept open: a scrape must work when descriptors have run out; -1 without */
    double start_time_seconds; /* of the process, Unix time */
};

/* metrics_process.c */
void dk_metrics_process_open(struct dk_metrics *metrics);
struct dk_process_sample {
    uint64_t resident_bytes, open_fds, max_fds;
    double cpu_seconds;
    bool has_resident, has_open_fds, has_max_fds;
};
void dk_metrics_process_read(const struct dk_metrics *metrics, struct dk_process_sample *out);

#endif
