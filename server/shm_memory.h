/* shm_memory.h: the memory of one session: a sealed memfd, so that nothing a client does to it can fault the
 * daemon. */
#ifndef DK_SERVER_SHM_MEMORY_H
#define DK_SERVER_SHM_MEMORY_H

#include <stdint.h>

#include "proto/ring.h"

struct dk_shm_memory {
    int fd; /* goes to the client; -1: none */
    void *mapping;
    uint64_t bytes;
};

/* Memory of layout->mapping_bytes with the ring's header, all of it reserved (a later touch cannot fail), its
 * size sealed. DK_NO_MEMORY with the bytes that were wanted; DK_UNSUPPORTED: this kernel has no sealed
 * memory. Takes as long as the kernel needs for the pages. Thread: any. */
dk_status dk_shm_memory_new(const struct dk_ring_layout *layout, struct dk_shm_memory *out,
                            struct dk_error *error);
/* After the client has mapped it: nobody can map it for writing any more, nor punch holes, nor add seals;
 * holes punched before are filled. Until then the daemon must not touch it again. Errors as above. Thread:
 * any. */
dk_status dk_shm_memory_seal(struct dk_shm_memory *memory, struct dk_error *error);
void dk_shm_memory_free(struct dk_shm_memory *memory); /* NULL-safe, and of a zeroed or freed one */

#endif
