/* load_schedule.h: when requests of an open loop are due: constant or Poisson arrivals. */
#ifndef DK_CLIENT_LOAD_SCHEDULE_H
#define DK_CLIENT_LOAD_SCHEDULE_H

#include <stdint.h>

#include "client/random.h"

enum dk_arrivals { DK_ARRIVALS_POISSON, DK_ARRIVALS_CONSTANT };

/* One stream of arrivals. Plain data. */
struct dk_load_schedule {
    enum dk_arrivals arrivals;
    struct dk_random random;
    double interval_ns; /* mean */
    double next_ns;     /* since the start of the schedule: no rounding error piles up */
};

/* Stream `index` of `count` which together make `rate` arrivals a second; constant streams are interleaved
 * evenly. Equal seeds give equal schedules. */
void dk_load_schedule_init(struct dk_load_schedule *schedule, enum dk_arrivals arrivals, double rate,
                           uint32_t index, uint32_t count, uint64_t seed);
/* The next arrival, nanoseconds since the start; never before the one before it. */
uint64_t dk_load_schedule_peek(const struct dk_load_schedule *schedule);
void dk_load_schedule_advance(struct dk_load_schedule *schedule);

#endif
