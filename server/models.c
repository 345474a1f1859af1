/* models.c: the registry: who serves under which name. */
#include "server/models.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/log.h"
#include "server/metrics.h"
#include "server/model_load.h"
#include "server/models_store.h"

size_t dk_models_workspace_of(const struct dk_models *models, const struct dk_model *model)
{
    size_t largest = 0;
    uint32_t bucket_count = dk_engine_get_info(models->engine)->bucket_count;
    for (uint32_t i = 0; i < bucket_count; i++) {
        size_t bytes = dk_workspace_bytes(model->weights, dk_engine_bucket_rows(models->engine, i));
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

/* For the most demanding of all plans there are. */
static size_t candidates_workspace(const struct dk_models *models, const struct dk_model *model)
{
    const struct dk_engine *engine = models->engine;
    enum { CAPACITY = 256 };
    struct dk_plan *plans = calloc(CAPACITY, sizeof *plans);
    size_t largest = dk_models_workspace_of(models, model);
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

void dk_models_prepare(const struct dk_models *models, struct dk_model *model, uint64_t version)
{
    struct dk_metrics *metrics = models->metrics;
    model->version = version;
    model->metrics_shape = DK_METRICS_SHAPE_OTHER;
    model->metrics_model = -1;
    if (metrics == NULL)
        return;
    int shape = dk_metrics_shape(metrics, model->k, model->n);
    model->metrics_shape = shape < 0 ? DK_METRICS_SHAPE_OTHER : shape;
    model->metrics_model = dk_metrics_model(metrics, model->name);
}

void dk_models_log_loaded(const struct dk_model *model)
{
    dk_log(DK_LOG_INFO, "model_loaded",
           "name=%s file=%s tensor=%s bias=%s n=%llu k=%llu dtype=%s epilogue=%s bytes=%zu version=%llu",
           model->name, model->source_path, model->tensor_name, model->has_bias ? model->bias_name : "",
           (unsigned long long)model->n, (unsigned long long)model->k,
           dk_dtype_name(model->dtype, DK_DIALECT_NATIVE), dk_epilogue_name(model->epilogue),
           dk_weights_bytes(model->weights), (unsigned long long)model->version);
}

void dk_models_publish_bytes(const struct dk_models *models)
{
    if (models->metrics != NULL)
        dk_metrics_set(models->metrics, DK_METRIC_WEIGHTS_BYTES,
                       (int64_t)dk_models_get_extent(models).weights_bytes);
}

static dk_status load_all(struct dk_models *models, const struct dk_model_spec *specs, size_t count,
                          struct dk_error *error)
{
    for (size_t i = 0; i < count; i++) {
        struct dk_model *model = NULL;
        struct dk_models_slot *slot = &models->slots[i];
        dk_status status = dk_model_load(models->engine, &specs[i], -1, &model, error);
        if (status != DK_OK)
            return status;
        size_t workspace = dk_models_workspace_of(models, model);
        dk_models_prepare(models, model, 1);
        (void)snprintf(slot->name, sizeof slot->name, "%s", specs[i].name);
        slot->spec = &specs[i];
        slot->version = 1;
        slot->serving = model;
        models->slot_count = i + 1;
        models->max_n = model->n > models->max_n ? model->n : models->max_n;
        models->max_k = model->k > models->max_k ? model->k : models->max_k;
        models->workspace_bytes = workspace > models->workspace_bytes ? workspace : models->workspace_bytes;
        dk_models_log_loaded(model);
    }
    return DK_OK;
}

dk_status dk_models_new(struct dk_engine *engine, struct dk_metrics *metrics,
                        const struct dk_model_spec *specs, size_t spec_count, struct dk_models **out,
                        struct dk_error *error)
{
    assert(spec_count <= DK_MAX_MODELS);
    struct dk_models *models = calloc(1, sizeof *models);
    if (models == NULL)
        return dk_fail(error, DK_NO_MEMORY, "no memory for %zu models", spec_count);
    models->engine = engine;
    models->metrics = metrics;
    models->room.model_count = DK_MAX_MODELS;
    /* default mutexes need no resources on Linux: these cannot fail */
    (void)pthread_mutex_init(&models->change, NULL);
    (void)pthread_mutex_init(&models->swap, NULL);
    dk_status status = load_all(models, specs, spec_count, error);
    if (status != DK_OK) {
        dk_models_free(models);
        return status;
    }
    dk_models_publish_bytes(models);
    *out = models;
    return DK_OK;
}

void dk_models_free(struct dk_models *models)
{
    if (models == NULL)
        return;
    for (size_t i = 0; i < models->slot_count; i++) {
        assert(models->slots[i].serving == NULL || models->slots[i].serving->reference_count == 1);
        dk_model_release(models->slots[i].serving);
    }
    (void)pthread_mutex_destroy(&models->swap);
    (void)pthread_mutex_destroy(&models->change);
    free(models);
}

void dk_models_set_room(struct dk_models *models, const struct dk_models_room *room)
{
    models->room = *room;
}

struct dk_models_slot *dk_models_find_slot(struct dk_models *models, const char *name)
{
    for (size_t i = 0; i < models->slot_count; i++) {
        if (strcmp(models->slots[i].name, name) == 0)
            return &models->slots[i];
    }
    return NULL;
}

/* Under `swap`. */
static struct dk_model *acquire(const struct dk_models_slot *slot)
{
    if (slot != NULL && slot->serving != NULL)
        atomic_fetch_add_explicit(&slot->serving->reference_count, 1, memory_order_relaxed);
    return slot != NULL ? slot->serving : NULL;
}

struct dk_model *dk_models_acquire(struct dk_models *models, const char *name)
{
    if (*name == '\0')
        return NULL; /* the name of a free slot */
    pthread_mutex_lock(&models->swap);
    struct dk_model *model = acquire(dk_models_find_slot(models, name));
    pthread_mutex_unlock(&models->swap);
    return model;
}

struct dk_model *dk_models_next(struct dk_models *models, size_t *cursor)
{
    struct dk_model *model = NULL;
    pthread_mutex_lock(&models->swap);
    while (model == NULL && *cursor < models->slot_count)
        model = acquire(&models->slots[(*cursor)++]);
    pthread_mutex_unlock(&models->swap);
    return model;
}

/* A lock is no part of the value. */
static pthread_mutex_t *swap_lock(const struct dk_models *models)
{
    return (pthread_mutex_t *)&models->swap;
}

bool dk_models_next_entry(const struct dk_models *models, size_t *cursor, struct dk_models_entry *out)
{
    bool is_found = false;
    pthread_mutex_lock(swap_lock(models));
    while (!is_found && *cursor < models->slot_count) {
        const struct dk_models_slot *slot = &models->slots[(*cursor)++];
        is_found = slot->name[0] != '\0';
        if (is_found) {
            memcpy(out->name, slot->name, sizeof out->name);
            out->is_serving = slot->serving != NULL;
            out->is_loading = slot->is_loading;
        }
    }
    pthread_mutex_unlock(swap_lock(models));
    return is_found;
}

size_t dk_models_count(const struct dk_models *models)
{
    size_t count = 0;
    pthread_mutex_lock(swap_lock(models));
    for (size_t i = 0; i < models->slot_count; i++)
        count += models->slots[i].serving != NULL;
    pthread_mutex_unlock(swap_lock(models));
    return count;
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
    for (size_t i = 0; i < models->slot_count; i++) {
        const struct dk_model *model = models->slots[i].serving;
        size_t bytes =
            for_candidates ? candidates_workspace(models, model) : dk_models_workspace_of(models, model);
        models->workspace_bytes = bytes > models->workspace_bytes ? bytes : models->workspace_bytes;
    }
}

struct dk_models_extent dk_models_get_extent(const struct dk_models *models)
{
    struct dk_models_extent extent = {models->max_n, models->max_k, models->workspace_bytes, 0};
    pthread_mutex_lock(swap_lock(models));
    for (size_t i = 0; i < models->slot_count; i++) {
        if (models->slots[i].serving != NULL)
            extent.weights_bytes += dk_weights_bytes(models->slots[i].serving->weights);
    }
    pthread_mutex_unlock(swap_lock(models));
    return extent;
}
