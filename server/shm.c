/* shm.c: accepting clients, what they hold, and the order in which they end. */
#include "server/shm.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/bell.h"
#include "server/daemon.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/models.h"
#include "server/rings.h"
#include "server/shm_private.h"

enum { ACCEPT_PER_EVENT = 16, LINES_PER_SECOND = 10 };

static void publish(const struct dk_shm *shm)
{
    dk_metrics_set(shm->daemon->metrics, DK_METRIC_SHM_BYTES, (int64_t)shm->total_bytes);
}

dk_status dk_shm_claim(struct dk_shm_client *client, uint64_t bytes, struct dk_error *error)
{
    struct dk_shm *shm = client->shm;
    const struct dk_config *config = shm->daemon->config;
    uint64_t others = shm->total_bytes - client->bytes;
    if (bytes > config->shm_session_bytes) {
        return dk_fail(error, DK_TOO_LARGE,
                       "%llu bytes for one session, the limit is %llu (--shm-session-bytes)",
                       (unsigned long long)bytes, (unsigned long long)config->shm_session_bytes);
    }
    if (bytes > client->bytes &&
        (others > config->shm_total_bytes || bytes > config->shm_total_bytes - others)) {
        return dk_fail(error, DK_BUSY,
                       "%llu bytes beside the %llu of other sessions, the limit is %llu (--shm-total-bytes)",
                       (unsigned long long)bytes, (unsigned long long)others,
                       (unsigned long long)config->shm_total_bytes);
    }
    shm->total_bytes = others + bytes;
    client->bytes = bytes;
    publish(shm);
    return DK_OK;
}

static void free_session(struct dk_shm_client *client)
{
    struct dk_shm_session *session = &client->session;
    if (session->doorbell_fd >= 0) {
        /* The client has a copy, so closing ours would leave it watched. */
        dk_bell_unwatch(client->shm->daemon->bell, session->doorbell_fd);
        (void)close(session->doorbell_fd);
    }
    dk_shm_session_deinit(session);
    dk_shm_memory_free(&session->memory);
    client->has_session = false;
}

static void on_closed(uv_handle_t *handle)
{
    struct dk_shm_client *client = handle->data;
    dk_shm_socket_close(client->fd);
    free(client);
}

static void release(struct dk_shm_client *client)
{
    struct dk_shm *shm = client->shm;
    if (client->has_session) {
        free_session(client);
    }
    shm->total_bytes -= client->bytes;
    publish(shm);
    *(client->previous != NULL ? &client->previous->next : &shm->clients) = client->next;
    if (client->next != NULL) {
        client->next->previous = client->previous;
    }
    shm->client_count--;
    uv_close((uv_handle_t *)&client->poll, on_closed);
}

void dk_shm_client_end(struct dk_shm_client *client)
{
    struct dk_shm *shm = client->shm;
    if (!client->is_ending) {
        client->is_ending = true;
        (void)uv_poll_stop(&client->poll);
        if (client->state == DK_SHM_SERVED) {
            dk_metrics_add(shm->daemon->metrics, DK_METRIC_SHM_SESSIONS, -1);
        }
        if (client->is_with_executor) {
            dk_rings_remove(shm->daemon->rings, &client->session, DK_SHM_LEAVE_NOW);
        }
    }
    if (!client->is_with_executor && !client->is_working && !client->is_released) {
        client->is_released = true;
        release(client);
    }
}

static void log_end(const struct dk_shm_client *client, const char *event, dk_status status,
                    const char *reason)
{
    static struct dk_log_limit limit;
    if (dk_log_allow(&limit, LINES_PER_SECOND)) {
        dk_log(DK_LOG_WARN, event, "session=%llu pid=%d uid=%u status=%s reason=%s",
               (unsigned long long)client->session.id, (int)client->ids.pid, (unsigned)client->ids.uid,
               dk_status_name(status), reason);
    }
}

void dk_shm_client_drop(struct dk_shm_client *client, dk_status status, const char *reason)
{
    bool is_served = client->state == DK_SHM_SERVED;
    if (client->is_ending) {
        return;
    }
    (void)dk_shm_socket_send_failure(client->fd, is_served ? DK_SHM_GOODBYE : DK_SHM_ERROR, status, reason);
    dk_metrics_add(client->shm->daemon->metrics, is_served ? DK_METRIC_SHM_DROPPED : DK_METRIC_SHM_REFUSED,
                   1);
    log_end(client, is_served ? "shm_session_dropped" : "shm_client_refused", status, reason);
    dk_shm_client_end(client);
}

void dk_shm_client_send(struct dk_shm_client *client, const union dk_shm_packet *packet, const int *fds,
                        int fd_count)
{
    if (!client->is_ending && !dk_shm_socket_send(client->fd, packet, fds, fd_count)) {
        dk_shm_client_drop(client, DK_CANCELLED, "the client does not read its answers, or has gone");
    }
}

void dk_shm_client_send_error(struct dk_shm_client *client, const struct dk_error *error)
{
    union dk_shm_packet packet;
    (void)dk_shm_begin(&packet, DK_SHM_ERROR);
    packet.failure.status = (uint32_t)error->status;
    memcpy(packet.failure.text, error->message, strnlen(error->message, sizeof packet.failure.text - 1));
    dk_shm_client_send(client, &packet, NULL, 0);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct dk_shm_client *client = poll->data;
    union dk_shm_packet packet;
    struct dk_error error;
    (void)events;
    /* No room for descriptors: the kernel closes what a client sends along. */
    ssize_t length = status == 0 ? recv(client->fd, &packet, sizeof packet, MSG_DONTWAIT | MSG_TRUNC) : 0;
    if (length < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (length <= 0) {
        dk_shm_client_end(client); /* closed, or killed */
    } else if (dk_shm_check(&packet, (size_t)length, DK_SHM_CLIENT, &error) != DK_OK) {
        dk_shm_client_drop(client, error.status, error.message);
    } else {
        dk_shm_client_receive(client, &packet);
    }
}

static void on_work(uv_work_t *work)
{
    struct dk_shm_client *client = work->data;
    client->task(client);
}

static void after_work(uv_work_t *work, int status)
{
    struct dk_shm_client *client = work->data;
    (void)status; /* never cancelled */
    client->is_working = false;
    if (client->is_ending) {
        dk_model_release(client->pushed);
        dk_shm_client_end(client);
        return;
    }
    (void)uv_poll_start(&client->poll, UV_READABLE, on_readable);
    client->after_task(client);
}

void dk_shm_client_work(struct dk_shm_client *client, void (*task)(struct dk_shm_client *client),
                        void (*after)(struct dk_shm_client *client))
{
    client->task = task;
    client->after_task = after;
    client->work.data = client;
    (void)uv_poll_stop(&client->poll); /* one request at a time */
    client->is_working = uv_queue_work(client->shm->loop, &client->work, on_work, after_work) == 0;
    if (!client->is_working) {
        dk_shm_client_drop(client, DK_INTERNAL, "no worker");
    }
}

static void add_client(struct dk_shm *shm, int fd, const struct dk_shm_peer_ids *ids)
{
    struct dk_shm_client *client = calloc(1, sizeof *client);
    if (client == NULL || uv_poll_init(shm->loop, &client->poll, fd) != 0) {
        free(client);
        (void)dk_shm_socket_send_failure(fd, DK_SHM_ERROR, DK_NO_MEMORY, "no memory for a client");
        dk_shm_socket_close(fd);
        return;
    }
    client->shm = shm;
    client->fd = fd;
    client->ids = *ids;
    client->connected_ms = uv_now(shm->loop);
    client->poll.data = client;
    client->session.doorbell_fd = client->session.memory.fd = -1;
    client->next = shm->clients;
    if (client->next != NULL) {
        client->next->previous = client;
    }
    shm->clients = client;
    shm->client_count++;
    (void)uv_poll_start(&client->poll, UV_READABLE, on_readable);
}

static void refuse(struct dk_shm *shm, int fd, const struct dk_error *error)
{
    static struct dk_log_limit limit;
    if (dk_log_allow(&limit, LINES_PER_SECOND)) {
        dk_log(DK_LOG_WARN, "shm_client_refused", "status=%s reason=%s", dk_status_name(error->status),
               error->message);
    }
    dk_metrics_add(shm->daemon->metrics, DK_METRIC_SHM_REFUSED, 1);
    (void)dk_shm_socket_send_failure(fd, DK_SHM_ERROR, error->status, error->message);
    dk_shm_socket_close(fd);
}

static void welcome(struct dk_shm *shm, int fd)
{
    struct dk_shm_peer_ids ids;
    struct dk_error error;
    const struct dk_config *config = shm->daemon->config;
    dk_status status = dk_shm_access(fd, config, &ids, &error);
    if (status == DK_OK && shm->client_count >= config->shm_sessions) {
        status = dk_fail(&error, DK_BUSY, "%u clients are connected, the limit (--shm-sessions)",
                         shm->client_count);
    }
    if (status == DK_OK) {
        add_client(shm, fd, &ids);
    } else {
        refuse(shm, fd, &error);
    }
}

static void on_connect(uv_poll_t *poll, int status, int events)
{
    struct dk_shm *shm = poll->data;
    (void)events;
    for (int i = 0; status == 0 && i < ACCEPT_PER_EVENT; i++) {
        int fd = accept4(shm->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            welcome(shm, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            static struct dk_log_limit limit;
            if (dk_log_allow(&limit, 1)) {
                dk_log(DK_LOG_WARN, "shm_accept_failed", "error=%s", strerrordesc_np(errno));
            }
            (void)uv_poll_stop(&shm->poll); /* until the next tick */
            shm->is_paused = true;
            return;
        } else if (errno != ECONNABORTED && errno != EINTR) {
            return;
        }
    }
}

static void on_released_session(uv_async_t *async)
{
    struct dk_shm *shm = async->data;
    struct dk_shm_session *session;
    while (shm->has_given && (session = dk_rings_take_released(shm->daemon->rings)) != NULL) {
        struct dk_shm_client *client = session->context;
        client->is_with_executor = false;
        if (session->broken_status != DK_OK && !client->is_ending) {
            dk_shm_client_drop(client, session->broken_status, session->broken.message);
        } else {
            dk_shm_client_end(client);
        }
    }
}

static void tell_loop(void *context)
{
    (void)uv_async_send(context);
}

dk_status dk_shm_give_to_executor(struct dk_shm_client *client, struct dk_error *error)
{
    struct dk_shm *shm = client->shm;
    dk_rings_set_listener(shm->daemon->rings, tell_loop, &shm->released);
    dk_status status = dk_bell_watch(shm->daemon->bell, client->session.doorbell_fd, error);
    if (status == DK_OK) {
        status = dk_rings_add(shm->daemon->rings, &client->session, error);
    }
    client->is_with_executor = status == DK_OK;
    shm->has_given |= client->is_with_executor;
    return status;
}

dk_status dk_shm_new(uv_loop_t *loop, struct dk_daemon *daemon, int listener, struct dk_shm **out,
                     struct dk_error *error)
{
    struct dk_shm *shm = calloc(1, sizeof *shm);
    if (shm == NULL) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for the shared-memory door");
    }
    *shm = (struct dk_shm){.loop = loop, .daemon = daemon, .listener = listener};
    shm->poll.data = shm->released.data = shm;
    int result = uv_async_init(loop, &shm->released, on_released_session);
    if (result != 0) {
        free(shm);
        return dk_fail(error, DK_IO_ERROR, "the shared-memory door: %s", uv_strerror(result));
    }
    result = uv_poll_init(loop, &shm->poll, listener);
    result = result == 0 ? uv_poll_start(&shm->poll, UV_READABLE, on_connect) : result;
    *out = shm; /* the loop has its handles: it lives until the loop is closed */
    return result == 0 ? DK_OK
                       : dk_fail(error, DK_IO_ERROR, "the shared-memory door: %s", uv_strerror(result));
}

void dk_shm_free(struct dk_shm *shm)
{
    if (shm != NULL) {
        assert(shm->client_count == 0);
        free(shm);
    }
}

void dk_shm_tick(struct dk_shm *shm)
{
    uint64_t now_ms = uv_now(shm->loop), limit_ms = shm->daemon->config->header_timeout_ms;
    if (shm->is_paused && !shm->is_closing) {
        shm->is_paused = false;
        (void)uv_poll_start(&shm->poll, UV_READABLE, on_connect);
    }
    for (struct dk_shm_client *client = shm->clients, *next; client != NULL; client = next) {
        next = client->next;
        if (client->state != DK_SHM_SERVED && !client->is_working && !client->is_ending &&
            now_ms - client->connected_ms > limit_ms) {
            dk_shm_client_drop(client, DK_TIMEOUT, "the handshake took too long (--header-timeout-ms)");
        }
    }
}

void dk_shm_close(struct dk_shm *shm)
{
    static const char reason[] = "the daemon is stopping";
    shm->is_closing = true;
    (void)uv_poll_stop(&shm->poll);
    for (struct dk_shm_client *client = shm->clients, *next; client != NULL; client = next) {
        next = client->next;
        if (client->state != DK_SHM_SERVED) {
            (void)dk_shm_socket_send_failure(client->fd, DK_SHM_ERROR, DK_UNAVAILABLE, reason);
            dk_shm_client_end(client);
        } else if (!client->is_ending) {
            (void)dk_shm_socket_send_failure(client->fd, DK_SHM_GOODBYE, DK_UNAVAILABLE, reason);
        }
    }
    if (shm->has_given) { /* before that the loading thread may be at work on `rings` */
        dk_rings_close(shm->daemon->rings);
    }
}

void dk_shm_finish(struct dk_shm *shm)
{
    if (shm->is_finishing) {
        return;
    }
    shm->is_finishing = true;
    for (struct dk_shm_client *client = shm->clients; client != NULL; client = client->next) {
        if (client->is_with_executor) {
            dk_rings_remove(shm->daemon->rings, &client->session, DK_SHM_LEAVE_WHEN_DONE);
        }
    }
}

uint32_t dk_shm_client_count(const struct dk_shm *shm)
{
    return shm != NULL ? shm->client_count : 0;
}
