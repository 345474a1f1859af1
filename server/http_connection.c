/* http_connection.c: the list of connections and the sweep over it. */
#include "server/http_connection.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/clock.h"
#include "server/config.h"
#include "server/http_reply.h"
#include "server/log.h"

enum { PHASE_BITS = 3, PHASE_MASK = 7, POLL_BATCH = 256 };

static uint64_t now_ms(void)
{
    return dk_clock_now_ns() / 1000000u;
}

void dk_http_connections_init(struct dk_http_connections *connections)
{
    memset(connections, 0, sizeof *connections);
    (void)pthread_mutex_init(&connections->mutex, NULL);
}

void dk_http_connections_deinit(struct dk_http_connections *connections)
{
    for (uint32_t i = 0; i < connections->linger_count; i++) {
        (void)close(connections->lingers[i].fd);
    }
    (void)pthread_mutex_destroy(&connections->mutex);
}

struct dk_http_connection *dk_http_connection_open(struct dk_http_connections *connections, int fd)
{
    struct dk_http_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL) {
        return NULL;
    }
    connection->fd = fd;
    atomic_init(&connection->phase_and_ms, now_ms() << PHASE_BITS | DK_PHASE_HEAD);
    (void)pthread_mutex_lock(&connections->mutex);
    connection->next = connections->head;
    if (connection->next != NULL) {
        connection->next->previous = connection;
    }
    connections->head = connection;
    (void)pthread_mutex_unlock(&connections->mutex);
    return connection;
}

void dk_http_connection_close(struct dk_http_connections *connections, struct dk_http_connection *connection)
{
    (void)pthread_mutex_lock(&connections->mutex);
    if (connection->previous != NULL) {
        connection->previous->next = connection->next;
    } else {
        connections->head = connection->next;
    }
    if (connection->next != NULL) {
        connection->next->previous = connection->previous;
    }
    (void)pthread_mutex_unlock(&connections->mutex);
    free(connection);
}

bool dk_http_connection_enter(struct dk_http_connection *connection, enum dk_http_phase phase)
{
    uint64_t next = now_ms() << PHASE_BITS | phase;
    uint64_t current = atomic_load(&connection->phase_and_ms);
    do {
        if ((current & PHASE_MASK) == DK_PHASE_EXPIRED) {
            return false;
        }
    } while (!atomic_compare_exchange_weak(&connection->phase_and_ms, &current, next));
    return true;
}

/* Caller holds the mutex. */
static void linger_locked(struct dk_http_connections *connections, int fd)
{
    if (connections->linger_count == DK_LINGER_MAX) {
        return;
    }
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy >= 0) {
        connections->lingers[connections->linger_count++] =
            (struct dk_http_linger){.fd = copy, .until_ms = now_ms() + DK_LINGER_MS};
    }
}

void dk_http_connection_linger(struct dk_http_connections *connections, int fd)
{
    (void)pthread_mutex_lock(&connections->mutex);
    linger_locked(connections, fd);
    (void)pthread_mutex_unlock(&connections->mutex);
}

static uint32_t limit_ms(enum dk_http_phase phase, const struct dk_config *config)
{
    switch (phase) {
    case DK_PHASE_HEAD:
        return config->header_timeout_ms;
    case DK_PHASE_IDLE:
        return config->idle_timeout_ms;
    case DK_PHASE_BODY:
    case DK_PHASE_ANSWER:
        return config->body_timeout_ms;
    case DK_PHASE_WORK:
    case DK_PHASE_EXPIRED:
        break;
    }
    return 0;
}

/* Caller holds the mutex, so the descriptor is still this connection's. */
static void check_deadline(struct dk_http_connections *connections, struct dk_http_connection *connection,
                           const struct dk_config *config, uint64_t now)
{
    uint64_t current = atomic_load(&connection->phase_and_ms);
    enum dk_http_phase phase = (enum dk_http_phase)(current & PHASE_MASK);
    uint32_t limit = limit_ms(phase, config);
    if (limit == 0 || now < (current >> PHASE_BITS) + limit) {
        return;
    }
    /* Lost when the HTTP thread has just moved on: then there is nothing to expire. */
    if (!atomic_compare_exchange_strong(&connection->phase_and_ms, &current,
                                        current >> PHASE_BITS << PHASE_BITS | DK_PHASE_EXPIRED)) {
        return;
    }
    if (phase == DK_PHASE_BODY) {
        struct dk_error error;
        (void)dk_fail(&error, DK_TIMEOUT, "the body did not arrive within %u ms", limit);
        dk_http_send_error_now(connection->fd, &error, false);
        linger_locked(connections, connection->fd);
        (void)shutdown(connection->fd, SHUT_RD); /* libmicrohttpd sees the end and closes its side */
    } else {
        (void)shutdown(connection->fd, SHUT_RDWR);
    }
    static struct dk_log_limit limiter;
    if (phase != DK_PHASE_IDLE && dk_log_allow(&limiter, 1)) {
        dk_log(DK_LOG_WARN, "client_too_slow", "phase=%s limit_ms=%u",
               phase == DK_PHASE_HEAD   ? "head"
               : phase == DK_PHASE_BODY ? "body"
                                        : "answer",
               limit);
    }
}

/* The client has closed its side and every byte has been read, but the request is not complete, and that was
 * so in the last sweep already: nothing more can come. Caller holds the mutex. */
static void check_hangup(struct dk_http_connection *connection)
{
    uint64_t current = atomic_load(&connection->phase_and_ms);
    int unread = 0;
    if (ioctl(connection->fd, FIONREAD, &unread) != 0 || unread > 0) {
        return;
    }
    if (connection->hangup_mark != current) {
        connection->hangup_mark = current;
        return;
    }
    if (atomic_compare_exchange_strong(&connection->phase_and_ms, &current,
                                       current >> PHASE_BITS << PHASE_BITS | DK_PHASE_EXPIRED)) {
        (void)shutdown(connection->fd, SHUT_RDWR);
    }
}

static bool is_reading(const struct dk_http_connection *connection)
{
    enum dk_http_phase phase = (enum dk_http_phase)(atomic_load(&connection->phase_and_ms) & PHASE_MASK);
    return phase == DK_PHASE_HEAD || phase == DK_PHASE_IDLE || phase == DK_PHASE_BODY;
}

/* Caller holds the mutex. */
static void check_hangups(struct dk_http_connections *connections)
{
    struct dk_http_connection *next = connections->head;
    while (next != NULL) {
        struct pollfd requests[POLL_BATCH];
        struct dk_http_connection *batch[POLL_BATCH];
        nfds_t count = 0;
        for (; next != NULL && count < POLL_BATCH; next = next->next) {
            if (is_reading(next)) {
                batch[count] = next;
                requests[count++] = (struct pollfd){.fd = next->fd, .events = POLLRDHUP};
            }
        }
        if (count == 0 || poll(requests, count, 0) <= 0) {
            continue;
        }
        for (nfds_t i = 0; i < count; i++) {
            if ((requests[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
                check_hangup(batch[i]);
            }
        }
    }
}

/* True when the peer is done or the time is up. */
static bool linger_is_over(const struct dk_http_linger *linger, uint64_t now)
{
    char scratch[16 * 1024];
    for (int i = 0; i < 64; i++) { /* at most 1 MiB a sweep */
        ssize_t received = recv(linger->fd, scratch, sizeof scratch, MSG_DONTWAIT);
        if (received <= 0) {
            break;
        }
    }
    return now >= linger->until_ms;
}

void dk_http_connections_sweep(struct dk_http_connections *connections, const struct dk_config *config)
{
    uint64_t now = now_ms();
    (void)pthread_mutex_lock(&connections->mutex);
    for (struct dk_http_connection *connection = connections->head; connection != NULL;
         connection = connection->next) {
        check_deadline(connections, connection, config, now);
    }
    check_hangups(connections);
    for (uint32_t i = 0; i < connections->linger_count;) {
        if (linger_is_over(&connections->lingers[i], now)) {
            (void)close(connections->lingers[i].fd);
            connections->lingers[i] = connections->lingers[--connections->linger_count];
        } else {
            i++;
        }
    }
    (void)pthread_mutex_unlock(&connections->mutex);
}
