/* shm_models.c: a table of names; beside each, a pushed version and the executor's reference. */
#include "server/shm_models.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct slot {
    char name[DK_MODEL_NAME_BYTES + 1]; /* constant once counted */
    struct dk_model *pushed;            /* under the mutex; NULL: the registry's of this name */
    struct dk_model *in_use;            /* executor only */
    _Atomic uint64_t n, k;              /* as the client was told: it made its buffers by them */
};

struct dk_shm_models {
    struct dk_models *registry;
    pthread_mutex_t mutex;       /* `pushed` */
    _Atomic uint64_t push_count; /* replaced versions to let go of */
    uint64_t seen_generation;    /* executor only */
    _Atomic uint32_t count;      /* slots that the executor may look at */
    struct slot slots[DK_SHM_MODELS_MAX];
};

dk_status dk_shm_models_new(struct dk_models *registry, struct dk_shm_models **out, struct dk_error *error)
{
    struct dk_shm_models *models = calloc(1, sizeof *models);
    if (models == NULL) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for the models of a session");
    }
    models->registry = registry;
    (void)pthread_mutex_init(&models->mutex, NULL); /* a default mutex cannot fail on Linux */
    *out = models;
    return DK_OK;
}

void dk_shm_models_free(struct dk_shm_models *models)
{
    if (models == NULL) {
        return;
    }
    dk_shm_models_drop(models);
    for (uint32_t i = 0; i < models->count; i++) {
        dk_model_release(models->slots[i].pushed);
    }
    (void)pthread_mutex_destroy(&models->mutex);
    free(models);
}

/* The serving version of a slot, acquired; NULL when there is none. */
static struct dk_model *acquire(struct dk_shm_models *models, struct slot *slot)
{
    (void)pthread_mutex_lock(&models->mutex);
    struct dk_model *model = slot->pushed;
    if (model != NULL) {
        atomic_fetch_add_explicit(&model->reference_count, 1, memory_order_relaxed);
    }
    (void)pthread_mutex_unlock(&models->mutex);
    if (model == NULL && models->registry != NULL) {
        model = dk_models_acquire(models->registry, slot->name);
    }
    return model;
}

static uint32_t find(const struct dk_shm_models *models, const char *name)
{
    uint32_t count = atomic_load(&models->count), i = 0;
    while (i < count && strcmp(models->slots[i].name, name) != 0) {
        i++;
    }
    return i;
}

/* The slot of `name`, a new one when it has none; counted by the caller. */
static dk_status find_or_name(struct dk_shm_models *models, const char *name, uint32_t *out,
                              struct dk_error *error)
{
    uint32_t id = find(models, name);
    if (id == DK_SHM_MODELS_MAX) {
        return dk_fail(error, DK_BUSY, "%u models are open in this session, the limit", id);
    }
    if (id == atomic_load(&models->count)) {
        size_t length = strnlen(name, DK_MODEL_NAME_BYTES);
        memcpy(models->slots[id].name, name, length);
        models->slots[id].name[length] = '\0';
    }
    *out = id;
    return DK_OK;
}

static void count_slot(struct dk_shm_models *models, uint32_t id)
{
    if (id == atomic_load(&models->count)) {
        atomic_store(&models->count, id + 1);
    }
}

dk_status dk_shm_models_open(struct dk_shm_models *models, const char *name, uint32_t *out_id,
                             struct dk_model **out_model, struct dk_error *error)
{
    uint32_t id;
    dk_status status = find_or_name(models, name, &id, error);
    if (status != DK_OK) {
        return status;
    }
    struct dk_model *model = acquire(models, &models->slots[id]);
    if (model == NULL) {
        return dk_fail(error, DK_NOT_FOUND, "no model \"%s\"", name);
    }
    atomic_store(&models->slots[id].n, model->n);
    atomic_store(&models->slots[id].k, model->k);
    count_slot(models, id);
    *out_id = id;
    *out_model = model;
    return DK_OK;
}

dk_status dk_shm_models_push(struct dk_shm_models *models, struct dk_model *model, uint32_t *out_id,
                             struct dk_error *error)
{
    uint32_t id;
    dk_status status = find_or_name(models, model->name, &id, error);
    if (status != DK_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&models->mutex);
    struct dk_model *old = models->slots[id].pushed;
    model->version = old != NULL ? old->version + 1 : 1;
    models->slots[id].pushed = model;
    atomic_store(&models->slots[id].n, model->n);
    atomic_store(&models->slots[id].k, model->k);
    (void)pthread_mutex_unlock(&models->mutex);
    dk_model_release(old);
    count_slot(models, id);
    atomic_fetch_add(&models->push_count, 1);
    *out_id = id;
    return DK_OK;
}

uint64_t dk_shm_models_pushed_bytes(struct dk_shm_models *models, const char *name)
{
    uint64_t bytes = 0;
    uint32_t count = atomic_load(&models->count);
    for (uint32_t i = 0; i < count; i++) {
        const struct dk_model *model = models->slots[i].pushed; /* only this thread changes it */
        if (model != NULL && (name == NULL || strcmp(model->name, name) == 0)) {
            bytes += dk_weights_bytes(model->weights);
        }
    }
    return bytes;
}

struct dk_model *dk_shm_models_get(struct dk_shm_models *models, uint32_t id, enum dk_ring_detail *out_detail)
{
    if (id >= atomic_load_explicit(&models->count, memory_order_acquire)) {
        *out_detail = DK_RING_DETAIL_MODEL_ID;
        return NULL;
    }
    struct slot *slot = &models->slots[id];
    if (slot->in_use == NULL) {
        slot->in_use = acquire(models, slot);
    }
    /* A model of another shape that came under the same name is not the one the client knows. */
    if (slot->in_use == NULL || slot->in_use->n != atomic_load(&slot->n) ||
        slot->in_use->k != atomic_load(&slot->k)) {
        *out_detail = DK_RING_DETAIL_MODEL_GONE;
        return NULL;
    }
    return slot->in_use;
}

void dk_shm_models_refresh(struct dk_shm_models *models)
{
    uint64_t generation = atomic_load_explicit(&models->push_count, memory_order_acquire);
    generation += models->registry != NULL ? dk_models_generation(models->registry) : 0;
    if (generation != models->seen_generation) {
        models->seen_generation = generation;
        dk_shm_models_drop(models);
    }
}

void dk_shm_models_drop(struct dk_shm_models *models)
{
    uint32_t count = atomic_load_explicit(&models->count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        dk_model_release(models->slots[i].in_use);
        models->slots[i].in_use = NULL;
    }
}
