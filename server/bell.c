/* bell.c: Dekker's pattern over one word, an eventfd, and epoll. */
#include "server/bell.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct dk_bell {
    int epoll_fd, own_fd;
    _Alignas(64) _Atomic bool is_sleeping;
};

dk_status dk_bell_new(struct dk_bell **out, struct dk_error *error)
{
    struct dk_bell *bell = aligned_alloc(64, sizeof *bell);
    if (bell == NULL) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for the executor's bell");
    }
    *bell = (struct dk_bell){.epoll_fd = epoll_create1(EPOLL_CLOEXEC),
                             .own_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    if (bell->epoll_fd < 0 || bell->own_fd < 0) {
        dk_status status = dk_fail(error, DK_IO_ERROR, "the executor's bell: %s", strerrordesc_np(errno));
        dk_bell_free(bell);
        return status;
    }
    dk_status status = dk_bell_watch(bell, bell->own_fd, error);
    if (status != DK_OK) {
        dk_bell_free(bell);
        return status;
    }
    *out = bell;
    return DK_OK;
}

void dk_bell_free(struct dk_bell *bell)
{
    if (bell == NULL) {
        return;
    }
    if (bell->own_fd >= 0) {
        (void)close(bell->own_fd);
    }
    if (bell->epoll_fd >= 0) {
        (void)close(bell->epoll_fd);
    }
    free(bell);
}

void dk_bell_ring(struct dk_bell *bell)
{
    if (atomic_load(&bell->is_sleeping) && atomic_exchange(&bell->is_sleeping, false)) {
        /* Cannot fail: a count of 2^64 - 1 wake-ups is out of reach. */
        (void)!write(bell->own_fd, &(uint64_t){1}, sizeof(uint64_t));
    }
}

void dk_bell_arm(struct dk_bell *bell)
{
    atomic_store(&bell->is_sleeping, true);
}

void dk_bell_disarm(struct dk_bell *bell)
{
    atomic_store_explicit(&bell->is_sleeping, false, memory_order_relaxed);
}

void dk_bell_sleep(struct dk_bell *bell)
{
    /* What rang does not matter: the caller looks everywhere. Edges beyond this many come at the next call.
     */
    struct epoll_event events[16];
    (void)epoll_wait(bell->epoll_fd, events, 16, -1);
    dk_bell_disarm(bell);
}

dk_status dk_bell_watch(struct dk_bell *bell, int fd, struct dk_error *error)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = fd};
    if (epoll_ctl(bell->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        return dk_fail(error, DK_IO_ERROR, "cannot watch a doorbell: %s", strerrordesc_np(errno));
    }
    return DK_OK;
}

void dk_bell_unwatch(struct dk_bell *bell, int fd)
{
    (void)epoll_ctl(bell->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}
