/* load_schedule.c: constant and Poisson arrivals. */
#include "client/load_schedule.h"

#include <math.h>

/* Exponential with mean 1; the argument of the logarithm is in (0, 1]. */
static double exponential(struct dk_random *random)
{
    return -log((double)((dk_random_u64(random) >> 11) + 1) * 0x1p-53);
}

void dk_load_schedule_init(struct dk_load_schedule *schedule, enum dk_arrivals arrivals, double rate,
                           uint32_t index, uint32_t count, uint64_t seed)
{
    *schedule = (struct dk_load_schedule){.arrivals = arrivals, .interval_ns = 1e9 * count / rate};
    dk_random_init(&schedule->random, seed, index);
    /* Streams of independent Poisson arrivals add up to one; constant ones do when they are offset. */
    if (arrivals == DK_ARRIVALS_POISSON)
        dk_load_schedule_advance(schedule);
    else
        schedule->next_ns = schedule->interval_ns * index / count;
}

uint64_t dk_load_schedule_peek(const struct dk_load_schedule *schedule)
{
    return (uint64_t)schedule->next_ns;
}

void dk_load_schedule_advance(struct dk_load_schedule *schedule)
{
    schedule->next_ns += schedule->arrivals == DK_ARRIVALS_POISSON
                             ? schedule->interval_ns * exponential(&schedule->random)
                             : schedule->interval_ns;
}
