/* clock.h: the one clock of the daemon: CLOCK_MONOTONIC in nanoseconds (wall-clock steps change nothing). */
#ifndef DK_SERVER_CLOCK_H
#define DK_SERVER_CLOCK_H

#include <stdint.h>

uint64_t dk_clock_now_ns(void);

#endif
