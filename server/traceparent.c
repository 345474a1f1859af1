/* traceparent.c: version "-" trace-id "-" parent-id "-" flags, all in lower-case hex. */
#include "server/traceparent.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    VERSION_AT = 0,
    TRACE_AT = 3,
    PARENT_AT = 36,
    FLAGS_AT = 53,
    LENGTH = 55,
    INVALID_VERSION = 0xff,
    FLAG_SAMPLED = 1
};

/* `count` <= 16 digits; upper case is not allowed. */
static bool read_hex(const char *text, int count, uint64_t *out)
{
    uint64_t value = 0;
    for (int i = 0; i < count; i++) {
        unsigned digit;
        if (text[i] >= '0' && text[i] <= '9') {
            digit = (unsigned)(text[i] - '0');
        } else if (text[i] >= 'a' && text[i] <= 'f') {
            digit = (unsigned)(text[i] - 'a') + 10;
        } else {
            return false;
        }
        value = value << 4 | digit;
    }
    *out = value;
    return true;
}

bool dk_traceparent_parse(const char *text, size_t length, struct dk_trace *out)
{
    uint64_t version, parent, flags;
    struct dk_trace trace;
    *out = (struct dk_trace){0};
    if (text == NULL || length < LENGTH || text[TRACE_AT - 1] != '-' || text[PARENT_AT - 1] != '-' ||
        text[FLAGS_AT - 1] != '-' || !read_hex(text + VERSION_AT, 2, &version) ||
        !read_hex(text + TRACE_AT, 16, &trace.high) || !read_hex(text + TRACE_AT + 16, 16, &trace.low) ||
        !read_hex(text + PARENT_AT, 16, &parent) || !read_hex(text + FLAGS_AT, 2, &flags)) {
        return false;
    }
    bool has_more = length > LENGTH;
    if (version == INVALID_VERSION || (has_more && (version == 0 || text[LENGTH] != '-')) || parent == 0 ||
        (trace.high | trace.low) == 0 || (flags & FLAG_SAMPLED) == 0) {
        return false;
    }
    *out = trace;
    return true;
}

void dk_trace_write(const struct dk_trace *trace, char out[DK_TRACE_ID_TEXT_BYTES])
{
    (void)snprintf(out, DK_TRACE_ID_TEXT_BYTES, "%016" PRIx64 "%016" PRIx64, trace->high, trace->low);
}
