/* shm_client.h: one session of the native ring as the client sees it. Everything read from the shared mapping
 * is checked before use: a broken daemon ends the session, not the process. */
#ifndef DK_CLIENT_SHM_CLIENT_H
#define DK_CLIENT_SHM_CLIENT_H

#include "client/area.h"
#include "client/client_private.h"
#include "proto/handshake.h"
#include "proto/ring.h"

/* Where the operands of an entry lie; offsets into the data area. */
struct dk_shm_place {
    bool has_staging, is_a_direct, is_c_direct;
    size_t staging_offset, staging_bytes; /* kept from request to request */
    size_t a_block, c_block;              /* blocks of direct buffers, in use until the completion */
    size_t c_offset, c_bytes;
    void *c; /* where the result is copied to, unless is_c_direct */
};

struct dk_shm_session {
    int fd, doorbell_fd;
    void *mapping;
    struct dk_ring_layout layout;
    struct dk_ring ring;
    struct dk_area area;
    struct dk_shm_place *places; /* [layout.entry_count] */
    uint32_t tail, head;         /* our indices of submissions and completions: never read back */
    uint32_t buffer_count;       /* acquired by the caller */
    uint32_t late_answer_count;  /* to control requests that timed out: to be skipped */
    bool is_draining;            /* the daemon takes no more work */
    struct dk_shm_session *next; /* among those that are over but whose buffers are not released */
};

/* client->session. */
struct dk_shm_client {
    struct dk_shm_session *live, *retired;
};

static inline struct dk_shm_session *dk_shm_live(const struct dk_client *client)
{
    return ((struct dk_shm_client *)client->session)->live;
}

/* --- shm_connect.c ------------------------------------------------------------------------------------- */

/* Connect, shake hands, map. */
dk_status dk_shm_session_new(const char *path, uint32_t entry_count, uint64_t data_bytes,
                             uint64_t deadline_ns, struct dk_shm_session **out, struct dk_error *error);
/* Closes the descriptors; the memory stays. */
void dk_shm_session_end(struct dk_shm_session *session, bool is_owner);
/* Unmaps as well. In a forked child there is nothing to unmap. NULL-safe. */
void dk_shm_session_free(struct dk_shm_session *session, bool is_owner);

/* Send one control message. */
dk_status dk_shm_send(struct dk_shm_session *session, const union dk_shm_packet *packet, size_t length,
                      uint64_t deadline_ns, struct dk_error *error);
/* Take one checked message. DK_TIMEOUT; DK_UNAVAILABLE at the end of file, also when what came is no message.
 */
dk_status dk_shm_receive(struct dk_shm_session *session, uint64_t deadline_ns, union dk_shm_packet *out,
                         struct dk_error *error);

/* --- shm_control.c ------------------------------------------------------------------------------------- */

dk_status dk_shm_list_models(struct dk_client *client, uint64_t deadline_ns, struct dk_client_model_info *out,
                             size_t capacity, size_t *out_count, struct dk_error *error);
dk_status dk_shm_find_model(struct dk_client *client, uint64_t deadline_ns, const char *name,
                            struct dk_client_model_info *out, uint64_t *out_remote_id,
                            struct dk_error *error);
dk_status dk_shm_load_model(struct dk_client *client, uint64_t deadline_ns, const char *name,
                            const struct dk_client_weights *weights, struct dk_error *error);
/* The transport's check(): end of file, a goodbye. */
void dk_shm_check_daemon(struct dk_client *client);

/* --- shm_data.c ---------------------------------------------------------------------------------------- */

/* Give back what the caches of free entries hold. */
void dk_shm_trim(struct dk_client *client);
uint64_t dk_shm_fitting_rows(struct dk_client *client, const struct dk_client_product *product);
/* Find room for the product of entry `index`, and copy A there unless it is there already. */
dk_status dk_shm_place_product(struct dk_client *client, uint32_t index,
                               const struct dk_client_product *product, struct dk_ring_submission *submission,
                               struct dk_error *error);
/* The request is over: fetch C if it `is_wanted`, let go of direct buffers. */
void dk_shm_take_product(struct dk_client *client, uint32_t index, bool is_wanted);
dk_status dk_shm_buffer_acquire(struct dk_client *client, size_t bytes, void **out, struct dk_error *error);
void dk_shm_buffer_release(struct dk_client *client, void *buffer);

#endif
