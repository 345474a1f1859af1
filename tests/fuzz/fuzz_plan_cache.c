/* fuzz_plan_cache.c: any bytes as a plan cache. What is taken survives being written and read again. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/plan_cache_entries.h"

/* The library's, which is not linked. */
const char *dk_version(void)
{
    return "0";
}

static void require(int condition, const char *text)
{
    if (!condition) {
        fprintf(stderr, "violated: %s\n", text);
        abort();
    }
}
#define REQUIRE(condition) require(condition, #condition)

static struct dk_plan_cache *new_cache(void)
{
    static const struct dk_plan_stamp stamp = {"d", "i", "1", "2", "3"};
    struct dk_plan_cache *cache = NULL;
    REQUIRE(dk_plan_cache_new(&stamp, &cache, NULL) == DK_OK);
    return cache;
}

static void check_entries(const struct dk_plan_cache *cache)
{
    for (size_t i = 0; i < cache->count; i++) {
        const struct dk_plan_key *key = &cache->entries[i].key;
        const struct dk_plan_choice *choice = &cache->entries[i].choice;
        REQUIRE(key->n >= 1 && key->n <= DK_MAX_N && key->k >= 1 && key->k <= DK_MAX_K);
        REQUIRE(key->bucket_rows >= 1 && key->bucket_rows <= 65536);
        REQUIRE(choice->split_k >= 1 && choice->chunk_k >= 1 && choice->tile_m >= 1 && choice->tile_n >= 1);
        REQUIRE((uint64_t)choice->split_k * choice->chunk_k >= key->k);
        REQUIRE(memchr(choice->variant, '\0', sizeof choice->variant) && choice->variant[0] != '\0');
    }
}

/* The stamp is put in front, so that inputs reach the lines; the first byte says whether. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dk_plan_cache_report report, again;
    struct dk_plan_cache *cache = new_cache(), *copy = new_cache();
    size_t header = size > 0 && data[0] != 'x' ? strlen(cache->header) : 0;
    char *text = malloc(header + size + 1), *written = NULL;
    size_t written_length = 0;
    REQUIRE(text != NULL);
    memcpy(text, cache->header, header);
    memcpy(text + header, data, size);
    dk_plan_cache_parse(cache, text, header + size, &report);
    REQUIRE(report.taken_count == cache->count);
    REQUIRE(report.ignored_count == 0 || report.warning[0] != '\0');
    check_entries(cache);
    FILE *file = open_memstream(&written, &written_length);
    REQUIRE(file && dk_plan_cache_write(cache, file) && fclose(file) == 0);
    dk_plan_cache_parse(copy, written, written_length, &again);
    REQUIRE(again.taken_count == cache->count && again.warning[0] == '\0');
    free(written);
    free(text);
    dk_plan_cache_free(copy);
    dk_plan_cache_free(cache);
    return 0;
}
