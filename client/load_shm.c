/* load_shm.c: requests of the load generator through the C client. */
#include "client/load_shm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COMPLETION_BATCH = 64, MAX_IN_FLIGHT = 4096 };
static const uint64_t retry_ns = 10000000;
/* dk_client_wait counts in milliseconds: nearer than this it would sleep past the next request. */
static const uint64_t near_ns = 2000000;

struct slot {
    void *a, *c;
};

/* The end of a request that is known, but not reported yet. */
struct failure {
    struct dk_load_event event;
    uint64_t not_before_ns;
};

struct session {
    const struct dk_load_shm *shm;
    struct dk_client *client;
    struct dk_client_model *model;
    uint32_t slot_count, in_flight, failure_count;
    struct slot *slots;
    struct failure *failures; /* at most one per slot */
};

/* Sizes of direct buffers are rounded up to a power of two. */
static uint64_t buffer_bytes(uint64_t bytes)
{
    uint64_t rounded = 64;
    while (rounded < bytes)
        rounded *= 2;
    return rounded;
}

static void shm_close(void *opaque)
{
    struct session *session = opaque;
    dk_client_close(session->client); /* its model and buffers go with it */
    for (uint32_t i = 0; session->shm->is_copying && session->slots && i < session->slot_count; i++)
        free(session->slots[i].c);
    free(session->slots);
    free(session->failures);
    free(session);
}

static dk_status open_client(struct session *session, struct dk_error *error)
{
    const struct dk_load_shm *shm = session->shm;
    uint64_t x_bytes = shm->rows * shm->k * dk_dtype_bytes(shm->dtype);
    uint64_t y_bytes = shm->rows * shm->n * sizeof(float);
    /* Twice what is used: buddies of unequal size waste some. */
    struct dk_client_options options = {.data_bytes = 2 * session->slot_count *
                                                      (buffer_bytes(x_bytes) + buffer_bytes(y_bytes)),
                                        .ring_entries = session->slot_count,
                                        .timeout_ms = (uint32_t)(shm->timeout_s * 1e3),
                                        .spin_us = shm->spin_us,
                                        .is_reconnecting = true};
    if (options.data_bytes < 1 << 20)
        options.data_bytes = 1 << 20;
    dk_status status = dk_client_open(shm->address, &options, &session->client, error);
    return status == DK_OK ? dk_client_model_open(session->client, shm->model, &session->model, error)
                           : status;
}

static dk_status make_buffers(struct session *session, struct dk_error *error)
{
    const struct dk_load_shm *shm = session->shm;
    size_t x_bytes = (size_t)(shm->rows * shm->k * dk_dtype_bytes(shm->dtype));
    size_t y_bytes = (size_t)(shm->rows * shm->n * sizeof(float));
    for (uint32_t i = 0; i < session->slot_count; i++) {
        struct slot *slot = &session->slots[i];
        if (shm->is_copying) {
            slot->a = (void *)(uintptr_t)shm->x; /* read only */
            slot->c = malloc(y_bytes > 0 ? y_bytes : 1);
            if (!slot->c)
                return dk_fail(error, DK_NO_MEMORY, "no memory for %u answers of %zu bytes",
                               session->slot_count, y_bytes);
            continue;
        }
        dk_status status = dk_client_buffer_acquire(session->client, x_bytes, &slot->a, error);
        if (status == DK_OK)
            status = dk_client_buffer_acquire(session->client, y_bytes, &slot->c, error);
        if (status != DK_OK)
            return status;
        memcpy(slot->a, shm->x, x_bytes);
    }
    return DK_OK;
}

static dk_status shm_open_session(const void *context, uint32_t slot_count, void **out,
                                  struct dk_error *error)
{
    if (slot_count > MAX_IN_FLIGHT)
        return dk_fail(error, DK_BAD_VALUE, "%u requests in flight in one session; %d is the most",
                       slot_count, MAX_IN_FLIGHT);
    struct session *session = calloc(1, sizeof *session);
    if (!session)
        return dk_fail(error, DK_NO_MEMORY, "no memory for a session");
    session->shm = context;
    session->slot_count = slot_count;
    session->slots = calloc(slot_count, sizeof *session->slots);
    session->failures = calloc(slot_count, sizeof *session->failures);
    dk_status status = session->slots && session->failures
                           ? open_client(session, error)
                           : dk_fail(error, DK_NO_MEMORY, "no memory for %u requests", slot_count);
    if (status == DK_OK)
        status = make_buffers(session, error);
    if (status == DK_OK)
        *out = session;
    else
        shm_close(session);
    return status;
}

/* --- requests ------------------------------------------------------------------------------------------ */

static struct dk_client_request request_of(const struct dk_load_shm *shm, const struct slot *slot)
{
    return (struct dk_client_request){
        .rows = shm->rows, .a = slot->a, .c = slot->c, .a_dtype = shm->dtype, .c_dtype = DK_FP32};
}

static void shm_submit(void *opaque, uint32_t index)
{
    struct session *session = opaque;
    struct dk_client_request request = request_of(session->shm, &session->slots[index]);
    request.user_data = (void *)(uintptr_t)index;
    dk_status status = dk_client_submit(session->model, &request, NULL);
    if (status == DK_OK) {
        session->in_flight++;
        return;
    }
    /* A daemon that is gone must not be asked again at full speed. */
    session->failures[session->failure_count++] =
        (struct failure){{index, status, 0, 0}, dk_load_now_ns() + (status == DK_BUSY ? 0 : retry_ns)};
}

static size_t take_failures(struct session *session, struct dk_load_event *events, size_t capacity)
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

static size_t take_completions(struct session *session, const struct dk_client_completion *completions,
                               size_t completed, struct dk_load_event *events)
{
    uint64_t now_ns = completed > 0 ? dk_load_now_ns() : 0;
    for (size_t i = 0; i < completed; i++)
        events[i] = (struct dk_load_event){(uint32_t)(uintptr_t)completions[i].user_data,
                                           completions[i].status, now_ns, completions[i].timing.kernel_ns};
    session->in_flight -= (uint32_t)completed;
    return completed;
}

/* Nothing was there: wait as fits the time that is left. */
static size_t wait_a_while(struct session *session, uint64_t now_ns, uint64_t until_ns,
                           struct dk_client_completion *completions, size_t capacity)
{
    size_t completed = 0;
    uint64_t left_ns = until_ns - now_ns;
    if (session->failure_count > 0 && left_ns > retry_ns)
        left_ns = retry_ns;
    if (left_ns < near_ns)
        return 0;
    if (session->in_flight > 0) {
        (void)dk_client_wait(session->client, (uint32_t)(left_ns / 1000000u - 1), completions, capacity,
                             &completed, NULL); /* a timeout is no news here */
    } else {
        uint64_t wake_ns = now_ns + left_ns - near_ns / 2;
        const struct timespec wake = {(time_t)(wake_ns / 1000000000u), (long)(wake_ns % 1000000000u)};
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL); /* a signal only wakes earlier */
    }
    return completed;
}

static size_t shm_poll(void *opaque, uint64_t until_ns, struct dk_load_event *events, size_t capacity)
{
    struct session *session = opaque;
    struct dk_client_completion completions[COMPLETION_BATCH];
    size_t room = capacity < COMPLETION_BATCH ? capacity : COMPLETION_BATCH;
    for (;;) {
        size_t count = session->failure_count > 0 ? take_failures(session, events, room) : 0;
        if (count > 0)
            return count;
        size_t completed = dk_client_poll(session->client, completions, room);
        if (completed == 0) {
            uint64_t now_ns = dk_load_now_ns();
            if (now_ns >= until_ns)
                return 0;
            completed = wait_a_while(session, now_ns, until_ns, completions, room);
        }
        if (completed > 0)
            return take_completions(session, completions, completed, events);
    }
}

const struct dk_load_transport dk_load_shm_transport = {
    .open = shm_open_session, .close = shm_close, .submit = shm_submit, .poll = shm_poll, .cancel = NULL};

dk_status dk_load_shm_fetch(const struct dk_load_shm *shm, void *out, struct dk_error *error)
{
    void *opaque;
    dk_status status = shm_open_session(shm, 1, &opaque, error);
    if (status != DK_OK)
        return status;
    struct session *session = opaque;
    struct dk_client_request request = request_of(shm, &session->slots[0]);
    status = dk_client_infer(session->model, &request, NULL, error);
    if (status == DK_OK)
        memcpy(out, request.c, (size_t)(shm->rows * shm->n * sizeof(float)));
    shm_close(session);
    return status;
}
