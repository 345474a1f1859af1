/* watchdog.c: what has to be alive for the supervisor to hear WATCHDOG=1. */
#include "server/watchdog.h"

#include "server/bell.h"
#include "server/daemon.h"
#include "server/executor.h"
#include "server/notify.h"

enum { LOOKS_PER_INTERVAL = 4 };

void dk_watchdog_init(struct dk_watchdog *watchdog)
{
    uint64_t interval_us = dk_notify_watchdog_us();
    *watchdog = (struct dk_watchdog){0};
    if (interval_us > 0) {
        uint64_t period_ms = interval_us / 1000u / LOOKS_PER_INTERVAL;
        watchdog->period_ms = period_ms > 0 ? period_ms : 1;
    }
}

static bool has_executor(const struct dk_daemon *daemon)
{
    /* The loading thread publishes the executor with READY; a stop while loading goes to CLOSING without. */
    enum dk_daemon_state state = dk_daemon_get_state(daemon);
    return state == DK_DAEMON_READY || state == DK_DAEMON_DRAINING;
}

void dk_watchdog_look(struct dk_watchdog *watchdog, struct dk_daemon *daemon)
{
    if (has_executor(daemon)) {
        uint64_t progress = dk_executor_progress(daemon->executor);
        bool has_stood_still = progress == watchdog->last_progress;
        watchdog->last_progress = progress;
        dk_bell_ring(daemon->bell);
        if (has_stood_still) {
            return;
        }
    }
    dk_notify_plain("WATCHDOG=1");
}
