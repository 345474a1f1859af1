/* fuzz_ring_client.c: a client that writes anything anywhere in the shared memory at any time, against the
 * executor's half of the ring. A second thread goes on writing while a turn runs, so that what was checked
 * changes before it is used. The address sanitizer sees any access outside the mapping. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/shm_models.h"
#include "tests/unit/server/ring_fixture.h"

static struct ring_fixture fixture;
static _Atomic uint64_t scribble_seed; /* 0: pause */

static void require(int is_true)
{
    if (!is_true) {
        abort();
    }
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

/* Relaxed atomic stores: a race between processes, not a bug of this program. */
static void write_word(uint64_t offset, uint64_t value)
{
    uint64_t at = offset % (fixture.layout.mapping_bytes / sizeof value) * sizeof value;
    atomic_store_explicit((_Atomic uint64_t *)(void *)((char *)fixture.mapping + at), value,
                          memory_order_relaxed);
}

static void *scribble(void *unused)
{
    uint64_t state = 1;
    (void)unused;
    for (;;) {
        uint64_t seed = atomic_load(&scribble_seed);
        if (seed == 0) {
            (void)sched_yield();
            continue;
        }
        state ^= seed;
        state = state == 0 ? 1 : state;
        uint64_t random = next_random(&state);
        /* Mostly the submission entries, where checks and uses are; plausible values as well as wild ones. */
        uint64_t offset = random % 3 == 0
                              ? random >> 8
                              : fixture.layout.submission_offset / 8 + (random >> 8) % (RING_ENTRIES * 8);
        uint64_t value = next_random(&state);
        write_word(offset, random & 16 ? value : value & 0xFFC0);
    }
    return NULL;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    pthread_t thread;
    (void)argc, (void)argv;
    require(ring_fixture_init(&fixture));
    require(pthread_create(&thread, NULL, scribble, NULL) == 0);
    require(pthread_detach(thread) == 0);
    return 0;
}

struct input {
    const uint8_t *data;
    size_t size;
};

static uint64_t take(struct input *input, size_t bytes)
{
    uint64_t value = 0;
    bytes = bytes < input->size ? bytes : input->size;
    memcpy(&value, input->data, bytes);
    input->data += bytes;
    input->size -= bytes;
    return value;
}

/* A session like new, over the same mapping with whatever it holds now. */
static void begin(void)
{
    struct dk_shm_session *session = &fixture.session;
    struct dk_ring_header *header = session->ring.header;
    dk_shm_session_deinit(session);
    memset(header, 0, sizeof *header);
    dk_ring_format(fixture.mapping, &fixture.layout);
    require(dk_shm_session_init(session, fixture.mapping, &fixture.layout, NULL, NULL) == DK_OK);
    require(dk_shm_models_push(session->models, ring_model_new(fixture.engine, "m", 1), &fixture.model_id,
                               NULL) == DK_OK);
    fixture.tail = fixture.head = 0;
}

/* A request that is nearly right: one field comes from the input. */
static void put_plausible(struct input *input)
{
    struct dk_ring_submission request = ring_request(&fixture, take(input, 1));
    uint64_t value = take(input, 8);
    switch (take(input, 1) % 8) {
    case 0:
        request.a_offset = value;
        break;
    case 1:
        request.c_offset = value;
        break;
    case 2:
        request.rows = (uint32_t)value;
        break;
    case 3:
        request.rows = (uint32_t)value % 3000;
        break;
    case 4:
        request.a_dtype = (uint8_t)value;
        request.c_dtype = (uint8_t)(value >> 8);
        break;
    case 5:
        request.epilogue = (uint8_t)value;
        break;
    case 6:
        request.submitted_ns = value;
        request.timeout_us = (uint32_t)value;
        break;
    default:
        request.model_id = (uint32_t)value;
        break;
    }
    ring_put(&fixture, &request);
}

static void check_session(const struct dk_shm_session *session)
{
    uint32_t active = session->is_active ? 1 : 0;
    require(session->submission_head == session->completion_tail + active);
    require(session->submission_tail - session->submission_head <= RING_ENTRIES);
    require(session->completion_tail - session->completion_head <= RING_ENTRIES);
    require(session->ring.data_bytes == fixture.layout.data_bytes && session->entry_count == RING_ENTRIES);
}

/* False when the session was dropped. */
static bool run_turn(struct input *input)
{
    uint32_t limit = (uint32_t)take(input, 1) % 16 + 1;
    atomic_store(&scribble_seed, take(input, 1)); /* every 256th input does without */
    enum dk_shm_turn turn = dk_shm_session_turn(&fixture.session, &fixture.launcher, limit, &fixture.now_ns);
    (void)dk_shm_session_has_work(&fixture.session);
    atomic_store(&scribble_seed, 0);
    if (turn == DK_SHM_BROKEN) {
        require(fixture.session.broken_status != DK_OK && fixture.session.broken.message[0] != '\0');
        return false;
    }
    check_session(&fixture.session);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct dk_shm_session *session = &fixture.session;
    begin();
    for (bool goes_on = true; goes_on && input.size > 0;) {
        switch (take(&input, 1) % 8) {
        case 0:
            write_word(take(&input, 4), take(&input, 8));
            break;
        case 1:
            put_plausible(&input);
            break;
        case 2:
            ring_publish(&fixture);
            break;
        case 3:
            dk_ring_publish_submissions(session->ring.header, (uint32_t)take(&input, 4));
            break;
        case 4:
            dk_ring_release_completions(session->ring.header, take(&input, 1) % 2 ? (uint32_t)take(&input, 4)
                                                                                  : session->completion_tail);
            break;
        case 5:
            require(dk_shm_models_push(session->models, ring_model_new(fixture.engine, "m", 2),
                                       &fixture.model_id, NULL) == DK_OK);
            break;
        case 6:
            if (take(&input, 1) == 0) {
                dk_shm_session_close(session);
            }
            break;
        default:
            goes_on = run_turn(&input);
            break;
        }
    }
    dk_shm_session_end(session);
    return 0;
}
