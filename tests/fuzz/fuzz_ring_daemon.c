/* fuzz_ring_daemon.c: a daemon that writes anything anywhere in the shared memory, and answers anything: the
 * C client neither reads nor writes outside, reports each request once, and writes results only where it says
 * so. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/shm_client.h"

enum { ENTRIES = 4, DATA_BYTES = 16384, K = 4, N = 3, MAX_ROWS = 300, SLOTS = 64, GUARD = 0x5A };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input, taken from the front; zeros at its end. */
static const uint8_t *input;
static size_t input_bytes;
static struct dk_shm_session *daemon_side; /* of the session that was opened last */

static uint32_t take(size_t bytes)
{
    uint32_t value = 0;
    for (size_t i = 0; i < bytes && input_bytes > 0; i++, input_bytes--)
        value = value << 8 | *input++;
    return value;
}

static void check(bool condition)
{
    if (!condition)
        abort();
}

/* --- instead of shm_connect.c: a session without a socket ---------------------------------------------- */

dk_status dk_shm_session_new(const char *path, uint32_t entry_count, uint64_t data_bytes,
                             uint64_t deadline_ns, struct dk_shm_session **out, struct dk_error *error)
{
    (void)path, (void)deadline_ns;
    struct dk_shm_session *session = calloc(1, sizeof *session);
    check(session && dk_ring_layout_make(entry_count, data_bytes, &session->layout, error) == DK_OK);
    check(dk_area_init(&session->area, session->layout.data_bytes, error) == DK_OK);
    session->places = calloc(entry_count, sizeof *session->places);
    session->mapping =
        aligned_alloc(4096, session->layout.mapping_bytes); /* so that its borders are watched */
    session->doorbell_fd = -1;
    check(session->places && session->mapping);
    memset(session->mapping, 0, session->layout.mapping_bytes);
    dk_ring_format(session->mapping, &session->layout);
    session->ring = dk_ring_at(session->mapping, &session->layout);
    *out = daemon_side = session;
    return DK_OK;
}

void dk_shm_session_end(struct dk_shm_session *session, bool is_owner)
{
    (void)session, (void)is_owner;
}

void dk_shm_session_free(struct dk_shm_session *session, bool is_owner)
{
    (void)is_owner;
    if (!session)
        return;
    dk_area_deinit(&session->area);
    free(session->mapping);
    free(session->places);
    free(session);
}

dk_status dk_shm_send(struct dk_shm_session *session, const union dk_shm_packet *packet, size_t length,
                      uint64_t deadline_ns, struct dk_error *error)
{
    (void)session, (void)packet, (void)length, (void)deadline_ns, (void)error;
    return DK_OK;
}

/* Well-formed as dk_shm_check demands (fuzz_handshake does the rest), otherwise anything. */
dk_status dk_shm_receive(struct dk_shm_session *session, uint64_t deadline_ns, union dk_shm_packet *out,
                         struct dk_error *error)
{
    (void)session;
    uint32_t what = take(1);
    if (deadline_ns == 0 || what % 8 == 0)
        return dk_fail(error, DK_TIMEOUT, "nothing came");
    if (what % 8 == 1)
        return dk_fail(error, DK_UNAVAILABLE, "end of file");
    if (what % 8 < 6) {
        dk_shm_begin(out, DK_SHM_MODEL);
        out->model.model_id = take(1);
        out->model.dtype = what % 8 == 2 ? take(4) : (uint32_t)DK_FP32;
        out->model.n = what % 8 == 3 ? take(4) : (uint64_t)N;
        out->model.k = what % 8 == 4 ? take(4) : (uint64_t)K;
        out->model.epilogue = what / 8 % 8;
        strcpy(out->model.name, what / 64 == 3 ? "a b" : "m");
        return DK_OK;
    }
    dk_shm_begin(out, what % 8 == 6 ? DK_SHM_ERROR : DK_SHM_GOODBYE);
    out->failure.status = take(1);
    strcpy(out->failure.text, "why");
    return DK_OK;
}

/* --- the client's side ---------------------------------------------------------------------------------- */

struct slot {
    bool is_flying, is_copied;
    unsigned char *c; /* ordinary memory: [rows, n] and a guard byte */
    size_t c_bytes;
};
static struct slot slots[SLOTS];
static unsigned next_slot;
static unsigned long submitted, reported;

static void take_report(const struct dk_client_completion *completion)
{
    struct slot *slot = completion->user_data;
    check(slot >= slots && slot < slots + SLOTS && slot->is_flying);
    check((completion->status == DK_OK) == (completion->message == NULL));
    check(slot->c[slot->c_bytes] == GUARD);
    for (size_t i = 0; completion->status != DK_OK && i < slot->c_bytes; i++)
        check(slot->c[i] == GUARD); /* untouched */
    slot->is_flying = false;
    free(slot->c);
    slot->c = NULL;
    reported++;
}

static void poll_all(struct dk_client *client)
{
    struct dk_client_completion done[ENTRIES];
    size_t count = dk_client_poll(client, done, 1 + take(1) % ENTRIES);
    for (size_t i = 0; i < count; i++)
        take_report(&done[i]);
}

static void submit(struct dk_client *client, struct dk_client_model *model, void *buffer)
{
    static float a[MAX_ROWS * K];
    struct slot *slot = &slots[next_slot++ % SLOTS];
    uint32_t rows = take(1) % 4 == 0 ? take(2) % MAX_ROWS : take(1) % 8;
    if (slot->is_flying || !model)
        return;
    slot->c_bytes = rows * N * sizeof(float);
    slot->c = malloc(slot->c_bytes + 1);
    check(slot->c != NULL);
    memset(slot->c, GUARD, slot->c_bytes + 1);
    const void *from = buffer && take(1) % 2 ? (const unsigned char *)buffer + take(1) % 80 : (const void *)a;
    const struct dk_client_request request = {
        .rows = rows, .a = from, .c = slot->c, .user_data = slot, .timeout_ms = 1 + take(1) % 2 * 1000};
    if (from == a || rows * K * sizeof(float) + 80 <= 1024) {
        dk_status status = dk_client_submit(model, &request, NULL);
        slot->is_flying = status == DK_OK;
        submitted += status == DK_OK;
    }
    if (!slot->is_flying) {
        free(slot->c);
        slot->c = NULL;
    }
    (void)client;
}

/* --- the daemon's side ---------------------------------------------------------------------------------- */

/* What a daemon would do, more or less: complete the next request, or the one before once more. */
static void complete(struct dk_client *client)
{
    struct dk_ring *ring = &daemon_side->ring;
    uint32_t tail = ring->header->completion_tail;
    struct dk_ring_submission request = ring->submissions[tail & ring->mask];
    struct dk_ring_completion completion = {.user_data = request.user_data,
                                            .status = take(1) % 64 ? 0 : take(1)};
    completion.detail = take(1) % 24;
    if (take(1) % 8 == 7)
        completion = ring->completions[(tail - 1) & ring->mask];
    ring->completions[tail & ring->mask] = completion;
    if (ring->header->submission_tail != tail)
        dk_ring_publish_completions(ring->header, tail + 1);
    (void)client;
}

static void scribble(void)
{
    uint32_t where = take(1) % 2 ? take(2) % 1024 : take(2) % (uint32_t)daemon_side->layout.mapping_bytes;
    uint32_t value = take(4);
    size_t bytes = 1 + take(1) % 4;
    if (where + bytes <= daemon_side->layout.mapping_bytes)
        memcpy((unsigned char *)daemon_side->mapping + where, &value, bytes);
}

/* --- one run -------------------------------------------------------------------------------------------- */

static void run(struct dk_client *client)
{
    struct dk_client_model *model = NULL, *other;
    void *buffer = NULL;
    float c[MAX_ROWS * N];
    static const float a[MAX_ROWS * K];
    while (input_bytes > 0) {
        switch (take(1) % 12) {
        case 0:
            if (dk_client_model_open(client, "m", &other, NULL) == DK_OK) {
                const struct dk_client_model_info *info = dk_client_model_get_info(other);
                if (!model && info->n == N && info->k == K)
                    model = other; /* the sizes of the buffers here */
                else
                    dk_client_model_close(other);
            }
            break;
        case 1:
            (void)dk_client_reconnect(client, NULL);
            break;
        case 2:
            dk_client_buffer_release(client, buffer);
            if (dk_client_buffer_acquire(client, 1024, &buffer, NULL) != DK_OK)
                buffer = NULL;
            break;
        case 3:
        case 4:
            scribble();
            break;
        case 5:
        case 6:
            complete(client);
            break;
        case 7:
            if (model && take(1) % 8 == 0) {
                const struct dk_client_request request = {
                    .rows = take(2) % MAX_ROWS, .a = a, .c = c, .timeout_ms = 1};
                (void)dk_client_infer(model, &request, NULL, NULL);
            }
            break;
        case 8:
            poll_all(client);
            break;
        default:
            submit(client, model, buffer);
        }
        struct dk_client_info info;
        dk_client_get_info(client, &info);
        check(submitted == reported + info.in_flight);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input = data;
    input_bytes = size;
    submitted = reported = next_slot = 0;
    struct dk_client *client;
    const struct dk_client_options options = {
        .data_bytes = DATA_BYTES, .ring_entries = ENTRIES, .spin_us = DK_CLIENT_NO_SPIN};
    check(dk_client_open("unix:/fuzz", &options, &client, NULL) == DK_OK);
    run(client);
    dk_client_close(client);
    for (unsigned i = 0; i < SLOTS; i++) {
        free(slots[i].c);
        slots[i] = (struct slot){0};
    }
    return 0;
}
