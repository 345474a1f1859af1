/* top_view.c: differences of two scrapes. */
#include "client/top_view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- histograms ---------------------------------------------------------------------------------------- */

/* Count up to bound i. `before` has the same bounds, or counts from zero. */
static uint64_t growth_at(const struct dk_top_histogram *before, const struct dk_top_histogram *now,
                          uint32_t i)
{
    bool is_same = before && i < before->bound_count && before->bounds[i] == now->bounds[i];
    return is_same && before->counts[i] <= now->counts[i] ? now->counts[i] - before->counts[i]
                                                          : now->counts[i];
}

static uint64_t total_growth(const struct dk_top_histogram *before, const struct dk_top_histogram *now)
{
    return now->bound_count > 0 ? growth_at(before, now, now->bound_count - 1) : 0;
}

double dk_top_quantile(const struct dk_top_histogram *before, const struct dk_top_histogram *now,
                       double quantile)
{
    uint64_t total = total_growth(before, now);
    if (total == 0)
        return NAN;
    double rank = quantile * (double)total, lower = 0, below = 0;
    for (uint32_t i = 0; i < now->bound_count; i++) {
        double count = (double)growth_at(before, now, i);
        if (count >= rank && count > below && isfinite(now->bounds[i]))
            return lower + (now->bounds[i] - lower) * (rank - below) / (count - below);
        if (isfinite(now->bounds[i]))
            lower = now->bounds[i];
        below = count;
    }
    return lower;
}

/* Counts and bounds of several buckets together. */
static void add_histogram(struct dk_top_histogram *into, const struct dk_top_histogram *from)
{
    if (into->bound_count == 0) {
        *into = *from;
        return;
    }
    into->sum += from->sum;
    for (uint32_t i = 0; i < into->bound_count && i < from->bound_count; i++)
        into->counts[i] += from->counts[i];
}

/* --- series -------------------------------------------------------------------------------------------- */

static bool is_of(const struct dk_top_series *series, const char *shape, uint64_t bucket)
{
    return strcmp(series->shape, shape) == 0 && (bucket == 0 || series->bucket == bucket);
}

/* The sum of a shape's buckets, or one of them. */
static void collect(const struct dk_top_snapshot *snapshot, const char *shape, uint64_t bucket,
                    struct dk_top_histogram out[DK_TOP_HISTOGRAM_COUNT])
{
    memset(out, 0, DK_TOP_HISTOGRAM_COUNT * sizeof *out);
    for (size_t i = 0; snapshot && i < snapshot->series_count; i++)
        if (is_of(&snapshot->series[i], shape, bucket))
            for (int kind = 0; kind < DK_TOP_HISTOGRAM_COUNT; kind++)
                add_histogram(&out[kind], &snapshot->series[i].histograms[kind]);
}

static const struct dk_top_model *find_model(const struct dk_top_snapshot *snapshot, const char *name)
{
    for (size_t i = 0; snapshot && i < snapshot->model_count; i++)
        if (strcmp(snapshot->models[i].name, name) == 0)
            return &snapshot->models[i];
    return NULL;
}

/* "KxN" of a served model, "other" for those that are not (any more). */
static void shape_of(const cJSON *models, const char *name, char out[DK_TOP_SHAPE_BYTES])
{
    const cJSON *entry;
    (void)snprintf(out, DK_TOP_SHAPE_BYTES, "other");
    cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(models, "models"))
    {
        const cJSON *member = cJSON_GetObjectItemCaseSensitive(entry, "name");
        const cJSON *k = cJSON_GetObjectItemCaseSensitive(entry, "k");
        const cJSON *n = cJSON_GetObjectItemCaseSensitive(entry, "n");
        if (cJSON_IsString(member) && strcmp(member->valuestring, name) == 0 && cJSON_IsNumber(k) &&
            cJSON_IsNumber(n))
            (void)snprintf(out, DK_TOP_SHAPE_BYTES, "%.0fx%.0f", k->valuedouble, n->valuedouble);
    }
}

static uint64_t grown(uint64_t before, uint64_t now)
{
    return before <= now ? now - before : now;
}

/* Rows and failures of the models of one shape, or of all (NULL). */
static void add_models(const struct dk_top_snapshot *before, const struct dk_top_snapshot *now,
                       const cJSON *models, const char *shape, double *rows, double *failed, double *ok)
{
    *rows = *failed = *ok = 0;
    for (size_t i = 0; i < now->model_count; i++) {
        const struct dk_top_model *model = &now->models[i], *old = find_model(before, model->name);
        char label[DK_TOP_SHAPE_BYTES];
        shape_of(models, model->name, label);
        if (shape && strcmp(label, shape) != 0)
            continue;
        *rows += (double)grown(old ? old->rows : 0, model->rows);
        *failed += (double)grown(old ? old->failed_count : 0, model->failed_count);
        *ok += (double)grown(old ? old->ok_count : 0, model->ok_count);
    }
}

/* --- the view ------------------------------------------------------------------------------------------ */

static bool has_restarted(const struct dk_top_snapshot *before, const struct dk_top_snapshot *now)
{
    if (before->start_time_s != now->start_time_s)
        return true;
    for (size_t i = 0; i < before->model_count; i++) {
        const struct dk_top_model *model = find_model(now, before->models[i].name);
        if (!model || model->rows < before->models[i].rows || model->ok_count < before->models[i].ok_count)
            return true; /* a daemon never forgets a model, and no counter of it falls */
    }
    return false;
}

static void fill_row(struct dk_top_row *row, const struct dk_top_snapshot *before,
                     const struct dk_top_snapshot *now, const cJSON *models, double elapsed_s)
{
    struct dk_top_histogram old[DK_TOP_HISTOGRAM_COUNT], new[DK_TOP_HISTOGRAM_COUNT];
    double rows, failed, ok;
    collect(before, row->shape, row->bucket, old);
    collect(now, row->shape, row->bucket, new);
    add_models(before, now, models, row->shape, &rows, &failed, &ok);
    bool is_shape = row->bucket == 0;
    row->requests_per_s = (double)total_growth(&old[DK_TOP_REQUEST], &new[DK_TOP_REQUEST]) / elapsed_s;
    row->rows_per_s = is_shape ? rows / elapsed_s : NAN;
    row->failed_per_s = is_shape ? failed / elapsed_s : NAN;
    row->p50_us = 1e6 * dk_top_quantile(&old[DK_TOP_REQUEST], &new[DK_TOP_REQUEST], 0.5);
    row->p99_us = 1e6 * dk_top_quantile(&old[DK_TOP_REQUEST], &new[DK_TOP_REQUEST], 0.99);
    row->queue_p99_us = 1e6 * dk_top_quantile(&old[DK_TOP_QUEUE], &new[DK_TOP_QUEUE], 0.99);
    /* The mean is exact; a quantile of so few bounds could come out longer than the whole request. */
    uint64_t kernel_count = total_growth(&old[DK_TOP_KERNEL], &new[DK_TOP_KERNEL]);
    double kernel_s = new[DK_TOP_KERNEL].sum - old[DK_TOP_KERNEL].sum;
    row->kernel_mean_us = kernel_count > 0 ? 1e6 * kernel_s / (double)kernel_count : NAN;
}

/* Busiest first; the order of equals does not jump. */
static int compare_rows(const void *left, const void *right)
{
    const struct dk_top_row *a = left, *b = right;
    if (a->requests_per_s > b->requests_per_s || a->requests_per_s < b->requests_per_s)
        return a->requests_per_s > b->requests_per_s ? -1 : 1;
    int order = strcmp(a->shape, b->shape);
    return order != 0 ? order : (a->bucket > b->bucket) - (a->bucket < b->bucket);
}

static bool is_listed(const struct dk_top_view *view, const struct dk_top_series *series, bool by_bucket)
{
    for (size_t i = 0; i < view->row_count; i++)
        if (strcmp(view->rows[i].shape, series->shape) == 0 &&
            (!by_bucket || view->rows[i].bucket == series->bucket))
            return true;
    return false;
}

static double mean_growth(const struct dk_top_sum *before, const struct dk_top_sum *now)
{
    bool is_grown = before && before->count <= now->count;
    double sum = is_grown ? now->sum - before->sum : now->sum;
    uint64_t count = is_grown ? now->count - before->count : now->count;
    return count > 0 ? sum / (double)count : NAN;
}

static void fill_totals(struct dk_top_view *view, const struct dk_top_snapshot *before)
{
    const struct dk_top_snapshot *now = view->now;
    double rows, failed, ok;
    add_models(before, now, NULL, NULL, &rows, &failed, &ok);
    view->rows_per_s = rows / view->elapsed_s;
    view->failed_per_s = failed / view->elapsed_s;
    view->requests_per_s = (ok + failed) / view->elapsed_s;
    view->refused_per_s =
        (double)grown(before ? before->refused_count : 0, now->refused_count) / view->elapsed_s;
    view->batch_rows = mean_growth(before ? &before->batch_rows : NULL, &now->batch_rows);
    view->batch_jobs = mean_growth(before ? &before->batch_jobs : NULL, &now->batch_jobs);
    view->cpu_fraction = (now->cpu_s - (before ? before->cpu_s : 0)) / view->elapsed_s;
}

dk_status dk_top_view_make(const struct dk_top_snapshot *before, const struct dk_top_snapshot *now,
                           const cJSON *models, bool by_bucket, struct dk_top_view *out,
                           struct dk_error *error)
{
    struct dk_top_view view = {.now = now, .elapsed_s = NAN};
    if (before) {
        view.elapsed_s = (double)(now->taken_ns - before->taken_ns) / 1e9;
        view.is_restarted = has_restarted(before, now);
    }
    const struct dk_top_snapshot *base = view.is_restarted ? NULL : before;
    view.rows = calloc(now->series_count + 1, sizeof *view.rows);
    if (!view.rows)
        return dk_fail(error, DK_NO_MEMORY, "no memory for %zu lines", now->series_count);
    for (size_t i = 0; i < now->series_count; i++) {
        const struct dk_top_series *series = &now->series[i];
        if (is_listed(&view, series, by_bucket))
            continue;
        struct dk_top_row *row = &view.rows[view.row_count];
        memcpy(row->shape, series->shape, sizeof row->shape);
        row->bucket = by_bucket ? series->bucket : 0;
        fill_row(row, base, now, models, view.elapsed_s);
        view.row_count += !by_bucket || !isnan(row->p50_us);
    }
    qsort(view.rows, view.row_count, sizeof *view.rows, compare_rows);
    fill_totals(&view, base);
    *out = view;
    return DK_OK;
}

void dk_top_view_deinit(struct dk_top_view *view)
{
    free(view->rows);
    *view = (struct dk_top_view){0};
}
