/* top_snapshot.c: from exposition text to numbers by shape, bucket and model. */
#include "client/top_snapshot.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/metrics_text.h"

enum { MAX_SERIES = 4096, MAX_MODELS = 4096 };

static const char *const histogram_names[DK_TOP_HISTOGRAM_COUNT] = {
    [DK_TOP_REQUEST] = "decomposek_request_duration_seconds",
    [DK_TOP_QUEUE] = "decomposek_queue_duration_seconds",
    [DK_TOP_KERNEL] = "decomposek_kernel_duration_seconds"};

/* A count: NaN, negative and huge values are no counts of ours and become 0. */
static uint64_t whole(double value)
{
    return value >= 0 && value < 0x1p63 ? (uint64_t)value : 0;
}

/* `array` with room for one more element of `size`, perhaps moved; NULL, with the error set, leaves it. */
static void *make_room(void *array, size_t size, size_t count, size_t *capacity, size_t limit,
                       struct dk_error *error)
{
    if (count < *capacity)
        return array;
    size_t wanted = *capacity > 0 ? *capacity * 2 : 16;
    void *moved = count < limit ? realloc(array, wanted * size) : NULL;
    if (moved)
        *capacity = wanted;
    else if (count < limit)
        dk_fail(error, DK_NO_MEMORY, "no memory for %zu series", wanted);
    else
        dk_fail(error, DK_TOO_LARGE, "/metrics has more than %zu series of a kind", limit);
    return moved;
}

/* Lines of one series follow each other, so the last one found is tried first. */
static dk_status find_series(struct dk_top_snapshot *snapshot, const char *shape, uint64_t bucket,
                             size_t *last, struct dk_error *error)
{
    for (size_t turn = 0; turn < snapshot->series_count; turn++) {
        size_t i = (*last + turn) % snapshot->series_count;
        if (snapshot->series[i].bucket == bucket && strcmp(snapshot->series[i].shape, shape) == 0) {
            *last = i;
            return DK_OK;
        }
    }
    struct dk_top_series *series = make_room(snapshot->series, sizeof *series, snapshot->series_count,
                                             &snapshot->series_capacity, MAX_SERIES, error);
    if (!series)
        return error ? error->status : DK_NO_MEMORY;
    snapshot->series = series;
    series += snapshot->series_count;
    memset(series, 0, sizeof *series);
    (void)snprintf(series->shape, sizeof series->shape, "%s", shape);
    series->bucket = bucket;
    *last = snapshot->series_count++;
    return DK_OK;
}

/* "0.001", "+Inf" */
static bool read_bound(const char *text, double *out)
{
    char line[DK_METRIC_LABEL_BYTES + 4];
    struct dk_metrics_cursor cursor;
    struct dk_metric_sample sample;
    (void)snprintf(line, sizeof line, "x %s", text);
    dk_metrics_cursor_init(&cursor, line, strlen(line));
    if (dk_metrics_text_next(&cursor, &sample, NULL) != DK_METRICS_SAMPLE || isnan(sample.value))
        return false;
    *out = sample.value;
    return true;
}

/* Adds to what another transport has put there. */
static dk_status add_bucket(struct dk_top_histogram *histogram, double bound, uint64_t count,
                            struct dk_error *error)
{
    uint32_t i = 0;
    while (i < histogram->bound_count && histogram->bounds[i] < bound)
        i++;
    if (i == histogram->bound_count || histogram->bounds[i] != bound) {
        if (histogram->bound_count == DK_TOP_MAX_BOUNDS)
            return dk_fail(error, DK_TOO_LARGE, "a histogram of /metrics has more than %d bounds",
                           DK_TOP_MAX_BOUNDS);
        for (uint32_t j = histogram->bound_count++; j > i; j--) {
            histogram->bounds[j] = histogram->bounds[j - 1];
            histogram->counts[j] = histogram->counts[j - 1];
        }
        histogram->bounds[i] = bound;
        histogram->counts[i] = 0;
    }
    histogram->counts[i] += count;
    return DK_OK;
}

/* A line _bucket or _sum of histogram `kind`. */
static dk_status take_histogram(struct dk_top_snapshot *snapshot, const struct dk_metric_sample *sample,
                                enum dk_top_histogram_kind kind, bool is_sum, size_t *last,
                                struct dk_error *error)
{
    const char *shape = dk_metric_label(sample, "shape"), *bucket = dk_metric_label(sample, "t_bucket");
    const char *bound_text = dk_metric_label(sample, "le");
    double bound = 0, bucket_rows;
    if (!shape || strlen(shape) >= DK_TOP_SHAPE_BYTES || !bucket || !read_bound(bucket, &bucket_rows) ||
        (!is_sum && (!bound_text || !read_bound(bound_text, &bound))))
        return dk_fail(error, DK_BAD_REQUEST, "a sample of %s has no usable shape, t_bucket and le",
                       sample->name);
    dk_status status = find_series(snapshot, shape, whole(bucket_rows), last, error);
    if (status != DK_OK)
        return status;
    struct dk_top_histogram *histogram = &snapshot->series[*last].histograms[kind];
    if (!is_sum)
        return add_bucket(histogram, bound, whole(sample->value), error);
    histogram->sum += sample->value;
    return DK_OK;
}

static dk_status find_model(struct dk_top_snapshot *snapshot, const struct dk_metric_sample *sample,
                            struct dk_top_model **out, struct dk_error *error)
{
    const char *name = dk_metric_label(sample, "model");
    if (!name || strlen(name) > DK_MODEL_NAME_BYTES)
        return dk_fail(error, DK_BAD_REQUEST, "a sample of %s has no usable model", sample->name);
    for (size_t i = 0; i < snapshot->model_count; i++)
        if (strcmp(snapshot->models[i].name, name) == 0) {
            *out = &snapshot->models[i];
            return DK_OK;
        }
    struct dk_top_model *models = make_room(snapshot->models, sizeof *models, snapshot->model_count,
                                            &snapshot->model_capacity, MAX_MODELS, error);
    if (!models)
        return error ? error->status : DK_NO_MEMORY;
    snapshot->models = models;
    *out = &models[snapshot->model_count++];
    **out = (struct dk_top_model){0};
    memcpy((*out)->name, name, strlen(name) + 1);
    return DK_OK;
}

static dk_status take_model(struct dk_top_snapshot *snapshot, const struct dk_metric_sample *sample,
                            struct dk_error *error)
{
    struct dk_top_model *model = NULL;
    dk_status status = find_model(snapshot, sample, &model, error);
    if (status != DK_OK)
        return status;
    const char *outcome = dk_metric_label(sample, "outcome");
    uint64_t count = whole(sample->value);
    if (!outcome)
        model->rows += count;
    else if (strcmp(outcome, "ok") == 0)
        model->ok_count += count;
    else
        model->failed_count += count;
    return DK_OK;
}

static void take_info(struct dk_top_snapshot *snapshot, const struct dk_metric_sample *sample)
{
    const struct {
        const char *name;
        char *out;
        size_t size;
    } texts[] = {{"version", snapshot->version, sizeof snapshot->version},
                 {"backend", snapshot->backend, sizeof snapshot->backend},
                 {"device", snapshot->device, sizeof snapshot->device}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const char *value = dk_metric_label(sample, texts[i].name);
        (void)snprintf(texts[i].out, texts[i].size, "%s", value ? value : "");
    }
}

static void take_number(struct dk_top_snapshot *snapshot, const struct dk_metric_sample *sample)
{
    const struct {
        const char *name;
        double *out;
    } numbers[] = {{"decomposek_queue_depth", &snapshot->queue_depth},
                   {"decomposek_in_flight_requests", &snapshot->in_flight},
                   {"decomposek_ready", &snapshot->is_ready},
                   {"process_cpu_seconds_total", &snapshot->cpu_s},
                   {"process_resident_memory_bytes", &snapshot->resident_bytes},
                   {"process_start_time_seconds", &snapshot->start_time_s},
                   {"decomposek_batch_rows_sum", &snapshot->batch_rows.sum},
                   {"decomposek_batch_jobs_sum", &snapshot->batch_jobs.sum}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (strcmp(sample->name, numbers[i].name) == 0)
            *numbers[i].out = sample->value;
    if (strcmp(sample->name, "decomposek_http_refused_total") == 0)
        snapshot->refused_count = whole(sample->value);
    if (strcmp(sample->name, "decomposek_batch_rows_count") == 0)
        snapshot->batch_rows.count = whole(sample->value);
    if (strcmp(sample->name, "decomposek_batch_jobs_count") == 0)
        snapshot->batch_jobs.count = whole(sample->value);
}

static dk_status take_sample(struct dk_top_snapshot *snapshot, const struct dk_metric_sample *sample,
                             size_t *last, struct dk_error *error)
{
    for (int kind = 0; kind < DK_TOP_HISTOGRAM_COUNT; kind++) {
        size_t length = strlen(histogram_names[kind]);
        if (strncmp(sample->name, histogram_names[kind], length) != 0)
            continue;
        bool is_sum = strcmp(sample->name + length, "_sum") == 0;
        if (is_sum || strcmp(sample->name + length, "_bucket") == 0)
            return take_histogram(snapshot, sample, (enum dk_top_histogram_kind)kind, is_sum, last, error);
    }
    if (strcmp(sample->name, "decomposek_requests_total") == 0 ||
        strcmp(sample->name, "decomposek_rows_total") == 0)
        return take_model(snapshot, sample, error);
    if (strcmp(sample->name, "decomposek_info") == 0)
        take_info(snapshot, sample);
    else
        take_number(snapshot, sample);
    return DK_OK;
}

dk_status dk_top_snapshot_read(const char *text, size_t length, struct dk_top_snapshot *out,
                               struct dk_error *error)
{
    struct dk_metrics_cursor cursor;
    struct dk_metric_sample sample;
    dk_status status = DK_OK;
    size_t last = 0;
    *out = (struct dk_top_snapshot){
        .queue_depth = NAN, .in_flight = NAN, .is_ready = NAN, .cpu_s = NAN, .resident_bytes = NAN};
    dk_metrics_cursor_init(&cursor, text, length);
    for (enum dk_metrics_step step; status == DK_OK;) {
        step = dk_metrics_text_next(&cursor, &sample, error);
        if (step == DK_METRICS_END)
            return DK_OK;
        status = step == DK_METRICS_BAD ? DK_BAD_REQUEST : take_sample(out, &sample, &last, error);
    }
    dk_top_snapshot_deinit(out);
    return status;
}

void dk_top_snapshot_deinit(struct dk_top_snapshot *snapshot)
{
    free(snapshot->series);
    free(snapshot->models);
    *snapshot = (struct dk_top_snapshot){0};
}
