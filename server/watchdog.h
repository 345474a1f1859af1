/* watchdog.h: tells the supervisor that the control loop runs and that the executor gets on with its work. */
#ifndef DK_SERVER_WATCHDOG_H
#define DK_SERVER_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

struct dk_daemon;

struct dk_watchdog {
    uint64_t period_ms;     /* between two looks; 0: nobody watches */
    uint64_t last_progress; /* of the executor at the last look */
};

/* Four looks in the time that the supervisor waits (WATCHDOG_USEC). */
void dk_watchdog_init(struct dk_watchdog *watchdog);
/* One look. Feeds the supervisor's watchdog unless the executor has stood still since the look before. An
 * idle executor is woken to show that it can: it turns once and goes back to sleep. While models are loaded
 * there is no executor, and the running control loop is enough. Thread: the control loop. */
void dk_watchdog_look(struct dk_watchdog *watchdog, struct dk_daemon *daemon);

#endif
