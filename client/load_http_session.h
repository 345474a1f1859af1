/* load_http_session.h: the connections of one thread of the load generator; private to load_http*.c. */
#ifndef DK_CLIENT_LOAD_HTTP_SESSION_H
#define DK_CLIENT_LOAD_HTTP_SESSION_H

#include "client/http_reply.h"
#include "client/load_http.h"

struct dk_load_http_slot {
    int fd; /* -1: not connected */
    bool is_busy, wants_output, has_head;
    size_t sent_bytes;
    size_t head_used; /* of a head that came in pieces */
    uint64_t body_seen;
    struct dk_http_reply_head reply;
    char head[DK_HTTP_REPLY_MAX_HEAD];
};

/* The end of a request that is known, but not reported yet. */
struct dk_load_http_failure {
    struct dk_load_event event;
    uint64_t not_before_ns;
};

struct dk_load_http_session {
    const struct dk_load_http *http;
    int epoll_fd;
    uint32_t slot_count, failure_count;
    struct dk_load_http_slot *slots;
    struct dk_load_http_failure *failures; /* at most one per slot */
    char *scratch;
    char *body; /* of dk_load_http_fetch: bodies are copied here */
    size_t body_capacity;
};

#endif
