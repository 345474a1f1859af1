/* tuned.h: an engine's plan cache: read at the start, asked for each new B, written after tuning. */
#ifndef DK_KERNELS_TUNED_H
#define DK_KERNELS_TUNED_H

#include "kernels/plan_cache.h"

struct dk_tuned; /* thread-safe */

/* Reads options->plan_cache_path, if any; what is odd in it goes to info->plan_cache_warning and is a miss.
 * With force_variant the cache is left alone. `options` is borrowed until return. DK_NO_MEMORY. */
dk_status dk_tuned_new(const struct dk_engine_options *options, struct dk_engine_info *info,
                       struct dk_tuned **out, struct dk_error *error);
void dk_tuned_free(struct dk_tuned *tuned); /* NULL-safe */

/* Give each bucket of new weights the plan that the cache names, where the backend offers it. */
void dk_tuned_apply(struct dk_tuned *tuned, struct dk_weights *weights);
/* The key of a bucket: A of the weights' type, C fp32, no epilogue (the class that is measured). */
void dk_tuned_key(const struct dk_tuned *tuned, const struct dk_weights *weights, uint32_t bucket_rows,
                  struct dk_plan_key *out);
/* True when the cache names a plan for the key and `candidates` holds it; its index then. */
bool dk_tuned_find(struct dk_tuned *tuned, const struct dk_plan_key *key, const struct dk_plan *candidates,
                   uint32_t candidate_count, uint32_t *out_index);
void dk_tuned_put(struct dk_tuned *tuned, const struct dk_plan_key *key, const struct dk_plan *plan,
                  double time_ns);
/* DK_OK without a path. */
dk_status dk_tuned_save(struct dk_tuned *tuned, struct dk_error *error);
/* False when a variant is forced: then there is nothing to choose. */
bool dk_tuned_is_on(const struct dk_tuned *tuned);

#endif
