/* metrics.c: recording, and the registration of series. */
#include "server/metrics.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/utf8.h"
#include "server/metrics_store.h"

#define DK_BOUND_VALUE(bound, text) bound,
#define DK_BOUND_TEXT(bound, text)  text,
static const uint64_t kernel_values[] = {DK_KERNEL_BOUNDS(DK_BOUND_VALUE)};
static const uint64_t request_values[] = {DK_REQUEST_BOUNDS(DK_BOUND_VALUE)};
static const uint64_t count_values[] = {DK_COUNT_BOUNDS(DK_BOUND_VALUE)};
static const char *const kernel_texts[] = {DK_KERNEL_BOUNDS(DK_BOUND_TEXT)};
static const char *const request_texts[] = {DK_REQUEST_BOUNDS(DK_BOUND_TEXT)};
static const char *const count_texts[] = {DK_COUNT_BOUNDS(DK_BOUND_TEXT)};

const struct dk_bounds dk_kernel_bounds = {kernel_values, kernel_texts, DK_KERNEL_BOUND_COUNT, true};
const struct dk_bounds dk_request_bounds = {request_values, request_texts, DK_REQUEST_BOUND_COUNT, true};
const struct dk_bounds dk_count_bounds = {count_values, count_texts, DK_COUNT_BOUND_COUNT, false};

static void add(dk_counter *counter, uint64_t value)
{
    atomic_fetch_add_explicit(counter, value, memory_order_relaxed);
}

/* Returns the index of the bound it fell under. */
static uint32_t observe(dk_counter *histogram, const struct dk_bounds *bounds, uint64_t value)
{
    uint32_t index = 0;
    while (index < bounds->count && value > bounds->values[index])
        index++;
    add(&histogram[index], 1);
    add(&histogram[bounds->count + 1], value);
    return index;
}

/* Under the registration lock. NULL without memory. */
static struct dk_shape_series *add_shape(struct dk_metrics *metrics, uint64_t k, uint64_t n, bool is_shown)
{
    struct dk_shape_series *series =
        calloc(1, sizeof *series + metrics->bucket_count * sizeof series->cells[0]);
    if (series == NULL)
        return NULL;
    series->k = k;
    series->n = n;
    series->is_shown = is_shown;
    if (is_shown)
        (void)snprintf(series->label, sizeof series->label, "%llux%llu", (unsigned long long)k,
                       (unsigned long long)n);
    else
        (void)snprintf(series->label, sizeof series->label, "other");
    uint32_t index = atomic_load_explicit(&metrics->shape_count, memory_order_relaxed);
    atomic_store_explicit(&metrics->shapes[index], series, memory_order_release);
    atomic_store_explicit(&metrics->shape_count, index + 1, memory_order_release);
    return series;
}

static struct dk_model_series *add_model(struct dk_metrics *metrics, const char *name)
{
    struct dk_model_series *series = calloc(1, sizeof *series);
    if (series == NULL)
        return NULL;
    (void)snprintf(series->name, sizeof series->name, "%s", name);
    uint32_t index = atomic_load_explicit(&metrics->model_count, memory_order_relaxed);
    atomic_store_explicit(&metrics->models[index], series, memory_order_release);
    atomic_store_explicit(&metrics->model_count, index + 1, memory_order_release);
    return series;
}

dk_status dk_metrics_new(const uint32_t *bucket_rows, uint32_t bucket_count, struct dk_metrics **out,
                         struct dk_error *error)
{
    struct dk_metrics *metrics = NULL;
    if (bucket_count == 0 || bucket_count > sizeof metrics->bucket_rows / sizeof metrics->bucket_rows[0])
        return dk_fail(error, DK_BAD_VALUE, "metrics: %u buckets are not allowed", bucket_count);
    metrics = calloc(1, sizeof *metrics);
    if (metrics == NULL)
        return dk_fail(error, DK_NO_MEMORY, "no memory for the metrics");
    metrics->bucket_count = bucket_count;
    memcpy(metrics->bucket_rows, bucket_rows, bucket_count * sizeof bucket_rows[0]);
    metrics->statm_fd = -1;
    int code = pthread_mutex_init(&metrics->registration, NULL);
    if (code != 0) {
        free(metrics);
        return dk_fail(error, DK_INTERNAL, "metrics: cannot make a lock: %s", strerrordesc_np(code));
    }
    if (add_shape(metrics, 0, 0, false) == NULL || add_model(metrics, "@adhoc") == NULL) {
        dk_metrics_free(metrics);
        return dk_fail(error, DK_NO_MEMORY, "no memory for the metrics");
    }
    dk_metrics_process_open(metrics);
    *out = metrics;
    return DK_OK;
}

void dk_metrics_free(struct dk_metrics *metrics)
{
    if (metrics == NULL)
        return;
    for (uint32_t i = 0; i < metrics->shape_count; i++)
        free(metrics->shapes[i]);
    for (uint32_t i = 0; i < metrics->model_count; i++)
        free(metrics->models[i]);
    for (struct dk_info_text *info = metrics->info; info != NULL;) {
        struct dk_info_text *previous = info->previous;
        free(info);
        info = previous;
    }
    if (metrics->statm_fd >= 0)
        (void)close(metrics->statm_fd);
    (void)pthread_mutex_destroy(&metrics->registration);
    free(metrics);
}

enum { LABEL_VALUE_BYTES = 256 };

/* Escapes a label value: backslash, quote, line feed; what is not UTF-8 or a control becomes '?'. */
static void escape_label(const char *text, char out[LABEL_VALUE_BYTES])
{
    size_t length = 0;
    for (size_t left = text == NULL ? 0 : strlen(text); left > 0 && length + 5 < LABEL_VALUE_BYTES;) {
        size_t taken = dk_utf8_sequence(text, left);
        if (*text == '\\' || *text == '"') {
            out[length++] = '\\';
            out[length++] = *text;
        } else if (*text == '\n') {
            out[length++] = '\\';
            out[length++] = 'n';
        } else if (taken == 0 || (taken == 1 && (unsigned char)*text < 0x20)) {
            out[length++] = '?';
        } else {
            memcpy(out + length, text, taken);
            length += taken;
        }
        size_t step = taken > 0 ? taken : 1;
        text += step;
        left -= step;
    }
    out[length] = '\0';
}

void dk_metrics_set_info(struct dk_metrics *metrics, const char *version, const char *backend,
                         const char *device, const char *isa)
{
    char values[4][LABEL_VALUE_BYTES];
    const char *const texts[4] = {version, backend, device, isa};
    for (int i = 0; i < 4; i++)
        escape_label(texts[i], values[i]);
    enum { LABELS_BYTES = 4 * LABEL_VALUE_BYTES + 64 };
    struct dk_info_text *info = malloc(sizeof *info + LABELS_BYTES);
    if (info == NULL)
        return;
    (void)snprintf(info->labels, LABELS_BYTES, "version=\"%s\",backend=\"%s\",device=\"%s\",isa=\"%s\"",
                   values[0], values[1], values[2], values[3]);
    pthread_mutex_lock(&metrics->registration);
    info->previous = atomic_load_explicit(&metrics->info, memory_order_relaxed);
    atomic_store_explicit(&metrics->info, info, memory_order_release);
    pthread_mutex_unlock(&metrics->registration);
}

int dk_metrics_shape(struct dk_metrics *metrics, uint64_t k, uint64_t n)
{
    int handle = -1;
    pthread_mutex_lock(&metrics->registration);
    uint32_t count = metrics->shape_count;
    for (uint32_t i = 1; i < count && handle < 0; i++) {
        struct dk_shape_series *series = metrics->shapes[i];
        if (series->k == k && series->n == n)
            handle = (int)i;
    }
    if (handle < 0 && count <= DK_METRICS_MAX_SHAPES && add_shape(metrics, k, n, true) != NULL)
        handle = (int)count;
    pthread_mutex_unlock(&metrics->registration);
    return handle;
}

int dk_metrics_model(struct dk_metrics *metrics, const char *name)
{
    int handle = -1;
    pthread_mutex_lock(&metrics->registration);
    uint32_t count = metrics->model_count;
    for (uint32_t i = 1; i < count && handle < 0; i++) {
        struct dk_model_series *series = metrics->models[i];
        if (strcmp(series->name, name) == 0)
            handle = (int)i - 1;
    }
    if (handle < 0 && count <= DK_METRICS_MAX_MODELS && add_model(metrics, name) != NULL)
        handle = (int)count - 1;
    pthread_mutex_unlock(&metrics->registration);
    return handle;
}

enum dk_outcome dk_metrics_outcome(dk_status status)
{
    if (status == DK_OK) {
        return DK_OUTCOME_OK;
    }
    if (status == DK_CANCELLED) {
        return DK_OUTCOME_CANCELLED;
    }
    int http_status = dk_status_http(status);
    return http_status == 503  ? DK_OUTCOME_BUSY
           : http_status < 500 ? DK_OUTCOME_CLIENT_ERROR
                               : DK_OUTCOME_SERVER_ERROR;
}

void dk_metrics_record(struct dk_metrics *metrics, const struct dk_metrics_sample *sample)
{
    struct dk_model_series *model = dk_metrics_model_series(metrics, sample->model);
    dk_statistics_record(&model->statistics, sample);
    if ((unsigned)sample->outcome < DK_OUTCOME_COUNT)
        add(&model->requests[sample->outcome], 1);
    if (!sample->has_times)
        return;
    uint32_t last = metrics->bucket_count - 1;
    struct dk_shape_series *shape = dk_metrics_shape_series(metrics, sample->shape);
    struct dk_cell *cell = &shape->cells[sample->bucket_index > last ? last : sample->bucket_index];
    if (!atomic_load_explicit(&shape->is_shown, memory_order_relaxed))
        atomic_store_explicit(&shape->is_shown, true, memory_order_relaxed);
    if ((unsigned)sample->transport < DK_TRANSPORT_COUNT) {
        uint32_t bound = observe(cell->request[sample->transport], &dk_request_bounds, sample->request_ns);
        if ((sample->trace.high | sample->trace.low) != 0)
            dk_exemplar_store(&cell->exemplars[bound], &sample->trace, sample->transport, sample->request_ns);
    }
    (void)observe(cell->queue, &dk_request_bounds, sample->queue_ns);
    (void)observe(cell->copy, &dk_kernel_bounds, sample->copy_ns);
    (void)observe(cell->kernel, &dk_kernel_bounds, sample->kernel_ns);
    (void)observe(metrics->request_rows, &dk_count_bounds, sample->rows);
    add(&model->rows, sample->rows);
}

void dk_metrics_add(struct dk_metrics *metrics, enum dk_metric_scalar scalar, int64_t delta)
{
    atomic_fetch_add_explicit(&metrics->scalars[scalar], delta, memory_order_relaxed);
}

void dk_metrics_set(struct dk_metrics *metrics, enum dk_metric_scalar scalar, int64_t value)
{
    atomic_store_explicit(&metrics->scalars[scalar], value, memory_order_relaxed);
}

int64_t dk_metrics_get(const struct dk_metrics *metrics, enum dk_metric_scalar scalar)
{
    return atomic_load_explicit(&metrics->scalars[scalar], memory_order_relaxed);
}

void dk_metrics_record_launch(struct dk_metrics *metrics, uint64_t rows, uint32_t job_count)
{
    (void)observe(metrics->batch_rows, &dk_count_bounds, rows);
    (void)observe(metrics->batch_jobs, &dk_count_bounds, job_count);
}
