/* test_rings.c: sessions through a real executor: in, served beside others, woken on both sides, out again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "server/bell.h"
#include "server/executor.h"
#include "server/job.h"
#include "server/queue.h"
#include "server/rings.h"
#include "server/shm_models.h"
#include "tests/unit/server/ring_fixture.h"

enum { SESSIONS = 3, REQUESTS = 3000 };

struct client {
    struct dk_shm_session session;
    struct dk_ring_layout layout;
    void *mapping;
    int doorbell_fd;
    uint32_t model_id;
    bool does_sleep;
    uint64_t wrong_count, sleep_count, ring_count;
};

struct world {
    struct dk_engine *engine;
    struct dk_bell *bell;
    struct dk_queue *queue;
    struct dk_rings *rings;
    struct dk_executor *executor;
    struct client clients[SESSIONS];
    _Atomic int released_count;
};

static void on_released(void *context)
{
    struct world *world = context;
    atomic_fetch_add(&world->released_count, 1);
}

static void open_client(struct world *world, struct client *client, uint32_t entries)
{
    assert_int_equal(dk_ring_layout_make(entries, 1 << 16, &client->layout, NULL), DK_OK);
    client->mapping = aligned_alloc(4096, client->layout.mapping_bytes);
    assert_non_null(client->mapping);
    memset(client->mapping, 0, client->layout.mapping_bytes);
    dk_ring_format(client->mapping, &client->layout);
    assert_int_equal(dk_shm_session_init(&client->session, client->mapping, &client->layout, NULL, NULL),
                     DK_OK);
    assert_int_equal(dk_shm_models_push(client->session.models, ring_model_new(world->engine, "m", 1),
                                        &client->model_id, NULL),
                     DK_OK);
    client->doorbell_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    assert_int_equal(dk_bell_watch(world->bell, client->doorbell_fd, NULL), DK_OK);
    assert_int_equal(dk_rings_add(world->rings, &client->session, NULL), DK_OK);
}

static void close_client(struct world *world, struct client *client)
{
    dk_bell_unwatch(world->bell, client->doorbell_fd);
    (void)close(client->doorbell_fd);
    dk_shm_session_deinit(&client->session);
    free(client->mapping);
}

static int setup(void **state)
{
    static struct world world;
    struct dk_engine_options engine = {.backend = DK_BACKEND_CPU, .thread_count = 1, .max_tokens = 4};
    memset(&world, 0, sizeof world);
    *state = &world;
    if (dk_engine_new(&engine, &world.engine, NULL) != DK_OK || dk_bell_new(&world.bell, NULL) != DK_OK ||
        dk_queue_new(8, world.bell, &world.queue, NULL) != DK_OK) {
        return -1;
    }
    struct dk_rings_options rings = {
        .capacity = SESSIONS, .bell = world.bell, .on_released = on_released, .context = &world};
    if (dk_rings_new(&rings, &world.rings, NULL) != DK_OK) {
        return -1;
    }
    struct dk_executor_options options = {.engine = world.engine,
                                          .bell = world.bell,
                                          .queue = world.queue,
                                          .rings = world.rings,
                                          .workspace_bytes = 1 << 16};
    return dk_executor_new(&options, &world.executor, NULL) == DK_OK ? 0 : -1;
}

static struct dk_shm_session *await_release(struct world *world)
{
    struct dk_shm_session *session;
    while ((session = dk_rings_take_released(world->rings)) == NULL) { /* a hang is CTest's timeout */
        (void)sched_yield();
    }
    return session;
}

static int teardown(void **state)
{
    struct world *world = *state;
    dk_executor_free(world->executor);
    while (dk_rings_take_released(world->rings) != NULL) {
    }
    dk_rings_free(world->rings);
    dk_queue_free(world->queue);
    dk_bell_free(world->bell);
    dk_engine_free(world->engine);
    return 0;
}

static void ring_doorbell(struct client *client)
{
    if (dk_ring_server_needs_wakeup(client->session.ring.header)) {
        client->ring_count++;
        (void)!write(client->doorbell_fd, &(uint64_t){1}, sizeof(uint64_t));
    }
}

static void wait_for_completion(struct client *client, uint32_t seen)
{
    struct dk_ring_header *header = client->session.ring.header;
    if (!client->does_sleep) {
        (void)sched_yield();
        return;
    }
    if (dk_ring_announce_wait(header, seen)) {
        client->sleep_count++;
        (void)syscall(SYS_futex, &header->client_waits, FUTEX_WAIT, 1, NULL, NULL, 0);
    }
    dk_ring_end_wait(header);
}

/* As a client would: keeps up to entry_count requests in flight, each with its own rows and its own answer.
 */
static void *run_client(void *context)
{
    struct client *client = context;
    struct dk_ring *ring = &client->session.ring;
    uint32_t sent = 0, received = 0, entries = client->layout.entry_count;
    while (received < REQUESTS) {
        bool has_put = false;
        for (; sent < REQUESTS && sent - received < entries; sent++, has_put = true) {
            uint32_t slot = sent % entries;
            float *a = (float *)(void *)(ring->data + slot * 256);
            for (int i = 0; i < RING_K; i++) {
                a[i] = (float)(sent % 1000);
            }
            ring->submissions[sent & ring->mask] = (struct dk_ring_submission){.user_data = sent,
                                                                               .a_offset = slot * 256,
                                                                               .c_offset = slot * 256 + 64,
                                                                               .model_id = client->model_id,
                                                                               .rows = 1,
                                                                               .epilogue = DK_EPILOGUE_NONE};
        }
        if (has_put) {
            dk_ring_publish_submissions(ring->header, sent);
            ring_doorbell(client);
        }
        uint32_t tail = dk_ring_completion_tail(ring->header);
        if (tail == received) {
            wait_for_completion(client, received);
        }
        for (; received != tail; received++) {
            const struct dk_ring_completion *completion = &ring->completions[received & ring->mask];
            const float *c = (const float *)(const void *)(ring->data + (received % entries) * 256 + 64);
            client->wrong_count += completion->user_data != received || completion->status != DK_OK ||
                                   c[0] != (float)(received % 1000) * 4 || c[2] != c[0] * 3;
        }
        dk_ring_release_completions(ring->header, received);
    }
    return NULL;
}

/* Sleeping and polling clients of different depth beside each other: nothing lost, nothing mixed. */
static void test_sessions_are_served_side_by_side_and_woken(void **state)
{
    struct world *world = *state;
    pthread_t threads[SESSIONS];
    static const uint32_t entries[SESSIONS] = {1, 4, 16};
    for (int i = 0; i < SESSIONS; i++) {
        world->clients[i].does_sleep = i != 1;
        open_client(world, &world->clients[i], entries[i]);
        assert_int_equal(pthread_create(&threads[i], NULL, run_client, &world->clients[i]), 0);
    }
    for (int i = 0; i < SESSIONS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(world->clients[i].wrong_count, 0);
        dk_rings_remove(world->rings, &world->clients[i].session, DK_SHM_LEAVE_NOW);
        assert_ptr_equal(await_release(world), &world->clients[i].session);
        close_client(world, &world->clients[i]);
    }
    assert_true(world->clients[0].sleep_count > 0 && world->clients[0].ring_count > 0);
    assert_int_equal(atomic_load(&world->released_count), SESSIONS);
}

static void test_more_sessions_than_places_are_refused(void **state)
{
    struct world *world = *state;
    struct dk_shm_session extra = {0};
    struct dk_error error;
    for (int i = 0; i < SESSIONS; i++) {
        open_client(world, &world->clients[i], 2);
    }
    assert_int_equal(dk_rings_add(world->rings, &extra, &error), DK_BUSY);
    for (int i = 0; i < SESSIONS; i++) {
        dk_rings_remove(world->rings, &world->clients[i].session, DK_SHM_LEAVE_NOW);
        (void)await_release(world);
    }
    for (int i = 0; i < SESSIONS; i++) {
        close_client(world, &world->clients[i]);
    }
}

static void test_broken_session_is_let_go_and_others_go_on(void **state)
{
    struct world *world = *state;
    open_client(world, &world->clients[0], 4);
    open_client(world, &world->clients[1], 4);
    dk_ring_publish_submissions(world->clients[0].session.ring.header, 99);
    ring_doorbell(&world->clients[0]);
    struct dk_shm_session *session = await_release(world);
    assert_ptr_equal(session, &world->clients[0].session);
    assert_int_equal(session->broken_status, DK_BAD_REQUEST);
    assert_int_equal(dk_ring_server_state(session->ring.header), DK_RING_CLOSED);
    (void)run_client(&world->clients[1]);
    assert_int_equal(world->clients[1].wrong_count, 0);
    dk_rings_remove(world->rings, &world->clients[1].session, DK_SHM_LEAVE_NOW);
    (void)await_release(world);
    close_client(world, &world->clients[0]);
    close_client(world, &world->clients[1]);
}

/* A client that sleeps when its session ends must not sleep for ever. */
static void *sleep_until_closed(void *context)
{
    struct client *client = context;
    struct dk_ring_header *header = client->session.ring.header;
    while (dk_ring_server_state(header) != DK_RING_CLOSED) {
        wait_for_completion(client, 0);
    }
    return NULL;
}

static void test_sleeping_client_is_woken_when_the_daemon_stops(void **state)
{
    struct world *world = *state;
    struct client *client = &world->clients[0];
    pthread_t thread;
    client->does_sleep = true;
    open_client(world, client, 4);
    assert_int_equal(pthread_create(&thread, NULL, sleep_until_closed, client), 0);
    (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL); /* asleep by now, as a rule */
    dk_rings_close(world->rings);
    dk_rings_remove(world->rings, &client->session, DK_SHM_LEAVE_WHEN_DONE);
    assert_ptr_equal(await_release(world), &client->session);
    assert_int_equal(pthread_join(thread, NULL), 0);
    close_client(world, client);
}

static void test_executor_that_ends_gives_every_session_back(void **state)
{
    struct world *world = *state;
    struct dk_error error;
    open_client(world, &world->clients[0], 4);
    open_client(world, &world->clients[1], 4);
    dk_executor_free(world->executor);
    world->executor = NULL;
    assert_non_null(dk_rings_take_released(world->rings));
    assert_non_null(dk_rings_take_released(world->rings));
    assert_null(dk_rings_take_released(world->rings));
    assert_int_equal(dk_rings_add(world->rings, &world->clients[0].session, &error), DK_UNAVAILABLE);
    close_client(world, &world->clients[0]);
    close_client(world, &world->clients[1]);
}

/* The count of a doorbell that its client filled up is never read: other ways to wake the executor still do.
 */
static void test_full_doorbell_blocks_nobody(void **state)
{
    struct world *world = *state;
    struct client *client = &world->clients[0], *other = &world->clients[1];
    client->does_sleep = other->does_sleep = true;
    open_client(world, client, 4);
    open_client(world, other, 4);
    assert_int_equal(write(client->doorbell_fd, &(uint64_t){UINT64_MAX - 1}, sizeof(uint64_t)),
                     sizeof(uint64_t));
    assert_int_equal(write(client->doorbell_fd, &(uint64_t){1}, sizeof(uint64_t)), -1);
    assert_int_equal(errno, EAGAIN);
    (void)run_client(other);
    assert_int_equal(other->wrong_count, 0);
    uint64_t count;
    assert_int_equal(read(client->doorbell_fd, &count, sizeof count), sizeof count); /* as PROTOCOL.md says */
    (void)run_client(client);
    assert_int_equal(client->wrong_count, 0);
    for (int i = 0; i < 2; i++) {
        dk_rings_remove(world->rings, &world->clients[i].session, DK_SHM_LEAVE_NOW);
        (void)await_release(world);
        close_client(world, &world->clients[i]);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_sessions_are_served_side_by_side_and_woken),
        TEST(test_more_sessions_than_places_are_refused),
        TEST(test_broken_session_is_let_go_and_others_go_on),
        TEST(test_sleeping_client_is_woken_when_the_daemon_stops),
        TEST(test_executor_that_ends_gives_every_session_back),
        TEST(test_full_doorbell_blocks_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
