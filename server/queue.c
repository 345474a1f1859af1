/* queue.c: a ring of sequence-numbered cells.
 *
 * A cell whose sequence equals its position is free, position + 1 means filled. The count of admitted jobs is
 * bounded before a cell is claimed, so a claimed cell is always free. What a producer stores and what the
 * consumer looks at before it sleeps is sequentially consistent, as the bell wants it. */
#include "server/queue.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "server/bell.h"

struct cell {
    _Atomic uint64_t sequence;
    struct dk_job *job;
};

struct dk_queue {
    struct dk_bell *bell;
    uint32_t capacity;
    uint64_t mask;
    struct cell *cells;
    _Alignas(64) _Atomic uint64_t tail; /* next position to fill */
    _Atomic uint32_t depth;             /* admitted, not yet popped */
    _Atomic bool is_closed;
    _Alignas(64) uint64_t head; /* consumer only */
};

dk_status dk_queue_new(uint32_t capacity, struct dk_bell *bell, struct dk_queue **out, struct dk_error *error)
{
    uint64_t cell_count = 1;
    while (cell_count < capacity) {
        cell_count *= 2;
    }
    struct dk_queue *queue = aligned_alloc(64, sizeof *queue);
    struct cell *cells = calloc(cell_count, sizeof *cells);
    if (queue == NULL || cells == NULL) {
        free(queue);
        free(cells);
        return dk_fail(error, DK_NO_MEMORY, "cannot allocate a queue of %u jobs", capacity);
    }
    *queue = (struct dk_queue){.bell = bell, .capacity = capacity, .mask = cell_count - 1, .cells = cells};
    for (uint64_t i = 0; i < cell_count; i++) {
        atomic_init(&cells[i].sequence, i);
    }
    *out = queue;
    return DK_OK;
}

void dk_queue_free(struct dk_queue *queue)
{
    if (queue == NULL) {
        return;
    }
    free(queue->cells);
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
    uint64_t position = atomic_fetch_add(&queue->tail, 1);
    struct cell *cell = &queue->cells[position & queue->mask];
    cell->job = job;
    atomic_store(&cell->sequence, position + 1);
    dk_bell_ring(queue->bell);
    return DK_OK;
}

bool dk_queue_has_job(const struct dk_queue *queue)
{
    return atomic_load(&queue->cells[queue->head & queue->mask].sequence) == queue->head + 1;
}

struct dk_job *dk_queue_try_pop(struct dk_queue *queue)
{
    if (!dk_queue_has_job(queue)) {
        return NULL;
    }
    struct cell *cell = &queue->cells[queue->head & queue->mask];
    struct dk_job *job = cell->job;
    atomic_store(&cell->sequence, queue->head + queue->mask + 1);
    queue->head++;
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
