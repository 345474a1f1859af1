/* queue.h: the bounded hand-off from the HTTP threads to the executor. */
#ifndef DK_SERVER_QUEUE_H
#define DK_SERVER_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/status.h"

struct dk_bell;
struct dk_job;
struct dk_queue; /* many producers, one consumer; first in, first out per producer and level */

/* A job of a better level (high, normal, low) goes first, but after so many that went past a waiting one, one
 * of the worst level that waits is served: no level starves. */
enum { DK_QUEUE_PASSED_MAX = 16 };

/* capacity >= 1. `bell` is kept and rung after each push and at the close. */
dk_status dk_queue_new(uint32_t capacity, struct dk_bell *bell, struct dk_queue **out,
                       struct dk_error *error);
void dk_queue_free(struct dk_queue *queue); /* NULL-safe; must be empty */

/* Lock-free. Wakes the consumer only when it sleeps. DK_BUSY: full; DK_UNAVAILABLE: closed. The job belongs
 * to the consumer afterwards. Thread: any. */
dk_status dk_queue_push(struct dk_queue *queue, struct dk_job *job, struct dk_error *error);
/* Next job or NULL at once. Thread: the one consumer. */
struct dk_job *dk_queue_try_pop(struct dk_queue *queue);
/* A job can be popped. Thread: the one consumer. */
bool dk_queue_has_job(const struct dk_queue *queue);
/* Closed, and nothing is left or on its way in. Thread: the one consumer. */
bool dk_queue_is_finished(const struct dk_queue *queue);
/* No further push succeeds; what is queued can still be popped. Thread: any. */
void dk_queue_close(struct dk_queue *queue);
bool dk_queue_is_closed(const struct dk_queue *queue); /* Thread: any. */
uint32_t dk_queue_depth(const struct dk_queue *queue);

#endif
