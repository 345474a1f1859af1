/* metrics_text.c: the exposition text, Prometheus 0.0.4 and OpenMetrics 1.0.0. */
#include <stdio.h>
#include <string.h>

#include "server/metrics_store.h"

/* One scrape. */
struct page {
    const struct dk_metrics *metrics;
    struct dk_json_text *text;
    bool is_openmetrics;
};

static void put(const struct page *page, const char *bytes)
{
    dk_json_text_raw(page->text, bytes);
}

/* HELP and TYPE. OpenMetrics names a counter's family without "_total". */
static void put_family(const struct page *page, const char *name, const char *type, const char *help)
{
    char family[96];
    size_t length = strlen(name);
    if (page->is_openmetrics && strcmp(type, "counter") == 0)
        length -= strlen("_total");
    (void)snprintf(family, sizeof family, "%.*s", (int)length, name);
    put(page, "# HELP ");
    put(page, family);
    put(page, " ");
    put(page, help);
    put(page, "\n# TYPE ");
    put(page, family);
    put(page, " ");
    put(page, type);
    put(page, "\n");
}

static void put_u64(const struct page *page, uint64_t value)
{
    dk_json_text_u64(page->text, value);
    put(page, "\n");
}

enum { SECONDS_BYTES = 40 };

/* Nanoseconds as seconds, exact: no binary fraction, no locale. */
static void write_seconds(char out[SECONDS_BYTES], uint64_t ns)
{
    (void)snprintf(out, SECONDS_BYTES, "%llu.%09llu", (unsigned long long)(ns / 1000000000u),
                   (unsigned long long)(ns % 1000000000u));
}

static void put_seconds(const struct page *page, uint64_t ns)
{
    char text[SECONDS_BYTES];
    write_seconds(text, ns);
    put(page, text);
    put(page, "\n");
}

/* Behind a bucket's value: # {trace_id="..."} seconds unix-time. */
static void put_exemplar(const struct page *page, const struct dk_exemplar_sample *sample)
{
    char id[DK_TRACE_ID_TEXT_BYTES], seconds[SECONDS_BYTES], text[160];
    dk_trace_write(&sample->trace, id);
    write_seconds(seconds, sample->value_ns);
    (void)snprintf(text, sizeof text, " # {trace_id=\"%s\"} %s %llu.%03llu", id, seconds,
                   (unsigned long long)(sample->unix_ms / 1000u),
                   (unsigned long long)(sample->unix_ms % 1000u));
    put(page, text);
}

/* name{labels} without the value; `labels` may be "". */
static void put_name(const struct page *page, const char *name, const char *suffix, const char *labels)
{
    put(page, name);
    put(page, suffix);
    if (*labels != '\0') {
        put(page, "{");
        put(page, labels);
        put(page, "}");
    }
    put(page, " ");
}

/* Exemplars of one shape and T bucket, of which this histogram shows those of its transport. */
struct exemplars {
    const struct dk_exemplar *slots; /* NULL: none */
    uint32_t transport;
};

/* Each counter is read once; _count is the sum of what was read, so it equals +Inf whatever is recorded
 * meanwhile. */
static void put_histogram(const struct page *page, const char *name, const char *labels,
                          const dk_counter *histogram, const struct dk_bounds *bounds,
                          struct exemplars exemplars)
{
    uint64_t cumulative = 0;
    struct dk_exemplar_sample sample;
    for (uint32_t i = 0; i <= bounds->count; i++) {
        cumulative += atomic_load_explicit(&histogram[i], memory_order_relaxed);
        put(page, name);
        put(page, "_bucket{");
        put(page, labels);
        put(page, *labels == '\0' ? "le=\"" : ",le=\"");
        put(page, i < bounds->count ? bounds->texts[i] : "+Inf");
        put(page, "\"} ");
        dk_json_text_u64(page->text, cumulative);
        /* A request is counted before its exemplar is stored: a bucket of zero may not have one. */
        if (exemplars.slots != NULL && cumulative > 0 && dk_exemplar_load(&exemplars.slots[i], &sample) &&
            sample.transport == exemplars.transport)
            put_exemplar(page, &sample);
        put(page, "\n");
    }
    uint64_t sum = atomic_load_explicit(&histogram[bounds->count + 1], memory_order_relaxed);
    put_name(page, name, "_sum", labels);
    if (bounds->is_time)
        put_seconds(page, sum);
    else
        put_u64(page, sum);
    put_name(page, name, "_count", labels);
    put_u64(page, cumulative);
}

/* A histogram of every shape and T bucket, or of every transport as well. */
struct shape_family {
    const char *name, *help;
    size_t offset;       /* of the first histogram in struct dk_cell */
    size_t stride_words; /* to the next transport's; 0: not by transport */
    const struct dk_bounds *bounds;
};

static const char *const transport_names[DK_TRANSPORT_COUNT] = {
    "http_json", "http_raw", "http_oip_json", "http_oip_binary", "http_oip_shm", "shm"};
static const char *const outcome_names[DK_OUTCOME_COUNT] = {"ok", "client_error", "busy", "server_error",
                                                            "cancelled"};

static const struct shape_family shape_families[] = {
    {"decomposek_request_duration_seconds", "From the first byte of a request to its answer being ready.",
     offsetof(struct dk_cell, request), DK_HISTOGRAM_WORDS(DK_REQUEST_BOUND_COUNT), &dk_request_bounds},
    {"decomposek_queue_duration_seconds", "From admission of a request to the start of its launch.",
     offsetof(struct dk_cell, queue), 0, &dk_request_bounds},
    {"decomposek_copy_duration_seconds", "Copies between request buffers and the compute device.",
     offsetof(struct dk_cell, copy), 0, &dk_kernel_bounds},
    {"decomposek_kernel_duration_seconds", "Time of the kernels alone.", offsetof(struct dk_cell, kernel), 0,
     &dk_kernel_bounds},
};

static void put_cell(const struct page *page, const struct shape_family *family, const char *shape,
                     uint32_t bucket_rows, const struct dk_cell *cell)
{
    char labels[128];
    const dk_counter *histogram = (const dk_counter *)((const char *)cell + family->offset);
    if (family->stride_words == 0) {
        (void)snprintf(labels, sizeof labels, "shape=\"%s\",t_bucket=\"%u\"", shape, bucket_rows);
        put_histogram(page, family->name, labels, histogram, family->bounds, (struct exemplars){0});
        return;
    }
    for (uint32_t transport = 0; transport < DK_TRANSPORT_COUNT; transport++) {
        (void)snprintf(labels, sizeof labels, "shape=\"%s\",t_bucket=\"%u\",transport=\"%s\"", shape,
                       bucket_rows, transport_names[transport]);
        put_histogram(page, family->name, labels, histogram + transport * family->stride_words,
                      family->bounds,
                      (struct exemplars){page->is_openmetrics ? cell->exemplars : NULL, transport});
    }
}

static void put_shapes(const struct page *page, const struct shape_family *family, uint32_t shape_count)
{
    put_family(page, family->name, "histogram", family->help);
    for (uint32_t i = 0; i < shape_count; i++) {
        const struct dk_shape_series *shape =
            atomic_load_explicit(&page->metrics->shapes[i], memory_order_acquire);
        if (!atomic_load_explicit(&shape->is_shown, memory_order_relaxed))
            continue;
        for (uint32_t bucket = 0; bucket < page->metrics->bucket_count; bucket++)
            put_cell(page, family, shape->label, page->metrics->bucket_rows[bucket], &shape->cells[bucket]);
    }
}

static void put_models(const struct page *page)
{
    char labels[128];
    uint32_t count = atomic_load_explicit(&page->metrics->model_count, memory_order_acquire);
    put_family(page, "decomposek_requests_total", "counter",
               "Finished requests; model=\"@adhoc\" are those without a loaded model.");
    for (uint32_t i = 0; i < count; i++) {
        const struct dk_model_series *model =
            atomic_load_explicit(&page->metrics->models[i], memory_order_acquire);
        for (int outcome = 0; outcome < DK_OUTCOME_COUNT; outcome++) {
            (void)snprintf(labels, sizeof labels, "model=\"%s\",outcome=\"%s\"", model->name,
                           outcome_names[outcome]);
            put_name(page, "decomposek_requests_total", "", labels);
            put_u64(page, atomic_load_explicit(&model->requests[outcome], memory_order_relaxed));
        }
    }
    put_family(page, "decomposek_rows_total", "counter", "Rows of A in finished requests.");
    for (uint32_t i = 0; i < count; i++) {
        const struct dk_model_series *model =
            atomic_load_explicit(&page->metrics->models[i], memory_order_acquire);
        (void)snprintf(labels, sizeof labels, "model=\"%s\"", model->name);
        put_name(page, "decomposek_rows_total", "", labels);
        put_u64(page, atomic_load_explicit(&model->rows, memory_order_relaxed));
    }
}

static void put_counts(const struct page *page, const char *name, const char *help,
                       const dk_counter *histogram)
{
    put_family(page, name, "histogram", help);
    put_histogram(page, name, "", histogram, &dk_count_bounds, (struct exemplars){0});
}

static void put_scalars(const struct page *page)
{
    static const struct {
        const char *name, *help;
        bool is_counter;
    } scalars[] = {
#define DK_SCALAR_ROW(id, name, help, is_counter) {name, help, is_counter},
        DK_METRIC_SCALAR_MAP(DK_SCALAR_ROW)
#undef DK_SCALAR_ROW
    };
    for (int i = 0; i < DK_METRIC_SCALAR_COUNT; i++) {
        put_family(page, scalars[i].name, scalars[i].is_counter ? "counter" : "gauge", scalars[i].help);
        put_name(page, scalars[i].name, "", "");
        dk_json_text_i64(page->text, dk_metrics_get(page->metrics, (enum dk_metric_scalar)i));
        put(page, "\n");
    }
}

static void put_value(const struct page *page, bool is_known, const char *name, const char *type,
                      const char *help, uint64_t value)
{
    if (!is_known)
        return;
    put_family(page, name, type, help);
    put_name(page, name, "", "");
    put_u64(page, value);
}

static void put_process(const struct page *page)
{
    struct dk_process_sample sample;
    dk_metrics_process_read(page->metrics, &sample);
    put_family(page, "process_cpu_seconds_total", "counter", "Processor time, user and system.");
    put_name(page, "process_cpu_seconds_total", "", "");
    put_seconds(page, (uint64_t)(sample.cpu_seconds * 1e9));
    put_family(page, "process_start_time_seconds", "gauge", "Start of the process, Unix time.");
    put_name(page, "process_start_time_seconds", "", "");
    put_seconds(page, (uint64_t)(page->metrics->start_time_seconds * 1e9));
    put_value(page, sample.has_resident, "process_resident_memory_bytes", "gauge", "Resident memory.",
              sample.resident_bytes);
    put_value(page, sample.has_open_fds, "process_open_fds", "gauge", "Open file descriptors.",
              sample.open_fds);
    put_value(page, sample.has_max_fds, "process_max_fds", "gauge", "Limit of open file descriptors.",
              sample.max_fds);
}

void dk_metrics_write(const struct dk_metrics *metrics, bool is_openmetrics, struct dk_json_text *text)
{
    const struct page page = {metrics, text, is_openmetrics};
    uint32_t shape_count = atomic_load_explicit(&metrics->shape_count, memory_order_acquire);
    const struct dk_info_text *info = atomic_load_explicit(&metrics->info, memory_order_acquire);
    if (info != NULL) {
        put_family(&page, "decomposek_info", "gauge",
                   "What runs: version, backend, device, instruction set.");
        put_name(&page, "decomposek_info", "", info->labels);
        put_u64(&page, 1);
    }
    put_scalars(&page);
    put_models(&page);
    put_counts(&page, "decomposek_request_rows", "Rows of A by request.", metrics->request_rows);
    put_counts(&page, "decomposek_batch_rows", "Rows of A by launch.", metrics->batch_rows);
    put_counts(&page, "decomposek_batch_jobs", "Requests served by one launch.", metrics->batch_jobs);
    for (size_t i = 0; i < sizeof shape_families / sizeof shape_families[0]; i++)
        put_shapes(&page, &shape_families[i], shape_count);
    put_process(&page);
    if (is_openmetrics)
        put(&page, "# EOF\n");
}
