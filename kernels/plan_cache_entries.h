/* plan_cache_entries.h: the cache's memory, shared by its text form (plan_cache.c) and its file
 * (plan_cache_file.c) only. */
#ifndef DK_KERNELS_PLAN_CACHE_ENTRIES_H
#define DK_KERNELS_PLAN_CACHE_ENTRIES_H

#include <stdio.h>

#include "kernels/plan_cache.h"

struct dk_plan_entry {
    struct dk_plan_key key;
    struct dk_plan_choice choice;
};

struct dk_plan_cache {
    char header[DK_PLAN_STAMP_TEXT_BYTES]; /* first lines of the file: a version and the stamp */
    size_t count, oldest;                  /* `oldest` is the next to be overwritten once all are taken */
    struct dk_plan_entry entries[DK_PLAN_CACHE_MAX_ENTRIES];
};

/* False when a byte did not get out. */
bool dk_plan_cache_write(const struct dk_plan_cache *cache, FILE *file);

#endif
