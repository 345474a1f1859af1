/* clock.h: the monotonic clock in nanoseconds. */
#ifndef DK_KERNELS_CPU_CLOCK_H
#define DK_KERNELS_CPU_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t dk_cpu_now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

#endif
