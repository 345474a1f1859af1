/* load_http.c: many kept-alive connections of one thread, each with one request at a time. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <unistd.h>

#include "client/load_http_session.h"

enum { SCRATCH_BYTES = 256 * 1024, EPOLL_BATCH = 64 };
/* A daemon that is gone must not be asked again at full speed. */
static const uint64_t retry_ns = 10000000;
/* epoll may wake later than asked: the last stretch to a due request is polled. */
static const uint64_t spin_ns = 30000;

/* --- connections --------------------------------------------------------------------------------------- */

static void disconnect(struct dk_load_http_slot *slot)
{
    if (slot->fd >= 0)
        close(slot->fd); /* which also takes it out of the epoll set */
    slot->fd = -1;
    slot->wants_output = false;
}

/* 0, or errno. */
static int connect_slot(struct dk_load_http_session *session, uint32_t index)
{
    const struct dk_load_http_target *target = session->http->target;
    double timeout_s = session->http->timeout_s;
    const struct timeval timeout = {(time_t)timeout_s,
                                    (suseconds_t)((timeout_s - (double)(time_t)timeout_s) * 1e6)};
    int on = 1, reason;
    int fd = socket(target->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = index};
    bool is_tcp = target->address.ss_family != AF_UNIX;
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) != 0 ||
        (is_tcp && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) ||
        connect(fd, (const struct sockaddr *)&target->address, target->address_bytes) != 0 ||
        epoll_ctl(session->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        reason = errno;
        close(fd);
        return reason;
    }
    session->slots[index].fd = fd;
    return 0;
}

static void watch(struct dk_load_http_session *session, uint32_t index, bool wants_output)
{
    struct dk_load_http_slot *slot = &session->slots[index];
    if (slot->wants_output == wants_output)
        return;
    struct epoll_event event = {.events = EPOLLIN | (wants_output ? (uint32_t)EPOLLOUT : 0),
                                .data.u32 = index};
    slot->wants_output = wants_output;
    (void)epoll_ctl(session->epoll_fd, EPOLL_CTL_MOD, slot->fd, &event); /* fails for no valid pair */
}

static void http_close(void *opaque)
{
    struct dk_load_http_session *session = opaque;
    for (uint32_t i = 0; session->slots && i < session->slot_count; i++)
        disconnect(&session->slots[i]);
    if (session->epoll_fd >= 0)
        close(session->epoll_fd);
    free(session->slots);
    free(session->failures);
    free(session->scratch);
    free(session);
}

static dk_status http_open(const void *context, uint32_t slot_count, void **out, struct dk_error *error)
{
    struct dk_load_http_session *session = calloc(1, sizeof *session);
    if (!session)
        return dk_fail(error, DK_NO_MEMORY, "no memory for %u connections", slot_count);
    session->http = context;
    session->slots = calloc(slot_count, sizeof *session->slots);
    session->failures = calloc(slot_count, sizeof *session->failures);
    session->scratch = malloc(SCRATCH_BYTES);
    session->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    dk_status status = DK_OK;
    if (!session->slots || !session->failures || !session->scratch)
        status = dk_fail(error, DK_NO_MEMORY, "no memory for %u connections", slot_count);
    else if (session->epoll_fd < 0)
        status = dk_fail(error, DK_IO_ERROR, "epoll: %s", strerrordesc_np(errno));
    else
        session->slot_count = slot_count;
    for (uint32_t i = 0; i < session->slot_count; i++)
        session->slots[i].fd = -1;
    for (uint32_t i = 0; i < session->slot_count && status == DK_OK; i++) {
        int reason = connect_slot(session, i);
        if (reason != 0)
            status = dk_fail(error, DK_UNAVAILABLE, "connection %u of %u: %s", i + 1, slot_count,
                             strerrordesc_np(reason));
    }
    if (status == DK_OK)
        *out = session;
    else
        http_close(session);
    return status;
}

/* --- requests ------------------------------------------------------------------------------------------ */

static void fail_request(struct dk_load_http_session *session, uint32_t index, uint32_t code,
                         uint64_t not_before_ns)
{
    disconnect(&session->slots[index]);
    session->slots[index].is_busy = false;
    session->failures[session->failure_count++] =
        (struct dk_load_http_failure){{index, code, 0, 0}, not_before_ns};
}

/* False when the connection broke. */
static bool send_rest(struct dk_load_http_session *session, uint32_t index)
{
    struct dk_load_http_slot *slot = &session->slots[index];
    const struct dk_load_http *http = session->http;
    while (slot->sent_bytes < http->request_bytes) {
        ssize_t sent = send(slot->fd, http->request + slot->sent_bytes,
                            http->request_bytes - slot->sent_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno != EAGAIN)
            return false;
        if (sent < 0)
            break;
        slot->sent_bytes += (size_t)sent;
    }
    watch(session, index, slot->sent_bytes < http->request_bytes);
    return true;
}

static void http_submit(void *opaque, uint32_t index)
{
    struct dk_load_http_session *session = opaque;
    struct dk_load_http_slot *slot = &session->slots[index];
    if (slot->fd < 0 && connect_slot(session, index) != 0) {
        fail_request(session, index, DK_LOAD_CONNECTION, dk_load_now_ns() + retry_ns);
        return;
    }
    slot->is_busy = true;
    slot->has_head = false;
    slot->head_used = 0;
    slot->body_seen = 0;
    slot->sent_bytes = 0;
    if (!send_rest(session, index))
        fail_request(session, index, DK_LOAD_CONNECTION, 0);
}

static void http_cancel(void *opaque, uint32_t index)
{
    struct dk_load_http_session *session = opaque;
    disconnect(&session->slots[index]);
    session->slots[index].is_busy = false;
    for (uint32_t i = 0; i < session->failure_count; i++)
        if (session->failures[i].event.slot == index)
            session->failures[i--] = session->failures[--session->failure_count];
}

/* --- answers ------------------------------------------------------------------------------------------- */

/* Take body bytes; false when there are more than announced. */
static bool take_body(struct dk_load_http_session *session, struct dk_load_http_slot *slot, const char *bytes,
                      size_t length)
{
    if (length > slot->reply.body_bytes - slot->body_seen)
        return false;
    uint64_t skipped = slot->reply.inference_bytes;
    for (size_t i = 0; session->body && i < length; i++) {
        uint64_t at = slot->body_seen + i;
        if (at >= skipped && at - skipped < session->body_capacity)
            session->body[at - skipped] = bytes[i];
    }
    slot->body_seen += length;
    return true;
}

/* Take what recv gave; false when it is no answer. */
static bool take_bytes(struct dk_load_http_session *session, struct dk_load_http_slot *slot,
                       const char *bytes, size_t length)
{
    if (slot->has_head)
        return take_body(session, slot, bytes, length);
    const char *from = bytes;
    size_t available = length;
    if (slot->head_used > 0) { /* the head comes in pieces: put them together */
        size_t room = sizeof slot->head - slot->head_used;
        size_t part = length < room ? length : room;
        memcpy(slot->head + slot->head_used, bytes, part);
        from = slot->head;
        available = slot->head_used + part;
    }
    switch (dk_http_reply_parse(from, available, &slot->reply)) {
    case DK_HTTP_REPLY_BAD:
        return false;
    case DK_HTTP_REPLY_MORE:
        if (available >= sizeof slot->head)
            return false;
        if (slot->head_used == 0)
            memcpy(slot->head, bytes, length);
        slot->head_used = available;
        return true;
    case DK_HTTP_REPLY_COMPLETE:
        break;
    }
    slot->has_head = true;
    size_t consumed = slot->reply.head_bytes - slot->head_used; /* of `bytes` */
    return take_body(session, slot, bytes + consumed, length - consumed);
}

static uint32_t code_of(const struct dk_load_http_session *session, const struct dk_http_reply_head *reply)
{
    if (reply->status != 200)
        return reply->status;
    return reply->body_bytes - reply->inference_bytes == session->http->answer_bytes ? DK_OK
                                                                                     : DK_LOAD_BAD_REPLY;
}

/* Read what is there. True when the request ended: *code says how. */
static bool receive(struct dk_load_http_session *session, struct dk_load_http_slot *slot, uint32_t *code)
{
    for (;;) {
        ssize_t got = recv(slot->fd, session->scratch, SCRATCH_BYTES, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return false;
        if (got <= 0 || !slot->is_busy) { /* closed, or bytes that nobody asked for */
            *code = DK_LOAD_CONNECTION;
            disconnect(slot);
            return true;
        }
        if (!take_bytes(session, slot, session->scratch, (size_t)got)) {
            *code = DK_LOAD_BAD_REPLY;
            disconnect(slot);
            return true;
        }
        if (slot->has_head && slot->body_seen == slot->reply.body_bytes) {
            *code = code_of(session, &slot->reply);
            /* Answered before the body was sent: a refusal; the rest would be taken for a request. */
            if (slot->reply.is_last || slot->sent_bytes < session->http->request_bytes)
                disconnect(slot);
            return true;
        }
    }
}

/* What epoll said about one slot; true when *event is to be reported. */
static bool handle(struct dk_load_http_session *session, const struct epoll_event *ready,
                   struct dk_load_event *event)
{
    uint32_t index = ready->data.u32, code;
    struct dk_load_http_slot *slot = &session->slots[index];
    bool has_ended = false;
    if (ready->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        has_ended = receive(session, slot, &code);
    /* A server that refuses early closes its side: its answer is read first, above. */
    if (!has_ended && slot->is_busy && (ready->events & EPOLLOUT) && !send_rest(session, index)) {
        has_ended = true;
        code = DK_LOAD_CONNECTION;
        disconnect(slot);
    }
    if (!has_ended || !slot->is_busy)
        return false;
    slot->is_busy = false;
    *event =
        (struct dk_load_event){index, code, dk_load_now_ns(), slot->has_head ? slot->reply.kernel_ns : 0};
    return true;
}

static size_t take_failures(struct dk_load_http_session *session, struct dk_load_event *events,
                            size_t capacity)
{
    size_t count = 0;
    uint64_t now_ns = dk_load_now_ns();
    for (uint32_t i = 0; i < session->failure_count && count < capacity;) {
        if (session->failures[i].not_before_ns > now_ns) {
            i++;
            continue;
        }
        events[count] = session->failures[i].event;
        events[count++].done_ns = now_ns;
        session->failures[i] = session->failures[--session->failure_count];
    }
    return count;
}

static int wait_for_sockets(struct dk_load_http_session *session, uint64_t until_ns,
                            struct epoll_event *ready, int count)
{
    uint64_t now_ns = dk_load_now_ns();
    for (uint32_t i = 0; i < session->failure_count; i++)
        if (session->failures[i].not_before_ns < until_ns)
            until_ns = session->failures[i].not_before_ns;
    uint64_t left_ns = until_ns > now_ns + spin_ns ? until_ns - now_ns - spin_ns : 0;
    const struct timespec timeout = {(time_t)(left_ns / 1000000000u), (long)(left_ns % 1000000000u)};
    int found = epoll_pwait2(session->epoll_fd, ready, count, &timeout, NULL);
    return found > 0 ? found : 0; /* EINTR: the caller looks at its clock and calls again */
}

static size_t http_poll(void *opaque, uint64_t until_ns, struct dk_load_event *events, size_t capacity)
{
    struct dk_load_http_session *session = opaque;
    struct epoll_event ready[EPOLL_BATCH];
    size_t count = session->failure_count > 0 ? take_failures(session, events, capacity) : 0;
    while (count == 0) {
        size_t room = capacity < EPOLL_BATCH ? capacity : EPOLL_BATCH;
        int found = wait_for_sockets(session, until_ns, ready, (int)room);
        for (int i = 0; i < found; i++)
            count += handle(session, &ready[i], &events[count]);
        if (count == 0 && session->failure_count > 0)
            count = take_failures(session, events, capacity);
        if (dk_load_now_ns() >= until_ns)
            break;
    }
    return count;
}

const struct dk_load_transport dk_load_http_transport = {
    .open = http_open, .close = http_close, .submit = http_submit, .poll = http_poll, .cancel = http_cancel};
