/* notify.c: the notification socket of systemd, through libsystemd. */
#include "server/notify.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/log.h"

#ifdef DK_HAVE_SYSTEMD
#include <systemd/sd-daemon.h>

void dk_notify_plain(const char *assignments)
{
    int result = sd_notify(0, assignments);
    static struct dk_log_limit limiter;
    if (result < 0 && dk_log_allow(&limiter, 1)) {
        dk_log(DK_LOG_WARN, "notify_failed", "error=%s", strerror(-result));
    }
}

uint64_t dk_notify_watchdog_us(void)
{
    uint64_t interval_us = 0;
    int result = sd_watchdog_enabled(0, &interval_us);
    if (result < 0) {
        dk_log(DK_LOG_WARN, "watchdog_ignored", "error=%s", strerror(-result));
    }
    return result > 0 ? interval_us : 0;
}

void dk_notify_check(void)
{
}

#else

void dk_notify_plain(const char *assignments)
{
    (void)assignments;
}

uint64_t dk_notify_watchdog_us(void)
{
    return 0;
}

void dk_notify_check(void)
{
    if (getenv("NOTIFY_SOCKET") != NULL) {
        dk_log(DK_LOG_WARN, "notify_unavailable", "reason=%s",
               "built without libsystemd: use Type=exec and no WatchdogSec");
    }
}

#endif

void dk_notify(const char *assignments, const char *status_format, ...)
{
    char status[512], text[640];
    va_list arguments;
    va_start(arguments, status_format);
    (void)vsnprintf(status, sizeof status, status_format, arguments);
    va_end(arguments);
    for (char *at = status; *at != '\0'; at++) {
        if (iscntrl((unsigned char)*at)) {
            *at = ' ';
        }
    }
    (void)snprintf(text, sizeof text, "%s\nSTATUS=%s", assignments, status);
    dk_notify_plain(text);
}
