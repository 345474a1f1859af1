/* area.h: who uses which piece of a data area: a buddy allocator over offsets that never looks at the memory.
 */
#ifndef DK_CLIENT_AREA_H
#define DK_CLIENT_AREA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/status.h"

enum { DK_AREA_ORDERS = 40 };

/* The bookkeeping is private memory: nothing in the shared area is trusted or even read. Not thread-safe. */
struct dk_area {
    size_t unit_bytes; /* smallest block, a power of two >= 256 */
    uint32_t unit_count;
    struct dk_area_unit *units;
    uint32_t heads[DK_AREA_ORDERS]; /* first free block of each order */
};

/* An area of `bytes` (a rest below the smallest block is not used). DK_NO_MEMORY, DK_BAD_VALUE. */
dk_status dk_area_init(struct dk_area *area, size_t bytes, struct dk_error *error);
void dk_area_deinit(struct dk_area *area);

/* A block of at least `bytes` >= 1, its size a power of two and its offset a multiple of that. False when
 * none is free. */
bool dk_area_take(struct dk_area *area, size_t bytes, size_t *out_offset);
/* Ends the taker's use. The block is free again when its last user (dk_area_use) is gone too. */
void dk_area_give(struct dk_area *area, size_t offset);

/* The taken block that holds all of [offset, offset + bytes), as its own offset; false when there is none. */
bool dk_area_find(const struct dk_area *area, size_t offset, size_t bytes, size_t *out_offset);
/* Keep a taken block from being handed out again, until as many unuse. */
void dk_area_use(struct dk_area *area, size_t offset);
void dk_area_unuse(struct dk_area *area, size_t offset);

/* True when `offset` is that of a block which its taker has not given back. */
bool dk_area_is_taken(const struct dk_area *area, size_t offset);
/* The largest block that is free now, and that would be free with no block taken. */
size_t dk_area_largest_free(const struct dk_area *area);
size_t dk_area_largest(const struct dk_area *area);

#endif
