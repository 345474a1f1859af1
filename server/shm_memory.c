/* shm_memory.c: memfd, reservation, two steps of seals. */
#include "server/shm_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static dk_status fail_memory(struct dk_error *error, const char *step, uint64_t bytes)
{
    int code = errno;
    return dk_fail(error, code == EINVAL ? DK_UNSUPPORTED : DK_NO_MEMORY,
                   "cannot %s %llu bytes of shared memory: %s (%s)", step, (unsigned long long)bytes,
                   strerrordesc_np(code), strerrorname_np(code));
}

static int create(void)
{
    int fd = memfd_create("decomposek-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) { /* before Linux 6.3 */
        fd = memfd_create("decomposek-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    }
    return fd;
}

/* Takes every page now: a page that is missing later would be SIGBUS in the middle of a product. */
static int reserve(int fd, uint64_t bytes)
{
    int result;
    do {
        result = fallocate(fd, 0, 0, (off_t)bytes);
    } while (result != 0 && errno == EINTR);
    return result;
}

dk_status dk_shm_memory_new(const struct dk_ring_layout *layout, struct dk_shm_memory *out,
                            struct dk_error *error)
{
    uint64_t bytes = layout->mapping_bytes;
    struct dk_shm_memory memory = {.fd = create(), .bytes = bytes};
    dk_status status = DK_OK;
    if (memory.fd < 0) {
        status = fail_memory(error, "create", bytes);
    } else if (ftruncate(memory.fd, (off_t)bytes) != 0 || reserve(memory.fd, bytes) != 0) {
        status = fail_memory(error, "reserve", bytes);
    } else if (fcntl(memory.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        status = fail_memory(error, "seal", bytes);
    } else {
        memory.mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd, 0);
        if (memory.mapping == MAP_FAILED) {
            memory.mapping = NULL;
            status = fail_memory(error, "map", bytes);
        }
    }
    if (status != DK_OK) {
        dk_shm_memory_free(&memory);
        return status;
    }
    dk_ring_format(memory.mapping, layout);
    *out = memory;
    return DK_OK;
}

dk_status dk_shm_memory_seal(struct dk_shm_memory *memory, struct dk_error *error)
{
    if (fcntl(memory->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
        return fail_memory(error, "seal", memory->bytes);
    }
    if (reserve(memory->fd, memory->bytes) != 0) {
        return fail_memory(error, "reserve", memory->bytes);
    }
    /* Our own page table entries, so that no request pays for them; a kernel before 5.14 fills them later. */
    if (madvise(memory->mapping, memory->bytes, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
        return fail_memory(error, "map", memory->bytes);
    }
    return DK_OK;
}

void dk_shm_memory_free(struct dk_shm_memory *memory)
{
    if (memory == NULL) {
        return;
    }
    if (memory->mapping != NULL) {
        (void)munmap(memory->mapping, memory->bytes);
    }
    if (memory->bytes != 0 && memory->fd >= 0) {
        (void)close(memory->fd);
    }
    *memory = (struct dk_shm_memory){.fd = -1};
}
