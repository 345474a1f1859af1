/* plan_cache.h: tuned plans in one small text file: stamped, replaced atomically, and never able to stop a
 * start.
 *
 * A file that is missing, empty, cut, foreign, a folder or unreadable, and a line that makes no sense, are
 * misses: they are reported as one warning and nothing else happens. What a line says is only a wish: the
 * caller looks it up among the candidates that the backend offers and ignores it when it is none of them. */
#ifndef DK_KERNELS_PLAN_CACHE_H
#define DK_KERNELS_PLAN_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "decomposek.h"

enum {
    DK_PLAN_CACHE_MAX_ENTRIES = 4096, /* beyond them the oldest is overwritten */
    DK_PLAN_CACHE_MAX_BYTES = 2 << 20,
    DK_PLAN_VARIANT_BYTES = 64, /* longest variant name and its end */
    DK_PLAN_STAMP_TEXT_BYTES = 640
};

/* Where plans were measured. Times of another device, driver, runtime or product are worth nothing here. */
struct dk_plan_stamp {
    char device[128], isa[32], driver[32], runtime[32], product[32];
};
/* Everything that the fastest plan depends on. */
struct dk_plan_key {
    uint64_t n, k;
    dk_dtype a_dtype, b_dtype, c_dtype;
    dk_layout layout;
    dk_epilogue epilogue;
    uint32_t bucket_rows;
    bool is_pdl, is_batch_invariant;
};
struct dk_plan_choice {
    char variant[DK_PLAN_VARIANT_BYTES];
    uint32_t split_k, chunk_k, tile_m, tile_n;
    bool is_dependent;
    uint64_t time_ns; /* what was measured, for people; 1 at least */
};
struct dk_plan_cache_report {
    size_t taken_count, ignored_count;
    char warning[DK_MESSAGE_BYTES]; /* "" when there is nothing to say; a missing file is nothing to say */
};

struct dk_plan_cache; /* not thread-safe */

/* The stamp of an engine: its device, driver, runtime, and this product's version. */
void dk_plan_stamp_make(const struct dk_engine_info *info, struct dk_plan_stamp *out);
/* `stamp` is borrowed until return. DK_NO_MEMORY. */
dk_status dk_plan_cache_new(const struct dk_plan_stamp *stamp, struct dk_plan_cache **out,
                            struct dk_error *error);
void dk_plan_cache_free(struct dk_plan_cache *cache); /* NULL-safe */
size_t dk_plan_cache_count(const struct dk_plan_cache *cache);

/* Add what the text or the file holds to the cache; a key that is there keeps its choice. */
void dk_plan_cache_parse(struct dk_plan_cache *cache, const char *text, size_t length,
                         struct dk_plan_cache_report *report);
void dk_plan_cache_load(struct dk_plan_cache *cache, const char *path, struct dk_plan_cache_report *report);

/* False, and *out untouched, when the key is unknown. */
bool dk_plan_cache_find(const struct dk_plan_cache *cache, const struct dk_plan_key *key,
                        struct dk_plan_choice *out);
/* Replaces the choice of a known key. */
void dk_plan_cache_put(struct dk_plan_cache *cache, const struct dk_plan_key *key,
                       const struct dk_plan_choice *choice);
/* Writes a temporary file beside `path`, syncs and renames it: readers and a crash see the old or the new
 * file, two writers leave one of theirs. Plans that another process saved meanwhile are taken along.
 * DK_IO_ERROR with the reason. */
dk_status dk_plan_cache_save(struct dk_plan_cache *cache, const char *path, struct dk_error *error);

#endif
