/* shm_connect.c: the control socket of a ring session: connect, messages, descriptors, the mapping. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/shm_client.h"

/* --- waiting ------------------------------------------------------------------------------------------- */

/* False when the deadline passed. */
static bool wait_for(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now_ns = dk_client_now_ns();
        uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
        struct timespec timeout = {.tv_sec = (time_t)(left_ns / 1000000000),
                                   .tv_nsec = (long)(left_ns % 1000000000)};
        struct pollfd polled = {.fd = fd, .events = events};
        int ready = ppoll(&polled, 1, &timeout, NULL);
        if (ready != 0 && !(ready < 0 && errno == EINTR))
            return true;
        if (ready == 0 && left_ns == 0)
            return false;
    }
}

/* --- messages ------------------------------------------------------------------------------------------ */

dk_status dk_shm_send(struct dk_shm_session *session, const union dk_shm_packet *packet, size_t length,
                      uint64_t deadline_ns, struct dk_error *error)
{
    for (;;) {
        if (send(session->fd, packet, length, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
            return DK_OK;
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            return dk_fail(error, DK_UNAVAILABLE, "the daemon closed the session (%s)", strerror(errno));
        if (!wait_for(session->fd, POLLOUT, deadline_ns))
            return dk_fail(error, DK_TIMEOUT, "the daemon does not take a %s message in time",
                           dk_shm_kind_name(packet->message.kind));
    }
}

/* The descriptors of a control message: kept when there is room for them, else closed. */
static int take_descriptors(struct msghdr *header, int *fds, int capacity)
{
    int count = 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part; part = CMSG_NXTHDR(header, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        size_t found = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < found; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
            if (count < capacity)
                fds[count++] = fd;
            else
                close(fd);
        }
    }
    return count;
}

/* Up to two descriptors go to `fds`; an end of file gives *length 0. */
static dk_status receive(int socket_fd, uint64_t deadline_ns, union dk_shm_packet *out, size_t *length,
                         int fds[2], int *fd_count, struct dk_error *error)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
    for (;;) {
        if (!wait_for(socket_fd, POLLIN, deadline_ns))
            return dk_fail(error, DK_TIMEOUT, "no answer from the daemon in time");
        struct iovec part = {.iov_base = out, .iov_len = sizeof *out};
        struct msghdr header = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        ssize_t got = recvmsg(socket_fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_TRUNC);
        /* A reset comes once, when the daemon closed with something unread; what it said before is still
         * there. */
        if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK || errno == ECONNRESET))
            continue;
        if (got < 0)
            return dk_fail(error, DK_UNAVAILABLE, "the session's socket failed: %s", strerror(errno));
        *fd_count = take_descriptors(&header, fds, 2);
        *length = (size_t)got;
        return DK_OK;
    }
}

/* `fds` may be NULL: then descriptors are closed. */
static dk_status receive_checked(int socket_fd, uint64_t deadline_ns, union dk_shm_packet *out, int fds[2],
                                 int *fd_count, struct dk_error *error)
{
    size_t length = 0;
    int own[2], own_count = 0;
    dk_status status =
        receive(socket_fd, deadline_ns, out, &length, fds ? fds : own, fds ? fd_count : &own_count, error);
    if (status != DK_OK)
        return status;
    for (int i = 0; !fds && i < own_count; i++)
        close(own[i]);
    if (length == 0)
        return dk_fail(error, DK_UNAVAILABLE, "the daemon closed the session");
    struct dk_error reason;
    status = dk_shm_check(out, length, DK_SHM_SERVER, &reason);
    if (status == DK_UNSUPPORTED)
        return dk_fail(error, status, "the daemon speaks another protocol: %s", reason.message);
    if (status != DK_OK)
        return dk_fail(error, DK_UNAVAILABLE, "what answers is no decomposekd: %s", reason.message);
    return DK_OK;
}

dk_status dk_shm_receive(struct dk_shm_session *session, uint64_t deadline_ns, union dk_shm_packet *out,
                         struct dk_error *error)
{
    return receive_checked(session->fd, deadline_ns, out, NULL, NULL, error);
}

/* --- the handshake ------------------------------------------------------------------------------------- */

static dk_status connect_to(const char *path, uint64_t deadline_ns, int *out, struct dk_error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return dk_fail(error, DK_BAD_VALUE, "socket path '%s' is longer than %zu bytes", path,
                       sizeof address.sun_path - 1);
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return dk_fail(error, DK_NO_MEMORY, "no socket: %s", strerror(errno));
    uint64_t now_ns = dk_client_now_ns(), left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 1000;
    const struct timeval timeout = {.tv_sec = (time_t)(left_ns / 1000000000),
                                    .tv_usec = (suseconds_t)(left_ns % 1000000000 / 1000 + 1)};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout); /* a full backlog blocks connect */
    int code = 0;
    while (connect(fd, (const struct sockaddr *)&address, sizeof address) != 0 && (code = errno) == EINTR)
        code = 0;
    if (code == 0) {
        *out = fd;
        return DK_OK;
    }
    close(fd);
    if (code == EACCES || code == EPERM)
        return dk_fail(error, DK_FORBIDDEN, "no permission to connect to '%s': %s", path, strerror(code));
    if (code == EAGAIN || code == EINPROGRESS || code == ETIMEDOUT)
        return dk_fail(error, DK_TIMEOUT, "'%s' does not accept connections in time", path);
    if (code == EPROTOTYPE)
        return dk_fail(error, DK_UNSUPPORTED, "'%s' is a socket of another kind, not that of --shm-socket",
                       path);
    return dk_fail(error, DK_UNAVAILABLE, "cannot connect to '%s': %s (is decomposekd running?)", path,
                   strerror(code));
}

static dk_status fail_from(const struct dk_shm_failure *failure, struct dk_error *error)
{
    dk_status status = failure->status > DK_OK && failure->status < DK_STATUS_COUNT
                           ? (dk_status)failure->status
                           : DK_INTERNAL;
    return dk_fail(error, status, "the daemon refused the session: %s", failure->text);
}

/* Nothing of the memory is believed: its size (or reading it would be SIGBUS), its seal (or it could shrink
 * later), the doorbell's kind (or ringing it could raise SIGPIPE). */
static dk_status check_descriptors(const int fds[2], int count, const struct dk_ring_layout *layout,
                                   struct dk_error *error)
{
    struct stat memory, doorbell;
    if (count != 2 || fstat(fds[0], &memory) != 0 || fstat(fds[1], &doorbell) != 0)
        return dk_fail(error, DK_UNAVAILABLE, "the daemon sent %d descriptors, expected 2", count);
    int seals = fcntl(fds[0], F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || memory.st_size < 0 ||
        (uint64_t)memory.st_size < layout->mapping_bytes)
        return dk_fail(
            error, DK_UNAVAILABLE,
            "the daemon's memory has %lld bytes and seals %d, expected %llu and a seal against shrinking",
            (long long)memory.st_size, seals, (unsigned long long)layout->mapping_bytes);
    int flags = fcntl(fds[1], F_GETFL);
    if ((doorbell.st_mode & S_IFMT) != 0 || flags < 0 || fcntl(fds[1], F_SETFL, flags | O_NONBLOCK) != 0)
        return dk_fail(error, DK_UNAVAILABLE, "the daemon's doorbell is no eventfd");
    return DK_OK;
}

static dk_status check_welcome(const union dk_shm_packet *answer, const struct dk_ring_layout *wanted,
                               struct dk_error *error)
{
    if (answer->message.kind == DK_SHM_ERROR || answer->message.kind == DK_SHM_GOODBYE)
        return fail_from(&answer->failure, error);
    if (answer->message.kind != DK_SHM_WELCOME)
        return dk_fail(error, DK_UNAVAILABLE, "the daemon answered HELLO with %s",
                       dk_shm_kind_name(answer->message.kind));
    const struct dk_ring_layout *granted = &answer->welcome.layout;
    if (granted->entry_count != wanted->entry_count || granted->data_bytes != wanted->data_bytes ||
        granted->submission_offset != wanted->submission_offset ||
        granted->completion_offset != wanted->completion_offset ||
        granted->data_offset != wanted->data_offset || granted->mapping_bytes != wanted->mapping_bytes)
        return dk_fail(error, DK_UNSUPPORTED, "the daemon lays the ring out differently");
    return DK_OK;
}

static dk_status map(struct dk_shm_session *session, int memory_fd, struct dk_error *error)
{
    size_t bytes = session->layout.mapping_bytes;
    void *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
    if (mapping == MAP_FAILED)
        return dk_fail(error, DK_NO_MEMORY, "cannot map %zu bytes of the daemon's memory: %s", bytes,
                       strerror(errno));
    session->mapping = mapping;
    session->ring = dk_ring_at(mapping, &session->layout);
    if (madvise(mapping, bytes, MADV_DONTFORK) != 0) /* a child must not keep or touch it */
        return dk_fail(error, DK_INTERNAL, "madvise(MADV_DONTFORK): %s", strerror(errno));
    return dk_ring_check(mapping, &session->layout, error);
}

static dk_status shake_hands(struct dk_shm_session *session, uint64_t deadline_ns, struct dk_error *error)
{
    union dk_shm_packet packet;
    int fds[2] = {-1, -1}, fd_count = 0;
    size_t length = dk_shm_begin(&packet, DK_SHM_HELLO);
    packet.hello.ring_version = DK_RING_VERSION;
    packet.hello.header_bytes = sizeof(struct dk_ring_header);
    packet.hello.submission_bytes = sizeof(struct dk_ring_submission);
    packet.hello.completion_bytes = sizeof(struct dk_ring_completion);
    packet.hello.entry_count = session->layout.entry_count;
    packet.hello.data_bytes = session->layout.data_bytes;
    /* A daemon that refuses at once (its user, its load) may have closed before HELLO: its ERROR is still
     * there to be read, so the failure of this send is not the last word. */
    struct dk_error send_error;
    dk_status status = dk_shm_send(session, &packet, length, deadline_ns, &send_error);
    if (status == DK_TIMEOUT)
        return dk_fail(error, status, "%s", send_error.message);
    status = receive_checked(session->fd, deadline_ns, &packet, fds, &fd_count, error);
    if (status == DK_OK)
        status = check_welcome(&packet, &session->layout, error);
    if (status == DK_OK)
        status = check_descriptors(fds, fd_count, &session->layout, error);
    if (status == DK_OK) {
        session->doorbell_fd = fds[1];
        fds[1] = -1;
        status = map(session, fds[0], error);
    }
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    if (status != DK_OK)
        return status;
    length = dk_shm_begin(&packet, DK_SHM_MAPPED);
    status = dk_shm_send(session, &packet, length, deadline_ns, error);
    if (status == DK_OK)
        status = dk_shm_receive(session, deadline_ns, &packet, error);
    if (status != DK_OK)
        return status;
    if (packet.message.kind == DK_SHM_ERROR || packet.message.kind == DK_SHM_GOODBYE)
        return fail_from(&packet.failure, error);
    if (packet.message.kind != DK_SHM_STARTED)
        return dk_fail(error, DK_UNAVAILABLE, "the daemon answered MAPPED with %s",
                       dk_shm_kind_name(packet.message.kind));
    return DK_OK;
}

dk_status dk_shm_session_new(const char *path, uint32_t entry_count, uint64_t data_bytes,
                             uint64_t deadline_ns, struct dk_shm_session **out, struct dk_error *error)
{
    struct dk_shm_session *session = calloc(1, sizeof *session);
    if (!session)
        return dk_fail(error, DK_NO_MEMORY, "no memory for a session");
    session->fd = session->doorbell_fd = -1;
    dk_status status = dk_ring_layout_make(entry_count, data_bytes, &session->layout, error);
    if (status == DK_OK)
        status = dk_area_init(&session->area, session->layout.data_bytes, error);
    if (status == DK_OK) {
        session->places = calloc(entry_count, sizeof *session->places);
        if (!session->places)
            status = dk_fail(error, DK_NO_MEMORY, "no memory for %u requests in flight", entry_count);
    }
    if (status == DK_OK)
        status = connect_to(path, deadline_ns, &session->fd, error);
    if (status == DK_OK)
        status = shake_hands(session, deadline_ns, error);
    if (status != DK_OK) {
        dk_shm_session_free(session, true);
        return status;
    }
    *out = session;
    return DK_OK;
}

void dk_shm_session_end(struct dk_shm_session *session, bool is_owner)
{
    if (session->fd >= 0 && is_owner) {
        /* A courtesy: the daemon sees the end of file in any case. */
        union dk_shm_packet packet;
        size_t length = dk_shm_begin(&packet, DK_SHM_CLOSE);
        (void)send(session->fd, &packet, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    if (session->fd >= 0)
        close(session->fd);
    if (session->doorbell_fd >= 0)
        close(session->doorbell_fd);
    session->fd = session->doorbell_fd = -1;
}

void dk_shm_session_free(struct dk_shm_session *session, bool is_owner)
{
    if (!session)
        return;
    dk_shm_session_end(session, is_owner);
    if (session->mapping && is_owner)
        munmap(session->mapping, session->layout.mapping_bytes);
    dk_area_deinit(&session->area);
    free(session->places);
    free(session);
}
