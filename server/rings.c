/* rings.c: an inbox and an outbox under a mutex; the executor's array needs none. */
#include "server/rings.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "server/bell.h"

/* Of one session before the next has its turn: enough to amortise the look at its ring, and too few for a
 * neighbour to notice. Large pieces end a turn sooner. */
enum { PIECES_PER_TURN = 16 };

struct dk_rings {
    struct dk_rings_options options;
    pthread_mutex_t mutex; /* the lists, the counts and every session's `leave`; held for pointers only */
    struct dk_shm_session *added, *released;
    uint32_t out_count; /* sessions not taken back */
    bool is_ended, is_closing;
    _Atomic bool has_news; /* something in the lists changed: the executor must look */
    uint32_t count;        /* executor only, from here on */
    struct place {
        struct dk_shm_session *session;
    } places[];
};

dk_status dk_rings_new(const struct dk_rings_options *options, struct dk_rings **out, struct dk_error *error)
{
    struct dk_rings *rings = calloc(1, sizeof *rings + options->capacity * sizeof rings->places[0]);
    if (rings == NULL) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for %u sessions", options->capacity);
    }
    rings->options = *options;
    (void)pthread_mutex_init(&rings->mutex, NULL); /* a default mutex cannot fail on Linux */
    *out = rings;
    return DK_OK;
}

void dk_rings_free(struct dk_rings *rings)
{
    if (rings == NULL) {
        return;
    }
    assert(rings->out_count == 0);
    (void)pthread_mutex_destroy(&rings->mutex);
    free(rings);
}

void dk_rings_set_listener(struct dk_rings *rings, void (*on_released)(void *context), void *context)
{
    (void)pthread_mutex_lock(&rings->mutex);
    rings->options.on_released = on_released;
    rings->options.context = context;
    (void)pthread_mutex_unlock(&rings->mutex);
}

/* Under the mutex. */
static void put_released(struct dk_rings *rings, struct dk_shm_session *session)
{
    session->next = rings->released;
    rings->released = session;
    if (rings->options.on_released != NULL) {
        rings->options.on_released(rings->options.context);
    }
}

static void tell_executor(struct dk_rings *rings)
{
    atomic_store(&rings->has_news, true);
    dk_bell_ring(rings->options.bell);
}

dk_status dk_rings_add(struct dk_rings *rings, struct dk_shm_session *session, struct dk_error *error)
{
    dk_status status = DK_OK;
    (void)pthread_mutex_lock(&rings->mutex);
    if (rings->out_count == rings->options.capacity) {
        status = dk_fail(error, DK_BUSY, "%u sessions are open, the limit", rings->out_count);
    } else if (rings->is_ended) {
        status = dk_fail(error, DK_UNAVAILABLE, "the daemon is stopping");
    } else {
        rings->out_count++;
        session->next = rings->added;
        rings->added = session;
    }
    (void)pthread_mutex_unlock(&rings->mutex);
    if (status == DK_OK) {
        tell_executor(rings);
    }
    return status;
}

void dk_rings_remove(struct dk_rings *rings, struct dk_shm_session *session, enum dk_shm_leave leave)
{
    (void)pthread_mutex_lock(&rings->mutex);
    session->leave = leave > session->leave ? leave : session->leave;
    (void)pthread_mutex_unlock(&rings->mutex);
    tell_executor(rings);
}

void dk_rings_close(struct dk_rings *rings)
{
    (void)pthread_mutex_lock(&rings->mutex);
    rings->is_closing = true;
    (void)pthread_mutex_unlock(&rings->mutex);
    tell_executor(rings);
}

struct dk_shm_session *dk_rings_take_released(struct dk_rings *rings)
{
    (void)pthread_mutex_lock(&rings->mutex);
    struct dk_shm_session *session = rings->released;
    if (session != NULL) {
        rings->released = session->next;
        rings->out_count--;
    }
    (void)pthread_mutex_unlock(&rings->mutex);
    return session;
}

/* Under the mutex; the last one takes the free place. */
static void let_go(struct dk_rings *rings, uint32_t index)
{
    struct dk_shm_session *session = rings->places[index].session;
    dk_shm_session_end(session);
    rings->places[index].session = rings->places[--rings->count].session;
    put_released(rings, session);
}

/* Under the mutex. */
static bool must_leave(const struct dk_shm_session *session)
{
    return session->leave == DK_SHM_LEAVE_NOW ||
           (session->leave == DK_SHM_LEAVE_WHEN_DONE && dk_shm_session_is_done(session));
}

static void look_at_news(struct dk_rings *rings)
{
    atomic_store(&rings->has_news, false);
    (void)pthread_mutex_lock(&rings->mutex);
    while (rings->added != NULL) {
        struct dk_shm_session *session = rings->added;
        rings->added = session->next;
        rings->places[rings->count++].session = session;
    }
    for (uint32_t i = 0; i < rings->count;) {
        struct dk_shm_session *session = rings->places[i].session;
        if (rings->is_closing || session->leave == DK_SHM_LEAVE_WHEN_DONE) {
            dk_shm_session_close(session);
        }
        if (must_leave(session)) {
            let_go(rings, i);
            continue;
        }
        if (session->leave != DK_SHM_STAY) { /* not done yet: look again after its next turn */
            atomic_store(&rings->has_news, true);
        }
        i++;
    }
    (void)pthread_mutex_unlock(&rings->mutex);
}

static void drop_broken(struct dk_rings *rings, uint32_t index)
{
    (void)pthread_mutex_lock(&rings->mutex);
    let_go(rings, index);
    (void)pthread_mutex_unlock(&rings->mutex);
}

bool dk_rings_turn(struct dk_rings *rings, const struct dk_launcher *launcher, uint64_t *now_ns)
{
    bool has_worked = false;
    if (atomic_load_explicit(&rings->has_news, memory_order_acquire)) {
        look_at_news(rings);
        has_worked = true;
    }
    for (uint32_t i = 0; i < rings->count;) {
        enum dk_shm_turn turn =
            dk_shm_session_turn(rings->places[i].session, launcher, PIECES_PER_TURN, now_ns);
        has_worked |= turn != DK_SHM_IDLE;
        if (turn == DK_SHM_BROKEN) {
            drop_broken(rings, i);
        } else {
            i++;
        }
    }
    return has_worked;
}

bool dk_rings_arm(struct dk_rings *rings)
{
    for (uint32_t i = 0; i < rings->count; i++) {
        dk_ring_set_needs_wakeup(rings->places[i].session->ring.header, true);
    }
    if (atomic_load(&rings->has_news)) {
        return false;
    }
    for (uint32_t i = 0; i < rings->count; i++) {
        if (dk_shm_session_has_work(rings->places[i].session)) {
            return false;
        }
    }
    return true;
}

void dk_rings_disarm(struct dk_rings *rings)
{
    for (uint32_t i = 0; i < rings->count; i++) {
        dk_ring_set_needs_wakeup(rings->places[i].session->ring.header, false);
    }
}

void dk_rings_end(struct dk_rings *rings)
{
    look_at_news(rings);
    (void)pthread_mutex_lock(&rings->mutex);
    rings->is_ended = true;
    while (rings->count > 0) {
        let_go(rings, rings->count - 1);
    }
    while (rings->added != NULL) { /* added since the look */
        struct dk_shm_session *session = rings->added;
        rings->added = session->next;
        dk_shm_session_end(session);
        put_released(rings, session);
    }
    (void)pthread_mutex_unlock(&rings->mutex);
}
