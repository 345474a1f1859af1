/* client_http.h: the HTTP side of the C client: a pool of connections that run in one multi handle. */
#ifndef DK_CLIENT_CLIENT_HTTP_H
#define DK_CLIENT_CLIENT_HTTP_H

#include "client/client_private.h"
#include "client/remote.h"

struct dk_http_buffer;

/* One connection, and the request that it carries. */
struct dk_http_lane {
    struct dk_http_client *http; /* NULL until first used */
    bool is_flying;
    uint32_t entry;
    struct dk_http_request request;
};

/* A request, queued or flying. */
struct dk_http_place {
    struct dk_remote_model model; /* borrowed by call */
    struct dk_remote_call call;
    void *a_copy; /* NULL when a lies in a direct buffer */
    void *c;
    struct dk_http_buffer *a_buffer, *c_buffer; /* in use until the request is over; NULL: none */
    uint32_t lane;                              /* DK_HTTP_NO_LANE while queued */
};
enum { DK_HTTP_LANES = 8, DK_HTTP_NO_LANE = DK_HTTP_LANES };

struct dk_http_buffer;

/* client->session. */
struct dk_http_session {
    void *multi;                    /* CURLM * */
    struct dk_http_client *control; /* for lists; blocking */
    struct dk_http_lane lanes[DK_HTTP_LANES];
    struct dk_http_place *places;     /* [ring_entries] */
    uint32_t *queue;                  /* entries that wait for a lane, in order */
    uint32_t queue_head, queue_count; /* of queue[ring_entries] */
    struct dk_http_buffer *buffers;   /* acquired */
};

/* client_http_models.c */
dk_status dk_http_list_models(struct dk_client *client, uint64_t deadline_ns,
                              struct dk_client_model_info *out, size_t capacity, size_t *out_count,
                              struct dk_error *error);
dk_status dk_http_find_model(struct dk_client *client, uint64_t deadline_ns, const char *name,
                             struct dk_client_model_info *out, uint64_t *out_remote_id,
                             struct dk_error *error);
/* client_http_buffers.c */
dk_status dk_http_buffer_acquire(struct dk_client *client, size_t bytes, void **out, struct dk_error *error);
void dk_http_buffer_release(struct dk_client *client, void *buffer);
/* The acquired buffer that holds all of it, or NULL. */
struct dk_http_buffer *dk_http_buffer_find(const struct dk_http_session *session, const void *memory,
                                           size_t bytes);
/* A request reads or writes there: the memory stays until as many unuse, whatever the caller releases. Both
 * accept NULL. */
void dk_http_buffer_use(struct dk_http_buffer *buffer);
void dk_http_buffer_unuse(struct dk_http_session *session, struct dk_http_buffer *buffer);
void dk_http_buffers_free(struct dk_http_session *session);

/* A client for this daemon, with the options of `client`. */
dk_status dk_http_client_for(const struct dk_client *client, struct dk_http_client **out,
                             struct dk_error *error);

#endif
