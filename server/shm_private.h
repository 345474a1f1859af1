/* shm_private.h: the clients at the handshake socket (private to shm*.c). All of it belongs to the control
 * loop; a worker borrows a client while is_working. */
#ifndef DK_SERVER_SHM_PRIVATE_H
#define DK_SERVER_SHM_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "proto/handshake.h"
#include "server/shm.h"
#include "server/shm_access.h"
#include "server/shm_session.h"

struct dk_shm {
    uv_loop_t *loop;
    struct dk_daemon *daemon;
    int listener;
    uv_poll_t poll;      /* the listener */
    uv_async_t released; /* the executor has let go of a session */
    struct dk_shm_client *clients;
    uint32_t client_count;
    uint64_t total_bytes;
    uint64_t last_session_id;
    bool is_paused, is_closing, is_finishing;
    bool has_given; /* a session to the executor, ever */
};

enum dk_shm_state {
    DK_SHM_NEW,      /* connected: HELLO comes next */
    DK_SHM_WELCOMED, /* has the descriptors: MAPPED comes next */
    DK_SHM_SERVED    /* the executor has the session */
};

struct dk_shm_client {
    struct dk_shm *shm;
    struct dk_shm_client *previous, *next;
    int fd;
    uv_poll_t poll;
    struct dk_shm_peer_ids ids;
    uint64_t connected_ms;
    enum dk_shm_state state;
    bool is_working;       /* a worker has it: the socket is not read */
    bool is_with_executor; /* the session may be in use */
    bool is_ending;        /* nothing more is read or sent */
    bool is_released;      /* memory and counts are given back; only the handle is still being closed */
    uint64_t bytes;        /* counted in shm->total_bytes */

    bool has_session;
    struct dk_ring_layout layout;
    struct dk_shm_session session;

    uv_work_t work;
    void (*task)(struct dk_shm_client *client);
    void (*after_task)(struct dk_shm_client *client);
    union dk_shm_packet request; /* what the worker works on */
    struct dk_model *pushed;     /* what the worker made; NULL: nothing */
    dk_status work_status;
    struct dk_error work_error;
};

/* shm.c */
/* Sets what the client holds to `bytes`. DK_TOO_LARGE: above the cap of one session; DK_BUSY: above that of
 * all; nothing changes then. */
dk_status dk_shm_claim(struct dk_shm_client *client, uint64_t bytes, struct dk_error *error);
void dk_shm_client_end(
    struct dk_shm_client *client); /* once nobody uses it: everything it held is released */
/* Tells the client why, counts and logs it, and ends it. */
void dk_shm_client_drop(struct dk_shm_client *client, dk_status status, const char *reason);
/* `task` on a worker, then `after` in the loop, unless the client has ended meanwhile. */
void dk_shm_client_work(struct dk_shm_client *client, void (*task)(struct dk_shm_client *client),
                        void (*after)(struct dk_shm_client *client));
dk_status dk_shm_give_to_executor(struct dk_shm_client *client, struct dk_error *error);
/* One packet; a client that does not read its answers is dropped. */
void dk_shm_client_send(struct dk_shm_client *client, const union dk_shm_packet *packet, const int *fds,
                        int fd_count);
void dk_shm_client_send_error(struct dk_shm_client *client, const struct dk_error *error);

/* shm_messages.c: one checked message of the client. */
void dk_shm_client_receive(struct dk_shm_client *client, const union dk_shm_packet *packet);
/* shm_push.c: LOAD_MODEL. */
void dk_shm_client_load_model(struct dk_shm_client *client, const struct dk_shm_load_model *request);
void dk_shm_client_send_model(struct dk_shm_client *client, uint32_t id, const struct dk_model *model);

/* shm_socket.c: one packet to a socket; false when it would block or the other end has gone. */
bool dk_shm_socket_send(int fd, const union dk_shm_packet *packet, const int *fds, int fd_count);
/* ERROR or GOODBYE. */
bool dk_shm_socket_send_failure(int fd, enum dk_shm_kind kind, dk_status status, const char *text);
/* Closes so that what was sent can still be read. */
void dk_shm_socket_close(int fd);

#endif
