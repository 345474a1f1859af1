/* shm_client.c: the ring of one session, client's side: submit, complete, sleep; and the transport's table.
 */
#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/shm_client.h"

/* --- submitting ---------------------------------------------------------------------------------------- */

/* Never waits: a doorbell that is full has been rung already. */
static void ring_doorbell(struct dk_shm_session *session)
{
    static const uint64_t one = 1;
    ssize_t written;
    do
        written = write(session->doorbell_fd, &one, sizeof one);
    while (written < 0 && errno == EINTR);
}

static uint32_t timeout_us(const struct dk_client_product *product)
{
    uint64_t us = (product->deadline_ns - product->submitted_ns) / 1000;
    return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

static dk_status submit(struct dk_client *client, uint32_t index, const struct dk_client_product *product,
                        struct dk_error *error)
{
    struct dk_shm_session *session = dk_shm_live(client);
    if (session->is_draining)
        return dk_fail(error, DK_UNAVAILABLE, "the daemon is stopping and takes no new work");
    struct dk_ring_submission submission = {
        .user_data = (uint64_t)client->entries[index].serial << 32 | index,
        .model_id = (uint32_t)product->model->remote_id,
        .rows = (uint32_t)product->rows,
        .submitted_ns = product->submitted_ns,
        .timeout_us = timeout_us(product),
        .a_dtype = (uint8_t)product->a_dtype,
        .c_dtype = (uint8_t)product->c_dtype,
        .epilogue = product->has_epilogue ? (uint8_t)product->epilogue : (uint8_t)DK_RING_MODEL_EPILOGUE};
    dk_status status = dk_shm_place_product(client, index, product, &submission, error);
    if (status != DK_OK)
        return status;
    session->ring.submissions[session->tail & session->ring.mask] = submission;
    session->tail++;
    dk_ring_publish_submissions(session->ring.header, session->tail);
    if (dk_ring_server_needs_wakeup(session->ring.header))
        ring_doorbell(session);
    return DK_OK;
}

/* --- completing ---------------------------------------------------------------------------------------- */

/* Each word once: what is checked is what is used. */
static struct dk_ring_completion copy_completion(const struct dk_ring_completion *shared)
{
    enum { WORDS = sizeof *shared / sizeof(uint64_t) };
    const _Atomic uint64_t *from = (const _Atomic uint64_t *)(const void *)shared;
    union {
        uint64_t words[WORDS];
        struct dk_ring_completion completion;
    } copy;
    for (int i = 0; i < WORDS; i++)
        copy.words[i] = atomic_load_explicit(&from[i], memory_order_relaxed);
    return copy.completion;
}

static const char *describe(const struct dk_ring_completion *completion, dk_status status, char *text,
                            size_t size)
{
    if (status == DK_OK)
        return NULL;
    if (completion->detail == DK_RING_DETAIL_NONE || completion->detail >= DK_RING_DETAIL_COUNT)
        snprintf(text, size, "the daemon: %s", dk_status_text(status));
    else if (completion->detail == DK_RING_DETAIL_COMPUTE)
        snprintf(text, size, "the daemon: %s: %s", dk_ring_detail_text(completion->detail),
                 dk_status_text(status));
    else
        snprintf(text, size, "the daemon: %s", dk_ring_detail_text(completion->detail));
    return text;
}

/* False when the completion belongs to no request of ours. */
static bool complete(struct dk_client *client, const struct dk_ring_completion *completion, uint64_t now_ns)
{
    uint32_t index = (uint32_t)completion->user_data;
    if (index >= client->entry_count || completion->status >= DK_STATUS_COUNT)
        return false;
    const struct dk_client_entry *entry = &client->entries[index];
    if (!entry->is_remote || entry->serial != completion->user_data >> 32)
        return false;
    char text[DK_MESSAGE_BYTES];
    dk_status status = (dk_status)completion->status;
    dk_shm_take_product(client, index, status == DK_OK && !entry->is_settled);
    /* queue and kernel are the daemon's words: no more than numbers. */
    const struct dk_client_timing timing = {.queue_ns = completion->queue_ns,
                                            .kernel_ns = completion->kernel_ns,
                                            .server_ns = completion->queue_ns + completion->kernel_ns,
                                            .round_trip_ns = now_ns - entry->submitted_ns};
    dk_client_finish(client, index, status, describe(completion, status, text, sizeof text), &timing);
    return true;
}

static void progress(struct dk_client *client)
{
    struct dk_shm_session *session = dk_shm_live(client);
    struct dk_ring_header *header = session->ring.header;
    uint32_t tail = dk_ring_completion_tail(header), count = tail - session->head;
    if (count == 0)
        return;
    if (count > session->tail - session->head) {
        dk_client_lose(client, "the daemon broke the ring: %u completions of %u requests", count,
                       session->tail - session->head);
        return;
    }
    uint64_t now_ns = dk_client_now_ns();
    for (; session->head != tail; session->head++) {
        const struct dk_ring_completion completion =
            copy_completion(&session->ring.completions[session->head & session->ring.mask]);
        if (!complete(client, &completion, now_ns)) {
            dk_client_lose(client, "the daemon broke the ring: a completion (%llx, status %u) of no request",
                           (unsigned long long)completion.user_data, completion.status);
            return;
        }
    }
    dk_ring_release_completions(header, session->head);
    /* Here, where the line with it is at hand: the daemon writes it with each completion. */
    if (dk_ring_server_state(header) != DK_RING_OPEN)
        session->is_draining = true;
}

/* The daemon says that nothing will complete any more. */
static void end_closed_session(struct dk_client *client)
{
    struct dk_shm_session *session = dk_shm_live(client);
    if (dk_ring_completion_tail(session->ring.header) != session->head)
        return;                  /* first what it completed before */
    dk_shm_check_daemon(client); /* the reason is on the socket */
    dk_client_lose(client, "the daemon closed it");
}

static void sleep_until(struct dk_client *client, uint64_t until_ns)
{
    struct dk_shm_session *session = dk_shm_live(client);
    struct dk_ring_header *header = session->ring.header;
    uint64_t now_ns = dk_client_now_ns();
    if (until_ns <= now_ns)
        return;
    const struct timespec timeout = {.tv_sec = (time_t)((until_ns - now_ns) / 1000000000),
                                     .tv_nsec = (long)((until_ns - now_ns) % 1000000000)};
    /* Up to `head` everything that completed was taken. */
    bool is_asleep = dk_ring_announce_wait(header, session->head);
    if (is_asleep)
        syscall(SYS_futex, &header->client_waits, FUTEX_WAIT, 1, &timeout, NULL, 0);
    dk_ring_end_wait(header);
    if (!is_asleep && dk_ring_server_state(header) == DK_RING_CLOSED)
        end_closed_session(client);
}

/* This entry's memory is the daemon's until its completion comes: nothing to do. */
static void abandon(struct dk_client *client, uint32_t index)
{
    (void)client;
    (void)index;
}

/* --- session ------------------------------------------------------------------------------------------- */

static dk_status connect_session(struct dk_client *client, uint64_t deadline_ns, struct dk_error *error)
{
    struct dk_shm_client *shm = client->session;
    if (!shm) {
        shm = calloc(1, sizeof *shm);
        if (!shm)
            return dk_fail(error, DK_NO_MEMORY, "no memory for a session");
        client->session = shm;
    }
    const char *path = client->address + sizeof "unix:" - 1;
    dk_status status = dk_shm_session_new(path, client->options.ring_entries, client->options.data_bytes,
                                          deadline_ns, &shm->live, error);
    if (status != DK_OK)
        return status;
    client->granted_entries = shm->live->layout.entry_count;
    client->granted_bytes = shm->live->layout.data_bytes;
    return DK_OK;
}

static void disconnect(struct dk_client *client, bool is_closing)
{
    struct dk_shm_client *shm = client->session;
    if (!shm)
        return;
    bool is_owner = dk_client_check_owner(client, NULL) == DK_OK;
    struct dk_shm_session *session = shm->live;
    shm->live = NULL;
    if (session && !is_closing && session->buffer_count > 0) {
        dk_shm_session_end(session, is_owner);
        session->next = shm->retired;
        shm->retired = session;
    } else {
        dk_shm_session_free(session, is_owner);
    }
    if (!is_closing)
        return;
    while (shm->retired) {
        session = shm->retired;
        shm->retired = session->next;
        dk_shm_session_free(session, is_owner);
    }
    free(shm);
    client->session = NULL;
}

const struct dk_client_transport dk_client_shm_transport = {
    .name = "shm",
    .can_spin = true,
    .connect = connect_session,
    .disconnect = disconnect,
    .list_models = dk_shm_list_models,
    .find_model = dk_shm_find_model,
    .load_model = dk_shm_load_model,
    .fitting_rows = dk_shm_fitting_rows,
    .submit = submit,
    .progress = progress,
    .check = dk_shm_check_daemon,
    .abandon = abandon,
    .sleep = sleep_until,
    .buffer_acquire = dk_shm_buffer_acquire,
    .buffer_release = dk_shm_buffer_release,
};
