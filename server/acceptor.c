/* acceptor.c: accept4 until nothing is left or a limit is reached. */
#include "server/acceptor.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/http.h"
#include "server/http_connection.h"
#include "server/log.h"

enum {
    DESCRIPTORS_IN_USE_GUESS = 24,
    /* HTTP threads' epoll and event descriptors, weight files being loaded, a log, lingering sockets. */
    DESCRIPTORS_RESERVED = 12,
    ACCEPT_PER_EVENT = 64
};

static uint32_t descriptors_in_use(void)
{
    DIR *directory = opendir("/proc/self/fd");
    if (directory == NULL) {
        return DESCRIPTORS_IN_USE_GUESS;
    }
    uint32_t count = 0;
    while (readdir(directory) != NULL) {
        count++;
    }
    (void)closedir(directory);
    return count;
}

uint32_t dk_acceptor_connection_limit(uint32_t wanted)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return wanted;
    }
    if (limit.rlim_cur < limit.rlim_max) {
        struct rlimit raised = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &raised) == 0) {
            limit = raised;
        }
    }
    uint64_t needed = (uint64_t)descriptors_in_use() + DESCRIPTORS_RESERVED;
    uint64_t room = limit.rlim_cur > needed ? limit.rlim_cur - needed : 1;
    if (room >= (uint64_t)wanted + DK_LINGER_MAX) {
        return wanted;
    }
    uint64_t connections = room > 2 * DK_LINGER_MAX ? room - DK_LINGER_MAX : (room + 1) / 2;
    connections = connections < wanted ? connections : wanted;
    dk_log(DK_LOG_WARN, "connections_limited", "wanted=%u allowed=%llu descriptors=%llu", wanted,
           (unsigned long long)connections, (unsigned long long)limit.rlim_cur);
    return (uint32_t)connections;
}

static void pause_polling(struct dk_acceptor *acceptor)
{
    for (int i = 0; i < acceptor->socket_count; i++) {
        (void)uv_poll_stop(&acceptor->polls[i]);
    }
    acceptor->is_paused = true;
}

/* True when there may be more in the backlog. */
static bool accept_one(struct dk_acceptor *acceptor, int listener)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    int fd = accept4(listener, (struct sockaddr *)&address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        if (address.ss_family != AF_UNIX) {
            (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        }
        dk_http_add(acceptor->http, fd, (const struct sockaddr *)&address, length);
        return true;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        static struct dk_log_limit limiter;
        if (dk_log_allow(&limiter, 1)) {
            dk_log(DK_LOG_WARN, "accept_failed", "error=%s connections=%u", strerror(errno),
                   dk_http_connection_count(acceptor->http));
        }
        pause_polling(acceptor);
        return false;
    }
    return errno == ECONNABORTED || errno == EINTR; /* that client has gone: try the next */
}

static void accept_some(struct dk_acceptor *acceptor, int listener)
{
    for (int i = 0; i < ACCEPT_PER_EVENT; i++) {
        if (dk_http_connection_count(acceptor->http) >= acceptor->connections_max) {
            static struct dk_log_limit limiter;
            if (dk_log_allow(&limiter, 1)) {
                dk_log(DK_LOG_WARN, "connection_limit_reached", "connections=%u", acceptor->connections_max);
            }
            pause_polling(acceptor);
            return;
        }
        if (!accept_one(acceptor, listener)) {
            return;
        }
    }
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct dk_acceptor *acceptor = poll->data;
    (void)events;
    if (status == 0) {
        accept_some(acceptor, acceptor->sockets[poll - acceptor->polls]);
    }
}

static int start_polling(struct dk_acceptor *acceptor)
{
    acceptor->is_paused = false;
    for (int i = 0; i < acceptor->socket_count; i++) {
        int result = uv_poll_start(&acceptor->polls[i], UV_READABLE, on_readable);
        if (result != 0) {
            return result;
        }
    }
    return 0;
}

int dk_acceptor_init(struct dk_acceptor *acceptor, uv_loop_t *loop, struct dk_http *http, const int *sockets,
                     int socket_count, uint32_t connections_max)
{
    acceptor->http = http;
    acceptor->connections_max = connections_max;
    acceptor->socket_count = socket_count;
    for (int i = 0; i < socket_count; i++) {
        acceptor->sockets[i] = sockets[i];
        int result = uv_poll_init(loop, &acceptor->polls[i], sockets[i]);
        if (result != 0) {
            acceptor->socket_count = i;
            return result;
        }
        acceptor->polls[i].data = acceptor;
    }
    return start_polling(acceptor);
}

void dk_acceptor_tick(struct dk_acceptor *acceptor)
{
    if (acceptor->is_paused && dk_http_connection_count(acceptor->http) < acceptor->connections_max) {
        (void)start_polling(acceptor);
    }
}

void dk_acceptor_stop(struct dk_acceptor *acceptor)
{
    for (int i = 0; i < acceptor->socket_count; i++) {
        accept_some(acceptor, acceptor->sockets[i]);
        (void)uv_poll_stop(&acceptor->polls[i]);
    }
    acceptor->socket_count = 0;
    acceptor->is_paused = false;
}
