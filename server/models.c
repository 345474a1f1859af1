/* models.c: the registry: who serves under which name, and the swap at a reload. */
#include "server/models.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "server/log.h"
#include "server/metrics.h"
#include "server/model_load.h"

struct dk_models {
    struct dk_engine *engine;
    struct dk_metrics *metrics; /* may be NULL */
    const struct dk_model_spec *specs;
    size_t count;
    uint64_t max_n, max_k;
    size_t workspace_bytes;
    _Atomic uint64_t generation; /* + 1 after each swap */
    pthread_mutex_t reload;      /* one reload at a time */
    pthread_mutex_t swap;        /* `slots`: held for a pointer and a count, never while loading */
    struct slot {
        struct dk_model *serving;
    } slots[]; /* [count] */
};

/* The largest over all buckets: a small bucket may be split more often than a large one. */
static size_t model_workspace(const struct dk_engine *engine, const struct dk_model *model)
{
    size_t largest = 0;
    uint32_t bucket_count = dk_engine_get_info(engine)->bucket_count;
    for (uint32_t i = 0; i < bucket_count; i++) {
        size_t bytes = dk_workspace_bytes(model->weights, dk_engine_bucket_rows(engine, i));
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

/* For the most demanding of all plans there are. */
static size_t candidates_workspace(const struct dk_engine *engine, const struct dk_model *model)
{
    enum { CAPACITY = 256 };
    struct dk_plan *plans = calloc(CAPACITY, sizeof *plans);
    size_t largest = model_workspace(engine, model);
    uint32_t bucket_count = plans == NULL ? 0 : dk_engine_get_info(engine)->bucket_count;
    for (uint32_t i = 0; i < bucket_count; i++) {
        uint32_t count =
            dk_plan_candidates(model->weights, dk_engine_bucket_rows(engine, i), plans, CAPACITY);
        for (uint32_t p = 0; p < count && p < CAPACITY; p++)
            largest = plans[p].workspace_bytes > largest ? plans[p].workspace_bytes : largest;
    }
    free(plans);
    return largest;
}

static void attach_metrics(struct dk_metrics *metrics, struct dk_model *model)
{
    model->metrics_shape = DK_METRICS_SHAPE_OTHER;
    model->metrics_model = -1;
    if (metrics == NULL)
        return;
    int shape = dk_metrics_shape(metrics, model->k, model->n);
    model->metrics_shape = shape < 0 ? DK_METRICS_SHAPE_OTHER : shape;
    model->metrics_model = dk_metrics_model(metrics, model->name);
}

static void log_loaded(const struct dk_model *model)
{
    dk_log(DK_LOG_INFO, "model_loaded",
           "name=%s file=%s tensor=%s bias=%s n=%llu k=%llu dtype=%s epilogue=%s bytes=%zu version=%llu",
           model->name, model->source_path, model->tensor_name, model->has_bias ? model->bias_name : "",
           (unsigned long long)model->n, (unsigned long long)model->k,
           dk_dtype_name(model->dtype, DK_DIALECT_NATIVE), dk_epilogue_name(model->epilogue),
           dk_weights_bytes(model->weights), (unsigned long long)model->version);
}

static void publish_bytes(struct dk_models *models)
{
    if (models->metrics != NULL)
        dk_metrics_set(models->metrics, DK_METRIC_WEIGHTS_BYTES,
                       (int64_t)dk_models_get_extent(models).weights_bytes);
}

static dk_status load_all(struct dk_models *models, struct dk_error *error)
{
    for (size_t i = 0; i < models->count; i++) {
        struct dk_model *model = NULL;
        dk_status status = dk_model_load(models->engine, &models->specs[i], &model, error);
        if (status != DK_OK)
            return status;
        size_t workspace = model_workspace(models->engine, model);
        model->version = 1;
        attach_metrics(models->metrics, model);
        models->slots[i].serving = model;
        models->max_n = model->n > models->max_n ? model->n : models->max_n;
        models->max_k = model->k > models->max_k ? model->k : models->max_k;
        models->workspace_bytes = workspace > models->workspace_bytes ? workspace : models->workspace_bytes;
        log_loaded(model);
    }
    return DK_OK;
}

dk_status dk_models_new(struct dk_engine *engine, struct dk_metrics *metrics,
                        const struct dk_model_spec *specs, size_t spec_count, struct dk_models **out,
                        struct dk_error *error)
{
    struct dk_models *models = calloc(1, sizeof *models + spec_count * sizeof models->slots[0]);
    if (models == NULL)
        return dk_fail(error, DK_NO_MEMORY, "no memory for %zu models", spec_count);
    models->engine = engine;
    models->metrics = metrics;
    models->specs = specs;
    models->count = spec_count;
    /* default mutexes need no resources on Linux: these cannot fail */
    (void)pthread_mutex_init(&models->reload, NULL);
    (void)pthread_mutex_init(&models->swap, NULL);
    dk_status status = load_all(models, error);
    if (status != DK_OK) {
        dk_models_free(models);
        return status;
    }
    publish_bytes(models);
    *out = models;
    return DK_OK;
}

void dk_models_free(struct dk_models *models)
{
    if (models == NULL)
        return;
    for (size_t i = 0; i < models->count; i++) {
        assert(models->slots[i].serving == NULL || models->slots[i].serving->reference_count == 1);
        dk_model_release(models->slots[i].serving);
    }
    (void)pthread_mutex_destroy(&models->swap);
    (void)pthread_mutex_destroy(&models->reload);
    free(models);
}

/* A new version may replace `old` when no buffer made for the old one is too small. */
static dk_status check_successor(const struct dk_models *models, const struct dk_model *old,
                                 const struct dk_model *next, struct dk_error *error)
{
    if (next->n != old->n || next->k != old->k)
        return dk_fail(
            error, DK_BAD_SHAPE,
            "model '%s': %s: tensor '%s': expected n %llu and k %llu as served, found n %llu and k "
            "%llu; a new shape needs a restart",
            old->name, next->source_path, next->tensor_name, (unsigned long long)old->n,
            (unsigned long long)old->k, (unsigned long long)next->n, (unsigned long long)next->k);
    size_t workspace = model_workspace(models->engine, next);
    if (workspace > models->workspace_bytes)
        return dk_fail(error, DK_TOO_LARGE,
                       "model '%s': %s: a workspace of %zu bytes is needed, %zu were allocated at start; "
                       "restart to load it",
                       old->name, next->source_path, workspace, models->workspace_bytes);
    return DK_OK;
}

/* Under the reload lock, which alone lets slots change: reading it needs no other lock here. */
static dk_status reload_one(struct dk_models *models, size_t index, struct dk_error *error)
{
    struct dk_model *next = NULL, *old = models->slots[index].serving;
    dk_status status = dk_model_load(models->engine, &models->specs[index], &next, error);
    if (status != DK_OK)
        return status;
    status = check_successor(models, old, next, error);
    if (status != DK_OK) {
        dk_model_free(next);
        return status;
    }
    next->version = old->version + 1;
    attach_metrics(models->metrics, next);
    pthread_mutex_lock(&models->swap);
    models->slots[index].serving = next;
    pthread_mutex_unlock(&models->swap);
    atomic_fetch_add(&models->generation, 1);
    dk_model_release(old);
    log_loaded(next);
    return DK_OK;
}

dk_status dk_models_reload(struct dk_models *models, struct dk_error *error)
{
    dk_status first = DK_OK;
    pthread_mutex_lock(&models->reload);
    for (size_t i = 0; i < models->count; i++) {
        struct dk_error inner = {0};
        dk_status status = reload_one(models, i, &inner);
        if (status == DK_OK)
            continue;
        dk_log(DK_LOG_ERROR, "model_reload_failed", "name=%s reason=%s kept_version=%llu",
               models->specs[i].name, inner.message, (unsigned long long)models->slots[i].serving->version);
        if (first == DK_OK)
            first = dk_fail(error, status, "%s", inner.message);
    }
    pthread_mutex_unlock(&models->reload);
    publish_bytes(models);
    if (models->metrics != NULL)
        dk_metrics_add(models->metrics, first == DK_OK ? DK_METRIC_RELOADS : DK_METRIC_RELOAD_FAILURES, 1);
    return first;
}

struct dk_model *dk_models_acquire_at(struct dk_models *models, size_t index)
{
    if (index >= models->count)
        return NULL;
    pthread_mutex_lock(&models->swap);
    struct dk_model *model = models->slots[index].serving;
    atomic_fetch_add_explicit(&model->reference_count, 1, memory_order_relaxed);
    pthread_mutex_unlock(&models->swap);
    return model;
}

struct dk_model *dk_models_acquire(struct dk_models *models, const char *name)
{
    for (size_t i = 0; i < models->count; i++) { /* names never change: no lock for the search */
        if (strcmp(models->specs[i].name, name) == 0)
            return dk_models_acquire_at(models, i);
    }
    return NULL;
}

size_t dk_models_count(const struct dk_models *models)
{
    return models->count;
}

uint64_t dk_models_generation(const struct dk_models *models)
{
    return atomic_load_explicit(&models->generation, memory_order_acquire);
}

void dk_model_release(struct dk_model *model)
{
    if (model == NULL)
        return;
    uint32_t before = atomic_fetch_sub_explicit(&model->reference_count, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before == 1)
        dk_model_free(model);
}

void dk_models_size_workspace(struct dk_models *models, bool for_candidates)
{
    for (size_t i = 0; i < models->count; i++) {
        const struct dk_model *model = models->slots[i].serving;
        size_t bytes = for_candidates ? candidates_workspace(models->engine, model)
                                      : model_workspace(models->engine, model);
        models->workspace_bytes = bytes > models->workspace_bytes ? bytes : models->workspace_bytes;
    }
}

struct dk_models_extent dk_models_get_extent(const struct dk_models *models)
{
    struct dk_models_extent extent = {models->max_n, models->max_k, models->workspace_bytes, 0};
    pthread_mutex_t *swap = (pthread_mutex_t *)&models->swap; /* a lock is no part of the value */
    pthread_mutex_lock(swap);
    for (size_t i = 0; i < models->count; i++)
        extent.weights_bytes += dk_weights_bytes(models->slots[i].serving->weights);
    pthread_mutex_unlock(swap);
    return extent;
}
