/* tuned.c: from what the cache file wishes to plans that the backend really offers. */
#include "kernels/tuned.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/bucket.h"
#include "kernels/engine_private.h"

struct dk_tuned {
    pthread_mutex_t mutex; /* `cache` */
    struct dk_plan_cache *cache;
    char *path; /* NULL: nothing is read or written */
    bool is_pdl, is_batch_invariant, is_forced;
};

static dk_status open_cache(struct dk_tuned *tuned, const char *path, struct dk_engine_info *info,
                            struct dk_error *error)
{
    struct dk_plan_cache_report report;
    tuned->path = strdup(path);
    if (!tuned->path)
        return dk_fail(error, DK_NO_MEMORY, "no memory for the path of the plan cache");
    dk_plan_cache_load(tuned->cache, path, &report);
    info->cached_plan_count = (uint32_t)report.taken_count;
    (void)snprintf(info->plan_cache_warning, sizeof info->plan_cache_warning, "%.255s", report.warning);
    return DK_OK;
}

dk_status dk_tuned_new(const struct dk_engine_options *options, struct dk_engine_info *info,
                       struct dk_tuned **out, struct dk_error *error)
{
    struct dk_plan_stamp stamp;
    struct dk_tuned *tuned = calloc(1, sizeof *tuned);
    if (!tuned)
        return dk_fail(error, DK_NO_MEMORY, "no memory for tuned plans");
    tuned->is_pdl = options->use_dependent_launch;
    tuned->is_batch_invariant = options->is_batch_invariant;
    tuned->is_forced = options->force_variant != NULL;
    dk_plan_stamp_make(info, &stamp);
    dk_status status = dk_plan_cache_new(&stamp, &tuned->cache, error);
    if (status == DK_OK && options->plan_cache_path && !tuned->is_forced)
        status = open_cache(tuned, options->plan_cache_path, info, error);
    if (status != DK_OK) {
        dk_plan_cache_free(tuned->cache);
        free(tuned->path);
        free(tuned);
        return status;
    }
    (void)pthread_mutex_init(&tuned->mutex, NULL); /* default attributes: cannot fail on Linux */
    *out = tuned;
    return DK_OK;
}

void dk_tuned_free(struct dk_tuned *tuned)
{
    if (!tuned)
        return;
    (void)pthread_mutex_destroy(&tuned->mutex);
    dk_plan_cache_free(tuned->cache);
    free(tuned->path);
    free(tuned);
}

bool dk_tuned_is_on(const struct dk_tuned *tuned)
{
    return !tuned->is_forced;
}

void dk_tuned_key(const struct dk_tuned *tuned, const struct dk_weights *weights, uint32_t bucket_rows,
                  struct dk_plan_key *out)
{
    const struct dk_backend_weights *b = weights->backend_weights;
    *out = (struct dk_plan_key){
        .n = b->n,
        .k = b->k,
        .a_dtype = b->dtype,
        .b_dtype = b->dtype,
        .c_dtype = DK_FP32,
        .layout = weights->layout,
        .epilogue = DK_EPILOGUE_NONE,
        .bucket_rows = bucket_rows,
        .is_pdl = tuned->is_pdl,
        .is_batch_invariant = tuned->is_batch_invariant,
    };
}

static bool is_choice(const struct dk_plan *plan, const struct dk_plan_choice *choice)
{
    return strcmp(plan->variant, choice->variant) == 0 && plan->split_k == choice->split_k &&
           plan->chunk_k == choice->chunk_k && plan->tile_m == choice->tile_m &&
           plan->tile_n == choice->tile_n && plan->is_dependent == choice->is_dependent;
}

/* Whether the cache knows the key; the index is candidate_count when the backend does not offer its plan. */
static bool look_up(struct dk_tuned *tuned, const struct dk_plan_key *key, const struct dk_plan *candidates,
                    uint32_t candidate_count, uint32_t *out_index)
{
    struct dk_plan_choice choice;
    (void)pthread_mutex_lock(&tuned->mutex);
    bool is_known = dk_plan_cache_find(tuned->cache, key, &choice);
    (void)pthread_mutex_unlock(&tuned->mutex);
    uint32_t i = 0;
    while (is_known && i < candidate_count && !is_choice(&candidates[i], &choice))
        i++;
    *out_index = i;
    return is_known;
}

bool dk_tuned_find(struct dk_tuned *tuned, const struct dk_plan_key *key, const struct dk_plan *candidates,
                   uint32_t candidate_count, uint32_t *out_index)
{
    uint32_t index;
    if (!look_up(tuned, key, candidates, candidate_count, &index) || index == candidate_count)
        return false;
    *out_index = index;
    return true;
}

static void apply_bucket(struct dk_tuned *tuned, struct dk_weights *weights, uint32_t bucket,
                         const struct dk_plan *candidates, uint32_t candidate_count)
{
    struct dk_plan_key key;
    uint32_t index;
    dk_tuned_key(tuned, weights, dk_bucket_rows(bucket), &key);
    if (!look_up(tuned, &key, candidates, candidate_count, &index))
        return;
    if (index == candidate_count) {
        weights->unknown_mask |= UINT32_C(1) << bucket;
        return;
    }
    weights->backend_weights->plans[bucket] = candidates[index];
    weights->tuned_mask |= UINT32_C(1) << bucket;
}

void dk_tuned_apply(struct dk_tuned *tuned, struct dk_weights *weights)
{
    (void)pthread_mutex_lock(&tuned->mutex);
    bool is_empty = dk_plan_cache_count(tuned->cache) == 0;
    (void)pthread_mutex_unlock(&tuned->mutex);
    if (is_empty || tuned->is_forced)
        return;
    for (uint32_t i = 0; i < weights->engine->device->info.bucket_count; i++) {
        uint32_t count = dk_plan_candidates(weights, dk_bucket_rows(i), NULL, 0);
        struct dk_plan *candidates = calloc(count + 1, sizeof *candidates);
        if (!candidates)
            return; /* the built-in plans serve as well */
        (void)dk_plan_candidates(weights, dk_bucket_rows(i), candidates, count);
        apply_bucket(tuned, weights, i, candidates, count);
        free(candidates);
    }
}

void dk_tuned_put(struct dk_tuned *tuned, const struct dk_plan_key *key, const struct dk_plan *plan,
                  double time_ns)
{
    struct dk_plan_choice choice = {
        .split_k = plan->split_k,
        .chunk_k = plan->chunk_k,
        .tile_m = plan->tile_m,
        .tile_n = plan->tile_n,
        .is_dependent = plan->is_dependent,
        .time_ns = time_ns < 1.0 ? 1 : (uint64_t)time_ns,
    };
    if ((size_t)snprintf(choice.variant, sizeof choice.variant, "%s", plan->variant) >= sizeof choice.variant)
        return; /* such a name could not be read back */
    (void)pthread_mutex_lock(&tuned->mutex);
    dk_plan_cache_put(tuned->cache, key, &choice);
    (void)pthread_mutex_unlock(&tuned->mutex);
}

dk_status dk_tuned_save(struct dk_tuned *tuned, struct dk_error *error)
{
    if (!tuned->path)
        return DK_OK;
    (void)pthread_mutex_lock(&tuned->mutex);
    dk_status status = dk_plan_cache_save(tuned->cache, tuned->path, error);
    (void)pthread_mutex_unlock(&tuned->mutex);
    return status;
}
