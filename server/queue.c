/* queue.c: a ring of sequence-numbered cells for each level.
 *
 * A cell whose sequence equals its position is free, position + 1 means filled. The count of admitted jobs is
 * bounded before a cell is claimed, so a claimed cell is always free. What a producer stores and what the
 * consumer looks at before it sleeps is sequentially consistent, as the bell wants it. */
#include "server/queue.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "server/bell.h"
#include "server/job.h"

struct cell {
    _Atomic uint64_t sequence;
    struct dk_job *job;
};

struct ring {
    struct cell *cells;
    _Alignas(64) _Atomic uint64_t tail; /* next position to fill */
    _Alignas(64) uint64_t head;         /* consumer only */
};

struct dk_queue {
    struct dk_bell *bell;
    uint32_t capacity;
    uint64_t mask;
    struct ring rings[DK_JOB_LEVEL_COUNT];
    _Alignas(64) _Atomic uint32_t depth; /* admitted to any ring, not yet popped */
    _Atomic bool is_closed;
    uint32_t passed_count; /* consumer only: jobs served since one of a worse level had to wait for them */
};

static const enum dk_job_level best_first[DK_JOB_LEVEL_COUNT] = {DK_JOB_HIGH, DK_JOB_NORMAL, DK_JOB_LOW};

dk_status dk_queue_new(uint32_t capacity, struct dk_bell *bell, struct dk_queue **out, struct dk_error *error)
{
    uint64_t cell_count = 1;
    while (cell_count < capacity) {
        cell_count *= 2;
    }
    struct dk_queue *queue = aligned_alloc(64, sizeof *queue);
    struct cell *cells = calloc(cell_count * DK_JOB_LEVEL_COUNT, sizeof *cells);
    if (queue == NULL || cells == NULL) {
        free(queue);
        free(cells);
        return dk_fail(error, DK_NO_MEMORY, "cannot allocate a queue of %u jobs", capacity);
    }
    *queue = (struct dk_queue){.bell = bell, .capacity = capacity, .mask = cell_count - 1};
    for (int level = 0; level < DK_JOB_LEVEL_COUNT; level++) {
        queue->rings[level].cells = cells + (uint64_t)level * cell_count;
        for (uint64_t i = 0; i < cell_count; i++) {
            atomic_init(&queue->rings[level].cells[i].sequence, i);
        }
    }
    *out = queue;
    return DK_OK;
}

void dk_queue_free(struct dk_queue *queue)
{
    if (queue == NULL) {
        return;
    }
    free(queue->rings[0].cells);
    free(queue);
}

dk_status dk_queue_push(struct dk_queue *queue, struct dk_job *job, struct dk_error *error)
{
    /* Counted before looking at is_closed, as the consumer leaves only when it saw closed and then depth 0.
     */
    bool is_full = atomic_fetch_add(&queue->depth, 1) >= queue->capacity;
    bool is_closed = atomic_load(&queue->is_closed);
    if (is_full || is_closed) {
        atomic_fetch_sub(&queue->depth, 1);
        return is_closed
                   ? dk_fail(error, DK_UNAVAILABLE, "the daemon is stopping")
                   : dk_fail(error, DK_BUSY, "the queue of %u jobs is full; try again", queue->capacity);
    }
    struct ring *ring = &queue->rings[job->level];
    uint64_t position = atomic_fetch_add(&ring->tail, 1);
    struct cell *cell = &ring->cells[position & queue->mask];
    cell->job = job;
    atomic_store(&cell->sequence, position + 1);
    dk_bell_ring(queue->bell);
    return DK_OK;
}

static bool ring_is_filled(const struct dk_queue *queue, const struct ring *ring)
{
    return atomic_load(&ring->cells[ring->head & queue->mask].sequence) == ring->head + 1;
}

bool dk_queue_has_job(const struct dk_queue *queue)
{
    for (int level = 0; level < DK_JOB_LEVEL_COUNT; level++) {
        if (ring_is_filled(queue, &queue->rings[level])) {
            return true;
        }
    }
    return false;
}

/* The ring to serve next; NULL: all are empty. */
static struct ring *choose_ring(struct dk_queue *queue)
{
    struct ring *best = NULL, *worst = NULL;
    for (int i = 0; i < DK_JOB_LEVEL_COUNT; i++) {
        struct ring *ring = &queue->rings[best_first[i]];
        if (ring_is_filled(queue, ring)) {
            best = best == NULL ? ring : best;
            worst = ring;
        }
    }
    if (best == worst || queue->passed_count >= DK_QUEUE_PASSED_MAX) {
        queue->passed_count = 0;
        return worst;
    }
    queue->passed_count++;
    return best;
}

struct dk_job *dk_queue_try_pop(struct dk_queue *queue)
{
    struct ring *ring = choose_ring(queue);
    if (ring == NULL) {
        return NULL;
    }
    struct cell *cell = &ring->cells[ring->head & queue->mask];
    struct dk_job *job = cell->job;
    atomic_store(&cell->sequence, ring->head + queue->mask + 1);
    ring->head++;
    atomic_fetch_sub(&queue->depth, 1);
    return job;
}

/* A push that was admitted before the close may still be filling its cell: depth tells. */
bool dk_queue_is_finished(const struct dk_queue *queue)
{
    return atomic_load(&queue->is_closed) && atomic_load(&queue->depth) == 0;
}

bool dk_queue_is_closed(const struct dk_queue *queue)
{
    return atomic_load(&queue->is_closed);
}

void dk_queue_close(struct dk_queue *queue)
{
    atomic_store(&queue->is_closed, true);
    dk_bell_ring(queue->bell);
}

uint32_t dk_queue_depth(const struct dk_queue *queue)
{
    return atomic_load(&queue->depth);
}
