/* slab.h: preallocated memory for request and answer tensors, in three size classes, reused for ever. */
#ifndef DK_SERVER_SLAB_H
#define DK_SERVER_SLAB_H

#include <stddef.h>
#include <stdint.h>

#include "proto/status.h"

struct dk_metrics;

/* TINY holds one row of the largest model, SMALL config.small_slab_rows rows, LARGE a whole body. A body
 * starts in TINY and moves up as its bytes really arrive, so a client that sends slowly holds little. */
enum dk_slab_class { DK_SLAB_TINY, DK_SLAB_SMALL, DK_SLAB_LARGE, DK_SLAB_CLASS_COUNT };

enum { DK_SLAB_ALIGNMENT = 64 }; /* of the address and of bytes */

struct dk_slab {
    unsigned char *data; /* [bytes], aligned to DK_SLAB_ALIGNMENT; content undefined on acquire */
    size_t bytes;
    enum dk_slab_class class_index;
    struct dk_slab *next_free; /* private */
};

struct dk_slab_class_size {
    size_t bytes; /* rounded up to the alignment */
    uint32_t count;
};

struct dk_slabs;

/* Maps every class at once; pages become resident when first touched and stay. Class sizes must not decrease
 * (a smaller later class is raised to its predecessor). `metrics` may be NULL; else keeps it for the gauges.
 * DK_NO_MEMORY. */
dk_status dk_slabs_new(const struct dk_slab_class_size sizes[DK_SLAB_CLASS_COUNT], struct dk_metrics *metrics,
                       struct dk_slabs **out, struct dk_error *error);
void dk_slabs_free(struct dk_slabs *slabs); /* NULL-safe; every slab must have been released */
size_t dk_slabs_total_bytes(const struct dk_slabs *slabs);
size_t dk_slabs_tiny_bytes(const struct dk_slabs *slabs);
size_t dk_slabs_largest_bytes(const struct dk_slabs *slabs);

/* A slab of the smallest class with at least `bytes`; a class that is used up is not replaced by a larger one
 * (few large slabs must not go to many small requests). DK_BUSY: used up; DK_TOO_LARGE: no class is that big.
 * Thread: any. */
dk_status dk_slab_acquire(struct dk_slabs *slabs, size_t bytes, struct dk_slab **out, struct dk_error *error);
/* Make *slab hold `bytes`: acquires (when *slab is NULL or too small), copies the first `used_bytes`,
 * releases the old one. On failure *slab stays as it was. */
dk_status dk_slab_grow(struct dk_slabs *slabs, struct dk_slab **slab, size_t used_bytes, size_t bytes,
                       struct dk_error *error);
void dk_slab_release(struct dk_slabs *slabs, struct dk_slab *slab); /* NULL-safe */
uint32_t dk_slabs_used(struct dk_slabs *slabs, enum dk_slab_class class_index);

#endif
