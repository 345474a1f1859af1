/* shm_socket.c: packets with descriptors on the handshake socket. */
#include "server/shm_private.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FDS_MAX = 2, DRAIN_MAX = 64 };

bool dk_shm_socket_send(int fd, const union dk_shm_packet *packet, const int *fds, int fd_count)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(FDS_MAX * sizeof(int))] = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)packet, .iov_len = packet->message.bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd_count > 0) {
        size_t bytes = (size_t)fd_count * sizeof(int);
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(bytes);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(header), fds, bytes);
    }
    return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)packet->message.bytes;
}

bool dk_shm_socket_send_failure(int fd, enum dk_shm_kind kind, dk_status status, const char *text)
{
    union dk_shm_packet packet;
    (void)dk_shm_begin(&packet, kind);
    packet.failure.status = (uint32_t)status;
    (void)snprintf(packet.failure.text, sizeof packet.failure.text, "%s", text);
    return dk_shm_socket_send(fd, &packet, NULL, 0);
}

void dk_shm_socket_close(int fd)
{
    char rest[16];
    /* A close with unread packets would reach the other end as ECONNRESET before our last packet. */
    (void)shutdown(fd, SHUT_RD);
    for (int i = 0; i < DRAIN_MAX && recv(fd, rest, sizeof rest, MSG_DONTWAIT) > 0; i++) {
    }
    (void)close(fd);
}
