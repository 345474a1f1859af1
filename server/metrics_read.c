/* metrics_read.c: single numbers for the status page and the statistics extension. */
#include <math.h>

#include "server/metrics_store.h"

struct dk_shape_series *dk_metrics_shape_series(const struct dk_metrics *metrics, int handle)
{
    uint32_t count = atomic_load_explicit(&metrics->shape_count, memory_order_acquire);
    uint32_t index = handle < 0 || (uint32_t)handle >= count ? DK_METRICS_SHAPE_OTHER : (uint32_t)handle;
    return atomic_load_explicit(&metrics->shapes[index], memory_order_acquire);
}

struct dk_model_series *dk_metrics_model_series(const struct dk_metrics *metrics, int handle)
{
    uint32_t count = atomic_load_explicit(&metrics->model_count, memory_order_acquire);
    uint32_t index = handle < 0 || (uint32_t)handle + 1 >= count ? 0 : (uint32_t)handle + 1;
    return atomic_load_explicit(&metrics->models[index], memory_order_acquire);
}

const struct dk_statistics *dk_metrics_statistics(const struct dk_metrics *metrics, int model)
{
    return &dk_metrics_model_series(metrics, model)->statistics;
}

const char *dk_metrics_shape_label(const struct dk_metrics *metrics, int shape)
{
    if (shape < 0 || (uint32_t)shape >= atomic_load_explicit(&metrics->shape_count, memory_order_acquire)) {
        return NULL;
    }
    const struct dk_shape_series *series = dk_metrics_shape_series(metrics, shape);
    return atomic_load_explicit(&series->is_shown, memory_order_relaxed) ? series->label : "";
}

static const struct dk_cell *cell_of(const struct dk_metrics *metrics, int shape, uint32_t bucket_index)
{
    uint32_t last = metrics->bucket_count - 1;
    return &dk_metrics_shape_series(metrics, shape)->cells[bucket_index > last ? last : bucket_index];
}

uint64_t dk_metrics_request_count(const struct dk_metrics *metrics, int shape, uint32_t bucket_index)
{
    const struct dk_cell *cell = cell_of(metrics, shape, bucket_index);
    uint64_t total = 0;
    for (int transport = 0; transport < DK_TRANSPORT_COUNT; transport++) {
        for (int i = 0; i <= DK_REQUEST_BOUND_COUNT; i++) {
            total += atomic_load_explicit(&cell->request[transport][i], memory_order_relaxed);
        }
    }
    return total;
}

const char *dk_metrics_model_name(const struct dk_metrics *metrics, int model)
{
    uint32_t count = atomic_load_explicit(&metrics->model_count, memory_order_acquire);
    return model < -1 || model + 1 >= (int)count ? NULL : dk_metrics_model_series(metrics, model)->name;
}

uint64_t dk_metrics_model_requests(const struct dk_metrics *metrics, int model, enum dk_outcome outcome)
{
    return atomic_load_explicit(&dk_metrics_model_series(metrics, model)->requests[outcome],
                                memory_order_relaxed);
}

uint64_t dk_metrics_model_rows(const struct dk_metrics *metrics, int model)
{
    return atomic_load_explicit(&dk_metrics_model_series(metrics, model)->rows, memory_order_relaxed);
}

struct dk_metrics_launches dk_metrics_launches(const struct dk_metrics *metrics)
{
    struct dk_metrics_launches launches = {0};
    for (int i = 0; i <= DK_COUNT_BOUND_COUNT; i++) {
        launches.count += atomic_load_explicit(&metrics->batch_rows[i], memory_order_relaxed);
    }
    launches.rows =
        atomic_load_explicit(&metrics->batch_rows[DK_COUNT_BOUND_COUNT + 1], memory_order_relaxed);
    launches.jobs =
        atomic_load_explicit(&metrics->batch_jobs[DK_COUNT_BOUND_COUNT + 1], memory_order_relaxed);
    return launches;
}

double dk_metrics_request_quantile(const struct dk_metrics *metrics, int shape, uint32_t bucket_index,
                                   double quantile)
{
    enum { LAST = DK_REQUEST_BOUND_COUNT };
    uint64_t counts[LAST + 1], total = 0;
    const struct dk_cell *cell = cell_of(metrics, shape, bucket_index);
    for (int i = 0; i <= LAST; i++) {
        counts[i] = 0;
        for (int transport = 0; transport < DK_TRANSPORT_COUNT; transport++)
            counts[i] += atomic_load_explicit(&cell->request[transport][i], memory_order_relaxed);
        total += counts[i];
    }
    if (total == 0)
        return (double)NAN;
    double rank = quantile * (double)total, below = 0.0;
    for (int i = 0; i < LAST; i++) {
        if (counts[i] > 0 && below + (double)counts[i] >= rank) {
            double low = i == 0 ? 0.0 : (double)dk_request_bounds.values[i - 1];
            double high = (double)dk_request_bounds.values[i];
            return (low + (high - low) * (rank - below) / (double)counts[i]) * 1e-9;
        }
        below += (double)counts[i];
    }
    return (double)dk_request_bounds.values[LAST - 1] *
           1e-9; /* in +Inf: the largest bound, as PromQL answers */
}
