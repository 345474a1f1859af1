/* slab.c: three free lists over three anonymous mappings. */
#include "server/slab.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "proto/gemm.h"
#include "server/metrics.h"

struct dk_slab_pool {
    pthread_mutex_t mutex; /* held for a pointer swap only */
    unsigned char *mapping;
    size_t mapping_bytes;
    struct dk_slab *slabs;
    struct dk_slab *free_head; /* last in, first out: the warm pages are used again */
    size_t slab_bytes;
    uint32_t count, used;
};

struct dk_slabs {
    struct dk_metrics *metrics;
    struct dk_slab_pool pools[DK_SLAB_CLASS_COUNT];
};

static void pool_deinit(struct dk_slab_pool *pool)
{
    if (pool->mapping != NULL) {
        (void)munmap(pool->mapping, pool->mapping_bytes);
    }
    free(pool->slabs);
    (void)pthread_mutex_destroy(&pool->mutex);
}

static dk_status pool_init(struct dk_slab_pool *pool, enum dk_slab_class class_index, size_t slab_bytes,
                           uint32_t count, struct dk_error *error)
{
    (void)pthread_mutex_init(&pool->mutex, NULL);
    pool->slab_bytes = slab_bytes;
    pool->count = count;
    if (count == 0) {
        return DK_OK;
    }
    if (!dk_size_mul(slab_bytes, count, &pool->mapping_bytes)) {
        return dk_fail(error, DK_NO_MEMORY, "%u slabs of %zu bytes do not fit the address space", count,
                       slab_bytes);
    }
    pool->slabs = calloc(count, sizeof *pool->slabs);
    /* NORESERVE: the pool is address space until touched; what is resident is what traffic has needed. */
    void *mapping = mmap(NULL, pool->mapping_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pool->slabs == NULL || mapping == MAP_FAILED) {
        return dk_fail(error, DK_NO_MEMORY, "cannot map %u slabs of %zu bytes", count, slab_bytes);
    }
    pool->mapping = mapping;
    for (uint32_t i = count; i-- > 0;) {
        struct dk_slab *slab = &pool->slabs[i];
        slab->data = pool->mapping + (size_t)i * slab_bytes;
        slab->bytes = slab_bytes;
        slab->class_index = class_index;
        slab->next_free = pool->free_head;
        pool->free_head = slab;
    }
    return DK_OK;
}

dk_status dk_slabs_new(const struct dk_slab_class_size sizes[DK_SLAB_CLASS_COUNT], struct dk_metrics *metrics,
                       struct dk_slabs **out, struct dk_error *error)
{
    struct dk_slabs *slabs = calloc(1, sizeof *slabs);
    if (slabs == NULL) {
        return dk_fail(error, DK_NO_MEMORY, "cannot allocate the slab pools");
    }
    slabs->metrics = metrics;
    dk_status status = DK_OK;
    size_t at_least = DK_SLAB_ALIGNMENT;
    for (int i = 0; i < DK_SLAB_CLASS_COUNT; i++) {
        size_t bytes = sizes[i].bytes;
        if (!dk_size_add(bytes, DK_SLAB_ALIGNMENT - 1, &bytes)) {
            bytes = SIZE_MAX;
        }
        bytes &= ~(size_t)(DK_SLAB_ALIGNMENT - 1);
        at_least = bytes < at_least ? at_least : bytes;
        if (status == DK_OK) {
            status = pool_init(&slabs->pools[i], (enum dk_slab_class)i, at_least, sizes[i].count, error);
        } else {
            (void)pthread_mutex_init(&slabs->pools[i].mutex, NULL); /* so that free can undo all alike */
        }
    }
    if (status != DK_OK) {
        dk_slabs_free(slabs);
        return status;
    }
    if (metrics != NULL) {
        dk_metrics_set(metrics, DK_METRIC_STAGING_BYTES, (int64_t)dk_slabs_total_bytes(slabs));
    }
    *out = slabs;
    return DK_OK;
}

void dk_slabs_free(struct dk_slabs *slabs)
{
    if (slabs == NULL) {
        return;
    }
    for (int i = 0; i < DK_SLAB_CLASS_COUNT; i++) {
        assert(slabs->pools[i].used == 0);
        pool_deinit(&slabs->pools[i]);
    }
    free(slabs);
}

size_t dk_slabs_total_bytes(const struct dk_slabs *slabs)
{
    size_t total = 0;
    for (int i = 0; i < DK_SLAB_CLASS_COUNT; i++) {
        total += slabs->pools[i].mapping_bytes;
    }
    return total;
}

size_t dk_slabs_tiny_bytes(const struct dk_slabs *slabs)
{
    return slabs->pools[DK_SLAB_TINY].slab_bytes;
}

size_t dk_slabs_largest_bytes(const struct dk_slabs *slabs)
{
    size_t largest = 0;
    for (int i = 0; i < DK_SLAB_CLASS_COUNT; i++) {
        largest = slabs->pools[i].count > 0 ? slabs->pools[i].slab_bytes : largest;
    }
    return largest;
}

static void count_used(struct dk_slabs *slabs, enum dk_slab_class class_index, int delta)
{
    if (slabs->metrics == NULL || class_index == DK_SLAB_TINY) {
        return; /* tiny slabs are as many as requests in flight: that gauge tells */
    }
    dk_metrics_add(slabs->metrics,
                   class_index == DK_SLAB_LARGE ? DK_METRIC_SLABS_LARGE_USED : DK_METRIC_SLABS_SMALL_USED,
                   delta);
}

dk_status dk_slab_acquire(struct dk_slabs *slabs, size_t bytes, struct dk_slab **out, struct dk_error *error)
{
    static const char *const class_names[DK_SLAB_CLASS_COUNT] = {"tiny", "small", "large"};
    for (int i = 0; i < DK_SLAB_CLASS_COUNT; i++) {
        struct dk_slab_pool *pool = &slabs->pools[i];
        if (pool->slab_bytes < bytes || pool->count == 0) {
            continue;
        }
        (void)pthread_mutex_lock(&pool->mutex);
        struct dk_slab *slab = pool->free_head;
        if (slab != NULL) {
            pool->free_head = slab->next_free;
            pool->used++;
        }
        (void)pthread_mutex_unlock(&pool->mutex);
        if (slab == NULL) {
            return dk_fail(error, DK_BUSY, "all %u %s request buffers of %zu bytes are in use; try again",
                           pool->count, class_names[i], pool->slab_bytes);
        }
        slab->next_free = NULL;
        count_used(slabs, slab->class_index, 1);
        *out = slab;
        return DK_OK;
    }
    return dk_fail(error, DK_TOO_LARGE, "a tensor needs %zu bytes; the largest request buffer has %zu", bytes,
                   dk_slabs_largest_bytes(slabs));
}

dk_status dk_slab_grow(struct dk_slabs *slabs, struct dk_slab **slab, size_t used_bytes, size_t bytes,
                       struct dk_error *error)
{
    if (*slab != NULL && (*slab)->bytes >= bytes) {
        return DK_OK;
    }
    struct dk_slab *larger = NULL;
    dk_status status = dk_slab_acquire(slabs, bytes, &larger, error);
    if (status != DK_OK) {
        return status;
    }
    if (*slab != NULL) {
        assert(used_bytes <= (*slab)->bytes);
        memcpy(larger->data, (*slab)->data, used_bytes);
        dk_slab_release(slabs, *slab);
    }
    *slab = larger;
    return DK_OK;
}

void dk_slab_release(struct dk_slabs *slabs, struct dk_slab *slab)
{
    if (slab == NULL) {
        return;
    }
    struct dk_slab_pool *pool = &slabs->pools[slab->class_index];
    count_used(slabs, slab->class_index, -1);
    (void)pthread_mutex_lock(&pool->mutex);
    assert(slab->next_free == NULL && pool->used > 0);
    slab->next_free = pool->free_head;
    pool->free_head = slab;
    pool->used--;
    (void)pthread_mutex_unlock(&pool->mutex);
}

uint32_t dk_slabs_used(struct dk_slabs *slabs, enum dk_slab_class class_index)
{
    struct dk_slab_pool *pool = &slabs->pools[class_index];
    (void)pthread_mutex_lock(&pool->mutex);
    uint32_t used = pool->used;
    (void)pthread_mutex_unlock(&pool->mutex);
    return used;
}
