/* pool.h: compute threads that share the tasks of one job; idle ones spin, then sleep. */
#ifndef DK_KERNELS_CPU_POOL_H
#define DK_KERNELS_CPU_POOL_H

#include <stdint.h>

#include "proto/status.h"

enum { DK_POOL_MAX_THREADS = 1024, DK_POOL_DEFAULT_SPIN_US = 50 };

struct dk_pool;

/* Runs task `task_index` of a job on thread `thread_index` (0: the caller of dk_pool_run). */
typedef void (*dk_pool_task)(void *context, uint32_t task_index, uint32_t thread_index);

/* Starts thread_count - 1 threads (1..DK_POOL_MAX_THREADS). DK_UNAVAILABLE when one cannot be started. */
dk_status dk_pool_new(uint32_t thread_count, uint32_t spin_us, struct dk_pool **out, struct dk_error *error);
void dk_pool_free(struct dk_pool *pool); /* NULL-safe; no job may be running */

/* Runs tasks 0..task_count-1 and returns when all are done; the caller works too. Each thread starts with
 * its own contiguous share, the same at every call (its weights stay in its cache), and helps the others
 * when that is done, so a thread that is late or not scheduled at all delays only the task it holds. What a
 * task wrote is visible to the caller on return. Thread: one caller at a time. */
void dk_pool_run(struct dk_pool *pool, dk_pool_task task, void *context, uint32_t task_count);

#endif
