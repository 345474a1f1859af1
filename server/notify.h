/* notify.h: what the supervisor that started this process (systemd) is told, and what it asks for. Without
 * one, or built without libsystemd, nothing happens. */
#ifndef DK_SERVER_NOTIFY_H
#define DK_SERVER_NOTIFY_H

#include <stdint.h>

/* Sends `assignments` ("READY=1", several with newlines between, or "") and STATUS=, one line of text:
 * control characters of its arguments become spaces, so they cannot add an assignment. A failure is logged
 * once. Thread: any. */
__attribute__((format(printf, 2, 3))) void dk_notify(const char *assignments, const char *status_format, ...);
/* The same without a status. */
void dk_notify_plain(const char *assignments);

/* The supervisor restarts us when it hears no WATCHDOG=1 for this long; 0: it does not watch. */
uint64_t dk_notify_watchdog_us(void);

/* Says in the log when a supervisor expects words that this build cannot say. */
void dk_notify_check(void);

#endif
