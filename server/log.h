/* log.h: levelled log lines, key=value or JSON, to stderr. The only mutable global of the daemon. */
#ifndef DK_SERVER_LOG_H
#define DK_SERVER_LOG_H

#include <stdbool.h>

enum dk_log_level { DK_LOG_ERROR, DK_LOG_WARN, DK_LOG_INFO, DK_LOG_DEBUG };
enum dk_log_format { DK_LOG_FORMAT_KV, DK_LOG_FORMAT_JSON };

/* Once, before threads start. Until then: info, key=value. */
void dk_log_init(enum dk_log_level level, enum dk_log_format format);
bool dk_log_enabled(enum dk_log_level level);

/* One line, one write(2) of at most 4,096 bytes (so lines of several threads never mix in a pipe): time (UTC,
 * milliseconds), level, event, then the pairs. `event` is a short static name in snake case. `pairs` is a
 * printf-like template of `key=value` separated by spaces, for example
 *   dk_log(DK_LOG_INFO, "model_loaded", "name=%s n=%llu bytes=%zu", name, n, bytes);
 * A value with spaces in the template stands in double quotes: "reason=\"%s, %d left\"". The template alone
 * decides where pairs start: bytes of arguments are quoted and escaped, so client text forges neither a line
 * nor a key. In JSON a value that is exactly one numeric conversion becomes a number, everything else a
 * string.
 * Conversions: d i u x X c s p f F e E g G and %%, with flags, width, precision (also *), hh h l ll z j t.
 * Values above 1,024 bytes are cut (they end in "..."); pairs that no longer fit the line are left out and
 * `truncated=true` says so. errno is kept. A line that stderr does not take (closed, full and non-blocking)
 * is lost: a daemon must not stop for its log. Thread: any. */
void dk_log(enum dk_log_level level, const char *event, const char *pairs, ...)
    __attribute__((format(printf, 3, 4)));

/* True at most `per_second` times in one second of the monotonic clock for this site: for messages a client
 * can provoke without bound. Zero-initialise (static is enough). per_second <= 65,535. Thread: any. */
struct dk_log_limit {
    _Atomic unsigned long long window; /* second << 16 | lines allowed in it */
};
bool dk_log_allow(struct dk_log_limit *limit, unsigned per_second);

#endif
