/* models.h: named weights, reference-counted; a request keeps the version it started with while a reload, an
 * upload or a removal goes on. The last release of an old version frees its weights, on the thread that
 * releases. */
#ifndef DK_SERVER_MODELS_H
#define DK_SERVER_MODELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/native_api.h"
#include "server/config.h"

struct dk_metrics;

/* One loaded version. Immutable once published. */
struct dk_model {
    char name[DK_MODEL_NAME_BYTES + 1];
    uint64_t n, k;
    dk_dtype dtype;
    dk_layout layout; /* as found in the file */
    dk_epilogue epilogue;
    bool has_bias;
    bool is_upload; /* came over HTTP: there is no file to load it from again */
    const char *source_path, *tensor_name, *bias_name; /* owned; NULL without bias, all NULL when pushed */
    struct dk_weights *weights;
    int metrics_shape;                /* handle of dk_metrics_shape() */
    int metrics_model;                /* handle of dk_metrics_model() */
    uint64_t version;                 /* 1, then + 1 by each reload */
    _Atomic uint32_t reference_count; /* private */
};

struct dk_models; /* thread-safe registry */

/* Load every spec. All or nothing: the first failure frees the rest and its message names model, file,
 * tensor, expected and found. `engine`, `metrics` (may be NULL) and `specs` with their strings are kept.
 * Fills the gauge of weights bytes, here and at each reload. Thread: the loading thread. */
dk_status dk_models_new(struct dk_engine *engine, struct dk_metrics *metrics,
                        const struct dk_model_spec *specs, size_t spec_count, struct dk_models **out,
                        struct dk_error *error);
void dk_models_free(struct dk_models *models); /* NULL-safe; every acquired model must have been released */
/* Load the specs again and swap each that loads; one that does not keeps its old version serving, is logged,
 * and the first message is returned. Models that were removed or replaced over HTTP are left alone. A new
 * version must have the n and k of the old one (clients and buffers were sized by them) and fit the workspace
 * of get_extent; dtype, bias and values may change. Counts decomposek_reloads_total or
 * decomposek_reload_failures_total itself. Takes memory for one model at a time beside the serving ones.
 * Thread: any, one change at a time (others wait). */
dk_status dk_models_reload(struct dk_models *models, struct dk_error *error);

/* What models that come later must fit. */
struct dk_models_room {
    size_t workspace_bytes; /* the executor's: for a full bucket of the model */
    size_t buffer_bytes;    /* the largest request buffer: for one row in, and one out */
    uint32_t model_count;   /* that serve at once */
};
/* Once, by the loading thread, when everything is allocated. Before: room for what was loaded, 256 models. */
void dk_models_set_room(struct dk_models *models, const struct dk_models_room *room);

/* Load a model from `fd` (borrowed; a safetensors file) and let it serve as spec->name, under a new name or
 * in place of the version that serves there, which may have another shape. `spec` is borrowed; its path is
 * only shown. *out (acquired) and *is_new may be NULL. DK_TOO_LARGE tells what is needed and what there is;
 * else as dk_models_new. After a failure everything is as before. Thread: any, one change at a time. */
dk_status dk_models_put(struct dk_models *models, const struct dk_model_spec *spec, int fd,
                        struct dk_model **out, bool *is_new, struct dk_error *error);
/* Load a configured model (again) from its file, whatever serves in its place. DK_NOT_FOUND: no such model;
 * DK_BAD_VALUE: it came over HTTP. */
dk_status dk_models_load(struct dk_models *models, const char *name, struct dk_error *error);
/* Stop serving: requests that have it keep it. An uploaded model is forgotten, a configured one can be loaded
 * again; removing one that does not serve does nothing. DK_NOT_FOUND. */
dk_status dk_models_remove(struct dk_models *models, const char *name, struct dk_error *error);

/* The serving version. NULL when unknown. Pair with dk_model_release. Thread: any, never waits for a load. */
struct dk_model *dk_models_acquire(struct dk_models *models, const char *name);
/* The next serving model, those of the specs first and in their order; NULL after the last. *cursor starts at
 * 0. What comes or goes meanwhile may or may not be met; all else is met once. */
struct dk_model *dk_models_next(struct dk_models *models, size_t *cursor);
/* Changes after each swap: a holder that sees a new value acquires anew. Thread: any; one load. */
uint64_t dk_models_generation(const struct dk_models *models);
size_t dk_models_count(const struct dk_models *models); /* serving now */
void dk_model_release(struct dk_model *model);          /* NULL-safe */
/* What there is under a name, serving or not. */
struct dk_models_entry {
    char name[DK_MODEL_NAME_BYTES + 1];
    bool is_serving, is_loading;
};
bool dk_models_next_entry(const struct dk_models *models, size_t *cursor, struct dk_models_entry *out);
/* Largest n, k and workspace over all models (0 without models). n, k and workspace are fixed by
 * dk_models_new (and dk_models_size_workspace); weights_bytes is what the serving versions hold now. */
struct dk_models_extent {
    uint64_t max_n, max_k;
    size_t workspace_bytes, weights_bytes;
};
struct dk_models_extent dk_models_get_extent(const struct dk_models *models);
/* Size the workspace anew after tuning changed plans; `for_candidates`: for any plan that a later tuning may
 * choose. Before any product: the loading thread. */
void dk_models_size_workspace(struct dk_models *models, bool for_candidates);

#endif
