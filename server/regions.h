/* regions.h: shared-memory objects of clients, registered by name, read and written with pread and pwrite.
 *
 * An object that is truncated later gives a short read, not a SIGBUS; nothing is mapped. A region stays open
 * until its last user releases it, so unregistering one in use is put off, and its name is free at once. */
#ifndef DK_SERVER_REGIONS_H
#define DK_SERVER_REGIONS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/native_api.h"
#include "proto/oip_region.h"
#include "proto/status.h"

struct dk_metrics;
struct dk_region;  /* one registration */
struct dk_regions; /* thread-safe; functions take a mutex, never across a system call on an object */

/* `folder` is where the objects lie, "/dev/shm" but in tests. `metrics` is kept and may be NULL.
 * DK_NO_MEMORY. */
dk_status dk_regions_new(const char *folder, uint32_t count_max, struct dk_metrics *metrics,
                         struct dk_regions **out, struct dk_error *error);
void dk_regions_free(struct dk_regions *regions); /* NULL-safe; all acquired ones must have been released */

/* Open object `wanted->object` (a plain file; a symbolic link is not followed) for reading and writing, and
 * call bytes [offset, offset + byte_size) of it `name`. DK_BAD_VALUE: no such object, not a plain file, no
 * permission, smaller than that, or the name is taken; DK_BUSY: count_max regions are there, or no descriptor
 * is left. */
dk_status dk_regions_register(struct dk_regions *regions, const char *name,
                              const struct dk_oip_system_region *wanted, struct dk_error *error);
/* An unknown name is fine. */
void dk_regions_unregister(struct dk_regions *regions, const char *name);
void dk_regions_unregister_all(struct dk_regions *regions);

/* The region called `name`, if `byte_size` bytes from `offset` lie inside it. DK_BAD_VALUE. Pair with
 * dk_region_release. */
dk_status dk_regions_acquire(struct dk_regions *regions, const char *name, uint64_t offset,
                             uint64_t byte_size, struct dk_region **out, struct dk_error *error);
void dk_region_release(struct dk_regions *regions, struct dk_region *region); /* NULL-safe */

/* Copy `length` bytes at `offset` of the region, which the caller has checked at _acquire. DK_BAD_VALUE: the
 * object has been made shorter, or there is no memory left to back it; then some bytes may have been copied.
 * Thread: any. */
dk_status dk_region_read(const struct dk_region *region, uint64_t offset, void *out, size_t length,
                         struct dk_error *error);
dk_status dk_region_write(const struct dk_region *region, uint64_t offset, const void *bytes, size_t length,
                          struct dk_error *error);

/* Copies of the registrations, in order of name: all, or the one called `name` (none when unknown). The
 * caller frees *out, which is NULL when there are none. */
struct dk_region_info {
    char name[DK_MODEL_NAME_BYTES + 1];
    char key[DK_OIP_MAX_KEY_BYTES + 1];
    uint64_t offset, byte_size;
};
dk_status dk_regions_list(struct dk_regions *regions, const char *name, struct dk_region_info **out,
                          size_t *count, struct dk_error *error);

#endif
