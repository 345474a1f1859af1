/* client_private.h: what the files of the C client share: the client, its table of requests, and the
 * interface between them and a transport. */
#ifndef DK_CLIENT_CLIENT_PRIVATE_H
#define DK_CLIENT_CLIENT_PRIVATE_H

#include <time.h>

#include "decomposek_client.h"

/* The pieces of one blocking call; on the stack of that call. */
struct dk_client_group {
    uint32_t flying_count;
    dk_status status; /* of the first piece that failed */
    char message[DK_MESSAGE_BYTES];
    struct dk_client_timing timing; /* sums */
};

/* One request. It is remote until the transport is done with it, settled once its outcome is known here (a
 * timeout settles it while the daemon may still compute), queued until poll has reported it; free when it is
 * neither remote nor queued. */
struct dk_client_entry {
    bool is_remote, is_settled, is_queued;
    uint32_t serial; /* + 1 by each use: tells a late or forged completion from the present request's */
    struct dk_client_group *group; /* NULL: reported by poll and wait */
    void *user_data;
    uint64_t submitted_ns, deadline_ns;
    dk_status status; /* valid once settled, like timing and the entry's message */
    struct dk_client_timing timing;
};

struct dk_client_model {
    struct dk_client *client;
    struct dk_client_model_info info;
    uint64_t remote_id; /* the transport's name for it, of the present session */
    dk_status status;   /* not DK_OK: a reconnect found it gone or changed */
    struct dk_client_model *next;
};

/* A request that was checked, with its sizes. */
struct dk_client_product {
    const struct dk_client_model *model;
    uint64_t rows;
    const void *a;
    void *c;
    size_t a_bytes, c_bytes;
    dk_dtype a_dtype, c_dtype;
    bool has_epilogue;
    dk_epilogue epilogue;
    uint64_t submitted_ns, deadline_ns;
};

/* One way to reach a daemon. Every function runs on the client's thread; those that fail leave the session as
 * it was, except where they call dk_client_lose. */
struct dk_client_transport {
    const char *name;
    bool can_spin; /* progress() is cheap enough to be called in a loop */
    /* Start a session in client->session. Fills granted_entries and data_bytes. */
    dk_status (*connect)(struct dk_client *client, uint64_t deadline_ns, struct dk_error *error);
    /* End it; no entry is remote any more. Memory of buffers that are still acquired stays, unless
     * `is_closing`. Must be harmless to the parent's session after a fork. */
    void (*disconnect)(struct dk_client *client, bool is_closing);
    dk_status (*list_models)(struct dk_client *client, uint64_t deadline_ns, struct dk_client_model_info *out,
                             size_t capacity, size_t *out_count, struct dk_error *error);
    dk_status (*find_model)(struct dk_client *client, uint64_t deadline_ns, const char *name,
                            struct dk_client_model_info *out, uint64_t *out_remote_id,
                            struct dk_error *error);
    dk_status (*load_model)(struct dk_client *client, uint64_t deadline_ns, const char *name,
                            const struct dk_client_weights *weights, struct dk_error *error);
    /* How many of the product's rows one submit could take now: all, fewer, or 0 when not even one. */
    uint64_t (*fitting_rows)(struct dk_client *client, const struct dk_client_product *product);
    /* Start the product as entry `index`, which is free. */
    dk_status (*submit)(struct dk_client *client, uint32_t index, const struct dk_client_product *product,
                        struct dk_error *error);
    /* Report what has completed with dk_client_finish. Cheap: called while spinning. */
    void (*progress)(struct dk_client *client);
    /* Look whether the daemon is still there; dk_client_lose if not. Called some times a second. */
    void (*check)(struct dk_client *client);
    /* This entry was settled by its timeout: call dk_client_finish as soon as its memory is certainly unused.
     */
    void (*abandon)(struct dk_client *client, uint32_t index);
    /* Wait until something may have completed, at most until `until_ns`. */
    void (*sleep)(struct dk_client *client, uint64_t until_ns);
    dk_status (*buffer_acquire)(struct dk_client *client, size_t bytes, void **out, struct dk_error *error);
    void (*buffer_release)(struct dk_client *client, void *buffer);
};
extern const struct dk_client_transport dk_client_shm_transport;
#ifdef DK_CLIENT_HTTP
extern const struct dk_client_transport dk_client_http_transport;
#endif

struct dk_client {
    const struct dk_client_transport *transport;
    void *session; /* the transport's; NULL when there is none */
    char *address, *api_key;
    struct dk_client_options options;          /* defaults filled in; its pointers are not used */
    const volatile unsigned char *fork_canary; /* a page that a child finds zeroed */
    bool is_connected;
    char loss[DK_MESSAGE_BYTES]; /* why not */
    uint32_t granted_entries;
    uint64_t granted_bytes;
    uint64_t session_count;
    struct dk_client_model *models;

    /* The table of requests; client_requests.c. */
    uint32_t entry_count;
    struct dk_client_entry *entries;
    char (*messages)[DK_MESSAGE_BYTES];            /* [entry_count] */
    uint32_t *free_entries, free_count;            /* a stack */
    uint32_t *done_entries, done_head, done_count; /* a queue of what poll has to report */
    uint32_t flying_count;                         /* not settled, groups included */
    uint32_t reportable_count;                     /* not yet reported, groups left out */
    uint64_t next_deadline_ns;                     /* no flying entry has an earlier one */
    uint64_t next_check_ns;                        /* when to ask for the daemon again */
};

/* --- client.c ------------------------------------------------------------------------------------------ */

/* Gate of every public call: after a fork DK_UNSUPPORTED. */
dk_status dk_client_check_owner(const struct dk_client *client, struct dk_error *error);
/* And of those that need the daemon: connected, or reconnected if the options say so. Gives the time. */
dk_status dk_client_check_usable(struct dk_client *client, uint64_t *out_now_ns, struct dk_error *error);
/* The session is over: every request in flight fails with DK_UNAVAILABLE and `reason`. */
void dk_client_lose(struct dk_client *client, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The transport found the model again, or anew: adopt it if n and k are the same. */
void dk_client_model_renew(struct dk_client_model *model, const struct dk_client_model_info *info,
                           uint64_t remote_id);
/* timeout_ms, or the client's when 0, from now. */
uint64_t dk_client_deadline(const struct dk_client *client, uint32_t timeout_ms);

/* --- client_requests.c --------------------------------------------------------------------------------- */

dk_status dk_client_requests_init(struct dk_client *client, struct dk_error *error);
void dk_client_requests_deinit(struct dk_client *client);
/* The transport is done with a remote entry, whose outcome counts if it is not settled. `message` (NULL: the
 * status' own text) is copied. */
void dk_client_finish(struct dk_client *client, uint32_t index, dk_status status, const char *message,
                      const struct dk_client_timing *timing);
void dk_client_fail_all(struct dk_client *client, dk_status status, const char *message);
/* A request with its sizes, or why it cannot be. */
dk_status dk_client_product_make(const struct dk_client_model *model, const struct dk_client_request *request,
                                 uint64_t now_ns, struct dk_client_product *out, struct dk_error *error);
/* Start a product for `group` (NULL: for poll, with `user_data`). DK_BUSY when no entry is free. */
dk_status dk_client_start(struct dk_client *client, const struct dk_client_product *product,
                          struct dk_client_group *group, void *user_data, struct dk_error *error);
/* Look whether the daemon is still there, and not again for a while. */
void dk_client_check_daemon(struct dk_client *client, uint64_t now_ns);
/* Take what has completed, settle what is past its deadline, look for the daemon now and then; the time. */
uint64_t dk_client_look(struct dk_client *client);
/* Between two looks of a wait that began to spin at `began_ns` and ends at `until_ns`. */
void dk_client_rest(struct dk_client *client, uint64_t now_ns, uint64_t began_ns, uint64_t until_ns);

static inline uint64_t dk_client_now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000U + (uint64_t)time.tv_nsec;
}

#endif
