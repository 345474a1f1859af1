/* log.c: log lines: a template of pairs and its arguments in, one escaped line out. */
#include "server/log.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "proto/utf8.h"
#include "server/clock.h"
#include "server/log_escape.h"

enum { VALUE_BYTES = 1024, SPEC_BYTES = 16 };

static struct {
    enum dk_log_level level;
    enum dk_log_format format;
    locale_t c_locale; /* decimal points stay points whatever the process's locale */
} logger = {DK_LOG_INFO, DK_LOG_FORMAT_KV, (locale_t)0};

static const char *const level_names[] = {"error", "warn", "info", "debug"};

void dk_log_init(enum dk_log_level level, enum dk_log_format format)
{
    logger.level = level;
    logger.format = format;
    if (logger.c_locale == (locale_t)0)
        logger.c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

bool dk_log_enabled(enum dk_log_level level)
{
    return level <= logger.level;
}

bool dk_log_allow(struct dk_log_limit *limit, unsigned per_second)
{
    /* + 1: a zeroed limit belongs to no second */
    unsigned long long second = dk_clock_now_ns() / 1000000000u + 1;
    unsigned long long seen = atomic_load_explicit(&limit->window, memory_order_relaxed);
    for (;;) {
        unsigned long long used = seen >> 16 == second ? seen & 0xffffu : 0;
        if (used >= per_second || used == 0xffffu)
            return false;
        if (atomic_compare_exchange_weak_explicit(&limit->window, &seen, second << 16 | (used + 1),
                                                  memory_order_relaxed, memory_order_relaxed))
            return true;
    }
}

/* One value under construction. */
struct value {
    char text[VALUE_BYTES];
    size_t length;
    bool is_cut, has_literal, has_text;
    unsigned conversion_count;
};

static void value_append(struct value *value, const char *bytes, size_t length)
{
    size_t room = sizeof value->text - value->length;
    if (length > room)
        value->is_cut = true;
    size_t take = length < room ? length : room;
    memcpy(value->text + value->length, bytes, take);
    value->length += take;
}

static void value_append_spec(struct value *value, int written, const char *bytes, size_t size)
{
    if (written < 0)
        value_append(value, "?", 1);
    else
        value_append(value, bytes, (size_t)written < size ? (size_t)written : size - 1);
}

/* Length modifiers that change the size of the argument. */
enum width { WIDTH_INT, WIDTH_LONG, WIDTH_LONG_LONG, WIDTH_SIZE, WIDTH_MAX, WIDTH_PTRDIFF };

static enum width scan_width(const char **cursor)
{
    const char *at = *cursor;
    enum width width = WIDTH_INT;
    if (at[0] == 'h')
        at += at[1] == 'h' ? 2 : 1; /* promoted to int by the call */
    else if (at[0] == 'l' && at[1] == 'l')
        at += 2, width = WIDTH_LONG_LONG;
    else if (at[0] == 'l')
        at += 1, width = WIDTH_LONG;
    else if (at[0] == 'z')
        at += 1, width = WIDTH_SIZE;
    else if (at[0] == 'j')
        at += 1, width = WIDTH_MAX;
    else if (at[0] == 't')
        at += 1, width = WIDTH_PTRDIFF;
    *cursor = at;
    return width;
}

static uintmax_t take_integer(va_list *arguments, enum width width, bool is_signed)
{
    switch (width) {
    case WIDTH_LONG:
        return is_signed ? (uintmax_t)va_arg(*arguments, long) : va_arg(*arguments, unsigned long);
    case WIDTH_LONG_LONG:
        return is_signed ? (uintmax_t)va_arg(*arguments, long long) : va_arg(*arguments, unsigned long long);
    case WIDTH_SIZE: // NOLINT(bugprone-branch-clone): equal to the next here, not everywhere
        return is_signed ? (uintmax_t)va_arg(*arguments, ssize_t) : va_arg(*arguments, size_t);
    case WIDTH_MAX:
        return is_signed ? (uintmax_t)va_arg(*arguments, intmax_t) : va_arg(*arguments, uintmax_t);
    case WIDTH_PTRDIFF:
        return (uintmax_t)va_arg(*arguments, ptrdiff_t);
    case WIDTH_INT:
        break;
    }
    return is_signed ? (uintmax_t)va_arg(*arguments, int) : va_arg(*arguments, unsigned);
}

/* Flags, width and precision, with `*` resolved: "%-08.3" is copied to `spec`. */
static void scan_flags(const char **cursor, va_list *arguments, char spec[SPEC_BYTES], int *precision)
{
    char flags[6] = "";
    size_t flag_count = 0;
    int numbers[2] = {-1, -1};
    const char *at = *cursor;
    for (; *at != '\0' && strchr("-+ #0", *at) != NULL; at++) {
        if (flag_count < sizeof flags - 1)
            flags[flag_count++] = *at;
    }
    for (int i = 0; i < 2; i++) {
        if (i == 1 && *at != '.')
            break;
        if (i == 1)
            at++, numbers[1] = 0;
        if (*at == '*')
            at++, numbers[i] = va_arg(*arguments, int);
        for (; *at >= '0' && *at <= '9'; at++)
            numbers[i] = (numbers[i] > 0 ? numbers[i] : 0) * 10 + (*at - '0');
    }
    int width = numbers[0] < 0 ? 0 : numbers[0] % 100; /* a log line needs no wider column */
    *precision = numbers[1];
    if (width > 0 && numbers[1] >= 0)
        (void)snprintf(spec, SPEC_BYTES, "%%%.5s%d.%d", flags, width, numbers[1] % 100);
    else if (numbers[1] >= 0)
        (void)snprintf(spec, SPEC_BYTES, "%%%.5s.%d", flags, numbers[1] % 100);
    else if (width > 0)
        (void)snprintf(spec, SPEC_BYTES, "%%%.5s%d", flags, width);
    else
        (void)snprintf(spec, SPEC_BYTES, "%%%.5s", flags);
    *cursor = at;
}

static void append_double(struct value *value, const char *spec, double number)
{
    char text[160];
    locale_t before = logger.c_locale == (locale_t)0 ? (locale_t)0 : uselocale(logger.c_locale);
    value_append_spec(value, snprintf(text, sizeof text, spec, number), text, sizeof text);
    if (before != (locale_t)0)
        (void)uselocale(before);
}

static void append_string(struct value *value, const char *text, int precision)
{
    if (text == NULL)
        text = "(null)";
    value_append(value, text, precision >= 0 ? strnlen(text, (size_t)precision) : strlen(text));
}

/* *cursor stands behind '%'. */
static void append_conversion(struct value *value, const char **cursor, va_list *arguments)
{
    char spec[SPEC_BYTES + 4], text[128];
    int precision = -1;
    scan_flags(cursor, arguments, spec, &precision);
    enum width width = scan_width(cursor);
    char type = **cursor;
    if (type != '\0')
        (*cursor)++;
    size_t end = strlen(spec);
    bool is_signed = type == 'd' || type == 'i';
    value->conversion_count++;
    switch (type) {
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
        (void)snprintf(spec + end, sizeof spec - end, "j%c", type);
        value_append_spec(value, snprintf(text, sizeof text, spec, take_integer(arguments, width, is_signed)),
                          text, sizeof text);
        value->has_text |= type == 'x' || type == 'X';
        break;
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G':
        (void)snprintf(spec + end, sizeof spec - end, "%c", type);
        append_double(value, spec, va_arg(*arguments, double));
        break;
    case 's':
        append_string(value, va_arg(*arguments, const char *), precision);
        value->has_text = true;
        break;
    case 'c':
        text[0] = (char)va_arg(*arguments, int);
        value_append(value, text, 1);
        value->has_text = true;
        break;
    case 'p':
        value_append_spec(value, snprintf(text, sizeof text, "%p", va_arg(*arguments, void *)), text,
                          sizeof text);
        value->has_text = true;
        break;
    case '%':
        value->conversion_count--;
        value->has_literal = true;
        value_append(value, "%", 1);
        break;
    default:
        assert(false && "conversion not in the list of log.h");
    }
}

static void value_end_with_dots(struct value *value)
{
    value->length = dk_utf8_whole_prefix(value->text, sizeof value->text - 3);
    memcpy(value->text + value->length, "...", 3);
    value->length += 3;
}

/* Fills `value` from the template up to the end of the pair; returns where the next pair starts. */
static const char *fill_value(struct value *value, const char *at, va_list *arguments)
{
    bool is_quoted = *at == '"';
    at += is_quoted;
    while (*at != '\0' && *at != (is_quoted ? '"' : ' ')) {
        if (*at == '%') {
            at++;
            append_conversion(value, &at, arguments);
        } else {
            value_append(value, at++, 1);
            value->has_literal = true;
        }
    }
    at += *at == '"';
    while (*at == ' ')
        at++;
    if (value->is_cut)
        value_end_with_dots(value);
    return at;
}

static bool value_is_number(const struct value *value)
{
    if (value->conversion_count != 1 || value->has_literal || value->has_text || value->length == 0)
        return false;
    for (size_t i = 0; i < value->length; i++) { /* not "nan", "inf" or a padded column */
        if (strchr("0123456789-.e", value->text[i]) == NULL)
            return false;
    }
    return true;
}

static void append_time(struct dk_log_line *line)
{
    struct timespec now = {0};
    struct tm utc = {0};
    char text[40];
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &utc);
    int length =
        snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", utc.tm_year + 1900, utc.tm_mon + 1,
                 utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, (int)(now.tv_nsec / 1000000));
    dk_log_line_pair(line, "time", 4, text, (size_t)length, false);
}

static void write_line(const char *bytes, size_t length)
{
    while (length > 0) { /* one call in practice; a signal or a nearly full disk can split it */
        ssize_t written = write(STDERR_FILENO, bytes, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return;
        bytes += written;
        length -= (size_t)written;
    }
}

void dk_log(enum dk_log_level level, const char *event, const char *pairs, ...)
{
    if (!dk_log_enabled(level))
        return;
    int saved_errno = errno;
    struct dk_log_line line;
    dk_log_line_init(&line, logger.format == DK_LOG_FORMAT_JSON);
    append_time(&line);
    dk_log_line_pair(&line, "level", 5, level_names[level], strlen(level_names[level]), false);
    dk_log_line_pair(&line, "event", 5, event, strlen(event), false);
    va_list arguments;
    va_start(arguments, pairs);
    for (const char *at = pairs; *at != '\0';) {
        const char *equals = strchr(at, '=');
        assert(equals != NULL && "a pair is key=value");
        if (equals == NULL)
            break;
        struct value value;
        value.length = 0;
        value.is_cut = value.has_literal = value.has_text = false;
        value.conversion_count = 0;
        const char *next = fill_value(&value, equals + 1, &arguments);
        dk_log_line_pair(&line, at, (size_t)(equals - at), value.text, value.length, value_is_number(&value));
        at = next;
    }
    va_end(arguments);
    dk_log_line_finish(&line);
    write_line(line.text, line.length);
    errno = saved_errno;
}
