/* models_change.c: reloads, uploads, loads and removals: the swaps of serving versions. */
#include <stdio.h>
#include <string.h>

#include "server/log.h"
#include "server/metrics.h"
#include "server/model_load.h"
#include "server/models_store.h"

/* Let `next` (NULL: nobody) serve in the slot; what served there is released. Under `change`. */
static void swap_in(struct dk_models *models, struct dk_models_slot *slot, struct dk_model *next)
{
    pthread_mutex_lock(&models->swap);
    struct dk_model *old = slot->serving;
    slot->serving = next;
    if (next != NULL)
        slot->version = next->version;
    else if (slot->spec == NULL)
        *slot = (struct dk_models_slot){.name = ""};
    pthread_mutex_unlock(&models->swap);
    atomic_fetch_add(&models->generation, 1);
    dk_model_release(old);
}

static void set_loading(struct dk_models *models, struct dk_models_slot *slot, bool is_loading)
{
    pthread_mutex_lock(&models->swap);
    slot->is_loading = is_loading;
    pthread_mutex_unlock(&models->swap);
}

static size_t workspace_there_is(const struct dk_models *models)
{
    return models->room.workspace_bytes > 0 ? models->room.workspace_bytes : models->workspace_bytes;
}

/* --- reload ------------------------------------------------------------------------------------------------
 */

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
    size_t workspace = dk_models_workspace_of(models, next);
    if (workspace > workspace_there_is(models))
        return dk_fail(error, DK_TOO_LARGE,
                       "model '%s': %s: a workspace of %zu bytes is needed, %zu were allocated at start; "
                       "restart to load it",
                       old->name, next->source_path, workspace, workspace_there_is(models));
    return DK_OK;
}

static dk_status reload_one(struct dk_models *models, struct dk_models_slot *slot, struct dk_error *error)
{
    struct dk_model *next = NULL;
    dk_status status = dk_model_load(models->engine, slot->spec, -1, &next, error);
    if (status != DK_OK)
        return status;
    status = check_successor(models, slot->serving, next, error);
    if (status != DK_OK) {
        dk_model_free(next);
        return status;
    }
    dk_models_prepare(models, next, slot->version + 1);
    dk_models_log_loaded(next);
    swap_in(models, slot, next);
    return DK_OK;
}

dk_status dk_models_reload(struct dk_models *models, struct dk_error *error)
{
    dk_status first = DK_OK;
    pthread_mutex_lock(&models->change);
    for (size_t i = 0; i < models->slot_count; i++) {
        struct dk_models_slot *slot = &models->slots[i];
        struct dk_error inner = {0};
        if (slot->spec == NULL || slot->serving == NULL || slot->serving->is_upload)
            continue;
        dk_status status = reload_one(models, slot, &inner);
        if (status == DK_OK)
            continue;
        dk_log(DK_LOG_ERROR, "model_reload_failed", "name=%s reason=%s kept_version=%llu", slot->name,
               inner.message, (unsigned long long)slot->serving->version);
        if (first == DK_OK)
            first = dk_fail(error, status, "%s", inner.message);
    }
    dk_models_publish_bytes(models);
    pthread_mutex_unlock(&models->change);
    if (models->metrics != NULL)
        dk_metrics_add(models->metrics, first == DK_OK ? DK_METRIC_RELOADS : DK_METRIC_RELOAD_FAILURES, 1);
    return first;
}

/* --- one model ---------------------------------------------------------------------------------------------
 */

static dk_status check_room(const struct dk_models *models, const struct dk_model *model,
                            struct dk_error *error)
{
    size_t workspace = dk_models_workspace_of(models, model);
    if (workspace > workspace_there_is(models))
        return dk_fail(error, DK_TOO_LARGE,
                       "model '%s' [n %llu, k %llu]: a workspace of %zu bytes is needed, %zu were allocated "
                       "at start (--workspace-bytes)",
                       model->name, (unsigned long long)model->n, (unsigned long long)model->k, workspace,
                       workspace_there_is(models));
    /* Numbers of JSON stay binary64 until their type is known. */
    uint64_t row_in = model->k * sizeof(double), row_out = model->n * sizeof(float);
    uint64_t row = row_in > row_out ? row_in : row_out;
    if (models->room.buffer_bytes > 0 && row > models->room.buffer_bytes)
        return dk_fail(error, DK_TOO_LARGE,
                       "model '%s' [n %llu, k %llu]: one row needs %llu bytes, the largest request buffer "
                       "has %zu (--max-body-bytes)",
                       model->name, (unsigned long long)model->n, (unsigned long long)model->k,
                       (unsigned long long)row, models->room.buffer_bytes);
    return DK_OK;
}

/* Room for one more that serves. `slot`: where it would. */
static dk_status check_count(const struct dk_models *models, const struct dk_models_slot *slot,
                             const char *name, struct dk_error *error)
{
    size_t serving = dk_models_count(models);
    if ((slot != NULL && slot->serving != NULL) || serving < models->room.model_count)
        return DK_OK;
    return dk_fail(error, DK_TOO_LARGE, "model '%s': %zu models serve and %u may (--max-models); remove one",
                   name, serving, models->room.model_count);
}

/* A free slot for a new name; NULL when all are taken. Under `change`. */
static struct dk_models_slot *claim_slot(struct dk_models *models, const char *name)
{
    struct dk_models_slot *slot = dk_models_find_slot(models, ""); /* left behind by a removal */
    pthread_mutex_lock(&models->swap);
    if (slot == NULL && models->slot_count < DK_MAX_MODELS)
        slot = &models->slots[models->slot_count++];
    if (slot != NULL) {
        *slot = (struct dk_models_slot){.is_loading = false};
        (void)snprintf(slot->name, sizeof slot->name, "%s", name);
    }
    pthread_mutex_unlock(&models->swap);
    return slot;
}

static dk_status load_checked(struct dk_models *models, const struct dk_model_spec *spec, int fd,
                              struct dk_model **out, struct dk_error *error)
{
    struct dk_model *model = NULL;
    dk_status status = dk_model_load(models->engine, spec, fd, &model, error);
    if (status == DK_OK)
        status = check_room(models, model, error);
    if (status == DK_OK)
        *out = model;
    else
        dk_model_free(model);
    return status;
}

static void let_serve(struct dk_models *models, struct dk_models_slot *slot, struct dk_model *model,
                      struct dk_model **out)
{
    dk_models_prepare(models, model, slot->version + 1);
    dk_models_log_loaded(model);
    if (out != NULL) {
        model->reference_count++; /* nobody else knows it yet */
        *out = model;
    }
    swap_in(models, slot, model);
    dk_models_publish_bytes(models);
}

dk_status dk_models_put(struct dk_models *models, const struct dk_model_spec *spec, int fd,
                        struct dk_model **out, bool *is_new, struct dk_error *error)
{
    struct dk_model *model = NULL;
    pthread_mutex_lock(&models->change);
    struct dk_models_slot *slot = dk_models_find_slot(models, spec->name);
    bool was_serving = slot != NULL && slot->serving != NULL;
    dk_status status = check_count(models, slot, spec->name, error);
    if (status == DK_OK && slot != NULL)
        set_loading(models, slot, true);
    if (status == DK_OK)
        status = load_checked(models, spec, fd, &model, error);
    if (slot != NULL)
        set_loading(models, slot, false);
    if (status == DK_OK && slot == NULL) {
        slot = claim_slot(models, spec->name);
        if (slot == NULL) {
            dk_model_free(model);
            status = dk_fail(error, DK_TOO_LARGE,
                             "model '%s': all %d names are taken, removed models that can be loaded again "
                             "among them",
                             spec->name, (int)DK_MAX_MODELS);
        }
    }
    if (status == DK_OK) {
        let_serve(models, slot, model, out);
        if (is_new != NULL)
            *is_new = !was_serving;
    }
    pthread_mutex_unlock(&models->change);
    return status;
}

dk_status dk_models_load(struct dk_models *models, const char *name, struct dk_error *error)
{
    struct dk_model *model = NULL;
    dk_status status;
    pthread_mutex_lock(&models->change);
    struct dk_models_slot *slot = *name != '\0' ? dk_models_find_slot(models, name) : NULL;
    if (slot == NULL)
        status = dk_fail(error, DK_NOT_FOUND, "no model \"%s\"", name);
    else if (slot->spec == NULL)
        status =
            dk_fail(error, DK_BAD_VALUE, "model '%s' was uploaded: there is no file to load it from", name);
    else
        status = check_count(models, slot, name, error);
    if (status == DK_OK) {
        set_loading(models, slot, true);
        status = load_checked(models, slot->spec, -1, &model, error);
        set_loading(models, slot, false);
    }
    if (status == DK_OK)
        let_serve(models, slot, model, NULL);
    pthread_mutex_unlock(&models->change);
    return status;
}

dk_status dk_models_remove(struct dk_models *models, const char *name, struct dk_error *error)
{
    dk_status status = DK_OK;
    pthread_mutex_lock(&models->change);
    struct dk_models_slot *slot = *name != '\0' ? dk_models_find_slot(models, name) : NULL;
    if (slot == NULL) {
        status = dk_fail(error, DK_NOT_FOUND, "no model \"%s\"", name);
    } else if (slot->serving != NULL) {
        dk_log(DK_LOG_INFO, "model_removed", "name=%s version=%llu", name, (unsigned long long)slot->version);
        swap_in(models, slot, NULL);
        dk_models_publish_bytes(models);
    }
    pthread_mutex_unlock(&models->change);
    return status;
}
