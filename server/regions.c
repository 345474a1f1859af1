/* regions.c: a bounded table of open objects. */
#include "server/regions.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/metrics.h"

struct dk_region {
    struct dk_region_info info;
    int fd;
    uint32_t user_count; /* under the mutex; the table counts as one while the region is in it */
    struct dk_region *next_unused;
};

enum { SLOT_BYTES = sizeof(void *) }; /* of the table: it is pointers that move, not regions */

struct dk_regions {
    pthread_mutex_t mutex;
    struct dk_metrics *metrics;
    char *folder;
    uint32_t count, count_max;
    struct dk_region *table[]; /* [count], in order of name */
};

dk_status dk_regions_new(const char *folder, uint32_t count_max, struct dk_metrics *metrics,
                         struct dk_regions **out, struct dk_error *error)
{
    struct dk_regions *regions = calloc(1, sizeof *regions + count_max * SLOT_BYTES);
    char *copy = strdup(folder);
    if (regions == NULL || copy == NULL) {
        free(regions);
        free(copy);
        return dk_fail(error, DK_NO_MEMORY, "cannot allocate a table of %u shared-memory regions", count_max);
    }
    (void)pthread_mutex_init(&regions->mutex, NULL);
    regions->folder = copy;
    regions->metrics = metrics;
    regions->count_max = count_max;
    *out = regions;
    return DK_OK;
}

void dk_regions_free(struct dk_regions *regions)
{
    if (regions == NULL) {
        return;
    }
    dk_regions_unregister_all(regions);
    (void)pthread_mutex_destroy(&regions->mutex);
    free(regions->folder);
    free(regions);
}

static void region_free(struct dk_region *region)
{
    (void)close(region->fd);
    free(region);
}

/* Position of `name`, or where it would be inserted. Caller holds the mutex. */
static uint32_t find(const struct dk_regions *regions, const char *name, bool *is_found)
{
    uint32_t low = 0, high = regions->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = strcmp(regions->table[middle]->info.name, name);
        if (order == 0) {
            *is_found = true;
            return middle;
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *is_found = false;
    return low;
}

static void count_regions(struct dk_regions *regions)
{
    if (regions->metrics != NULL) {
        dk_metrics_set(regions->metrics, DK_METRIC_CLIENT_REGIONS, (int64_t)regions->count);
    }
}

static dk_status open_failed(const struct dk_oip_system_region *wanted, int code, struct dk_error *error)
{
    if (code == EMFILE || code == ENFILE) {
        return dk_fail(error, DK_BUSY, "no file descriptor is left for shared memory; try again");
    }
    const char *why = code == ENOENT                    ? "there is no such object"
                      : code == EACCES || code == EPERM ? "this server's user may not read and write it"
                      : code == ELOOP                   ? "it is a symbolic link"
                      : code == EISDIR || code == ENXIO ? "it is not a plain file"
                                                        : strerrordesc_np(code);
    return dk_fail(error, DK_BAD_VALUE, "shared memory \"%.128s\" cannot be opened: %s", wanted->key,
                   why != NULL ? why : "unknown error");
}

/* The object as a descriptor, its size checked. O_NONBLOCK: a FIFO must not wait for its other end. */
static dk_status open_object(const struct dk_regions *regions, const struct dk_oip_system_region *wanted,
                             int *out, struct dk_error *error)
{
    int folder = open(regions->folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) {
        return open_failed(wanted, errno, error);
    }
    int fd = openat(folder, wanted->object, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int code = errno;
    (void)close(folder);
    if (fd < 0) {
        return open_failed(wanted, code, error);
    }
    struct stat status;
    dk_status result = DK_OK;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        result = open_failed(wanted, EISDIR, error);
    } else if (wanted->byte_size == 0) {
        result = dk_fail(error, DK_BAD_VALUE, "a region of 0 bytes cannot be registered");
    } else if (wanted->byte_size > (uint64_t)status.st_size ||
               wanted->offset > (uint64_t)status.st_size - wanted->byte_size) {
        result =
            dk_fail(error, DK_BAD_VALUE,
                    "shared memory \"%.128s\" has %llu bytes, offset %llu and byte_size %llu reach beyond",
                    wanted->key, (unsigned long long)status.st_size, (unsigned long long)wanted->offset,
                    (unsigned long long)wanted->byte_size);
    }
    if (result != DK_OK) {
        (void)close(fd);
        return result;
    }
    *out = fd;
    return DK_OK;
}

/* Caller holds the mutex. */
static dk_status insert(struct dk_regions *regions, struct dk_region *region, struct dk_error *error)
{
    bool is_found;
    uint32_t index = find(regions, region->info.name, &is_found);
    if (is_found) {
        return dk_fail(error, DK_BAD_VALUE, "a region called \"%s\" is registered already",
                       region->info.name);
    }
    if (regions->count == regions->count_max) {
        return dk_fail(error, DK_BUSY, "%u regions are registered, the limit", regions->count_max);
    }
    memmove(&regions->table[index + 1], &regions->table[index], (regions->count - index) * SLOT_BYTES);
    regions->table[index] = region;
    regions->count++;
    count_regions(regions);
    return DK_OK;
}

dk_status dk_regions_register(struct dk_regions *regions, const char *name,
                              const struct dk_oip_system_region *wanted, struct dk_error *error)
{
    struct dk_region *region = calloc(1, sizeof *region);
    if (region == NULL) {
        return dk_fail(error, DK_NO_MEMORY, "out of memory for another region");
    }
    (void)snprintf(region->info.name, sizeof region->info.name, "%s", name);
    (void)snprintf(region->info.key, sizeof region->info.key, "%s", wanted->key);
    region->info.offset = wanted->offset;
    region->info.byte_size = wanted->byte_size;
    region->user_count = 1;
    dk_status status = open_object(regions, wanted, &region->fd, error);
    if (status != DK_OK) {
        free(region);
        return status;
    }
    (void)pthread_mutex_lock(&regions->mutex);
    status = insert(regions, region, error);
    (void)pthread_mutex_unlock(&regions->mutex);
    if (status != DK_OK) {
        region_free(region);
    }
    return status;
}

/* True when it was the last user: the caller frees, outside the mutex it holds now. */
static bool drop_user(struct dk_region *region)
{
    assert(region->user_count > 0);
    return --region->user_count == 0;
}

void dk_regions_unregister(struct dk_regions *regions, const char *name)
{
    (void)pthread_mutex_lock(&regions->mutex);
    bool is_found, is_unused = false;
    uint32_t index = find(regions, name, &is_found);
    struct dk_region *region = is_found ? regions->table[index] : NULL;
    if (is_found) {
        regions->count--;
        memmove(&regions->table[index], &regions->table[index + 1], (regions->count - index) * SLOT_BYTES);
        count_regions(regions);
        is_unused = drop_user(region);
    }
    (void)pthread_mutex_unlock(&regions->mutex);
    if (is_unused) {
        region_free(region);
    }
}

void dk_regions_unregister_all(struct dk_regions *regions)
{
    struct dk_region *unused = NULL;
    (void)pthread_mutex_lock(&regions->mutex);
    while (regions->count > 0) {
        struct dk_region *region = regions->table[--regions->count];
        if (drop_user(region)) {
            region->next_unused = unused;
            unused = region;
        }
    }
    count_regions(regions);
    (void)pthread_mutex_unlock(&regions->mutex);
    while (unused != NULL) {
        struct dk_region *region = unused;
        unused = region->next_unused;
        region_free(region);
    }
}

dk_status dk_regions_acquire(struct dk_regions *regions, const char *name, uint64_t offset,
                             uint64_t byte_size, struct dk_region **out, struct dk_error *error)
{
    (void)pthread_mutex_lock(&regions->mutex);
    bool is_found;
    uint32_t index = find(regions, name, &is_found);
    struct dk_region *region = is_found ? regions->table[index] : NULL;
    uint64_t size = is_found ? region->info.byte_size : 0; /* after the mutex the region may be gone */
    bool is_inside = is_found && byte_size <= size && offset <= size - byte_size;
    if (is_inside) {
        region->user_count++;
    }
    (void)pthread_mutex_unlock(&regions->mutex);
    if (!is_found) {
        return dk_fail(error, DK_BAD_VALUE, "unknown region \"%s\": register it first", name);
    }
    if (!is_inside) {
        return dk_fail(error, DK_BAD_VALUE,
                       "region \"%s\" has %llu bytes; %llu from offset %llu reach beyond", name,
                       (unsigned long long)size, (unsigned long long)byte_size, (unsigned long long)offset);
    }
    *out = region;
    return DK_OK;
}

void dk_region_release(struct dk_regions *regions, struct dk_region *region)
{
    if (region == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&regions->mutex);
    bool is_unused = drop_user(region);
    (void)pthread_mutex_unlock(&regions->mutex);
    if (is_unused) {
        region_free(region);
    }
}

static dk_status copy_failed(const struct dk_region *region, const char *what, int code,
                             struct dk_error *error)
{
    return dk_fail(error, DK_BAD_VALUE, "region \"%s\" cannot be %s: %s", region->info.name, what,
                   code == 0        ? "its object has been made shorter"
                   : code == ENOSPC ? "no space is left behind its object"
                                    : strerrordesc_np(code));
}

dk_status dk_region_read(const struct dk_region *region, uint64_t offset, void *out, size_t length,
                         struct dk_error *error)
{
    assert(length <= region->info.byte_size && offset <= region->info.byte_size - length);
    unsigned char *end = out;
    off_t position = (off_t)(region->info.offset + offset);
    while (length > 0) {
        ssize_t copied = pread(region->fd, end, length, position);
        if (copied < 0 && errno == EINTR) {
            continue;
        }
        if (copied <= 0) {
            return copy_failed(region, "read", copied < 0 ? errno : 0, error);
        }
        end += copied;
        position += copied;
        length -= (size_t)copied;
    }
    return DK_OK;
}

dk_status dk_region_write(const struct dk_region *region, uint64_t offset, const void *bytes, size_t length,
                          struct dk_error *error)
{
    assert(length <= region->info.byte_size && offset <= region->info.byte_size - length);
    const unsigned char *next = bytes;
    off_t position = (off_t)(region->info.offset + offset);
    /* Writing would make a shortened object longer again behind its owner's back. */
    struct stat status;
    if (fstat(region->fd, &status) != 0 || (uint64_t)status.st_size < (uint64_t)position + length) {
        return copy_failed(region, "written", 0, error);
    }
    while (length > 0) {
        ssize_t copied = pwrite(region->fd, next, length, position);
        if (copied < 0 && errno == EINTR) {
            continue;
        }
        if (copied <= 0) {
            return copy_failed(region, "written", copied < 0 ? errno : 0, error);
        }
        next += copied;
        position += copied;
        length -= (size_t)copied;
    }
    return DK_OK;
}

dk_status dk_regions_list(struct dk_regions *regions, const char *name, struct dk_region_info **out,
                          size_t *count, struct dk_error *error)
{
    dk_status status = DK_OK;
    struct dk_region_info *list = NULL;
    (void)pthread_mutex_lock(&regions->mutex);
    uint32_t first = 0, found = regions->count;
    if (name != NULL) {
        bool is_found;
        first = find(regions, name, &is_found);
        found = is_found ? 1 : 0;
    }
    if (found > 0) {
        list = malloc(found * sizeof *list);
        status = list == NULL ? dk_fail(error, DK_NO_MEMORY, "out of memory for a list of regions") : DK_OK;
    }
    for (uint32_t i = 0; list != NULL && i < found; i++) {
        list[i] = regions->table[first + i]->info;
    }
    (void)pthread_mutex_unlock(&regions->mutex);
    if (status == DK_OK) {
        *out = list;
        *count = found;
    }
    return status;
}
