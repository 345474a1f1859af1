/* models.h: named weights, reference-counted; a request keeps the version it started with while a reload
 * swaps in the next. The last release of an old version frees its weights, on the thread that releases. */
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
    const char *source_path, *tensor_name, *bias_name; /* bias_name NULL without bias */
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
/* Load all specs again and swap each that loads; one that does not keeps its old version serving, is logged,
 * and the first message is returned. A new version must have the n and k of the old one (clients and buffers
 * were sized by them) and fit the workspace of get_extent; dtype, bias and values may change. Counts
 * decomposek_reloads_total or decomposek_reload_failures_total itself. Takes memory for one model at a time
 * beside the serving ones. Thread: any, one reload at a time (others wait). */
dk_status dk_models_reload(struct dk_models *models, struct dk_error *error);

/* The serving version. NULL when unknown. Pair with dk_model_release. Thread: any, never waits for a load. */
struct dk_model *dk_models_acquire(struct dk_models *models, const char *name);
/* In order of the specs; NULL beyond the last. */
struct dk_model *dk_models_acquire_at(struct dk_models *models, size_t index);
/* Changes after each swap: a holder that sees a new value acquires anew. Thread: any; one load. */
uint64_t dk_models_generation(const struct dk_models *models);
size_t dk_models_count(const struct dk_models *models);
void dk_model_release(struct dk_model *model); /* NULL-safe */
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
