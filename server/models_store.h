/* models_store.h: the registry's insides, shared by models.c (who serves) and models_change.c (what changes
 * that). */
#ifndef DK_SERVER_MODELS_STORE_H
#define DK_SERVER_MODELS_STORE_H

#include <pthread.h>
#include <stdatomic.h>

#include "server/models.h"

struct dk_models_slot {
    char name[DK_MODEL_NAME_BYTES + 1]; /* "": the slot is free */
    const struct dk_model_spec *spec;   /* NULL: the model came over HTTP */
    struct dk_model *serving;           /* NULL: removed */
    uint64_t version;                   /* of the last that served */
    bool is_loading;
};

struct dk_models {
    struct dk_engine *engine;
    struct dk_metrics *metrics; /* may be NULL */
    uint64_t max_n, max_k;
    size_t workspace_bytes; /* of the models loaded at the start */
    struct dk_models_room room;
    _Atomic uint64_t generation; /* + 1 after each swap */
    pthread_mutex_t change;      /* one load, upload, removal or reload at a time */
    pthread_mutex_t swap; /* `slots`: held for pointers, names and counts, never while loading; who holds
                             `change` may read without it, for nobody else writes */
    size_t slot_count;    /* free ones among them included */
    struct dk_models_slot slots[DK_MAX_MODELS];
};

/* The largest over all buckets: a small bucket may be split more often than a large one. */
size_t dk_models_workspace_of(const struct dk_models *models, const struct dk_model *model);
/* Sets version and metrics of a model that is about to serve. */
void dk_models_prepare(const struct dk_models *models, struct dk_model *model, uint64_t version);
void dk_models_log_loaded(const struct dk_model *model);
void dk_models_publish_bytes(const struct dk_models *models);
/* Under `change` or `swap`. NULL when there is none. */
struct dk_models_slot *dk_models_find_slot(struct dk_models *models, const char *name);

#endif
