/* json_cursor.c: the steps of the cursor; no recursion. */
#include "proto/json_cursor.h"

#include <string.h>

bool dk_json_cursor_take(struct dk_json_cursor *cursor, char byte)
{
    if (cursor->next == cursor->end || *cursor->next != byte) {
        return false;
    }
    cursor->next++;
    return true;
}

bool dk_json_cursor_string(struct dk_json_cursor *cursor, const char **raw, size_t *length)
{
    if (cursor->next == cursor->end || *cursor->next != '"') {
        return false;
    }
    const char *p = cursor->next + 1;
    while (p < cursor->end && *p != '"') {
        p += *p == '\\' ? 2 : 1;
    }
    if (p >= cursor->end) {
        return false;
    }
    *raw = cursor->next + 1;
    *length = (size_t)(p - *raw);
    cursor->next = p + 1;
    return true;
}

static bool is_delimiter(char c)
{
    return c == ',' || c == '}' || c == ']' || c == ':';
}

bool dk_json_cursor_skip(struct dk_json_cursor *cursor)
{
    struct dk_json_cursor at = *cursor;
    size_t depth = 0;
    do {
        const char *raw;
        size_t length;
        if (at.next == at.end) {
            return false;
        }
        char c = *at.next;
        if (c == '"') {
            if (!dk_json_cursor_string(&at, &raw, &length)) {
                return false;
            }
        } else if (c == '{' || c == '[') {
            depth++;
            at.next++;
        } else if (c == '}' || c == ']') {
            if (depth == 0) {
                return false;
            }
            depth--;
            at.next++;
        } else if (is_delimiter(c)) {
            if (depth == 0) {
                return false;
            }
            at.next++;
        } else {
            /* Numbers and literals end at a delimiter; at the end of the text they may be cut. */
            while (at.next < at.end && !is_delimiter(*at.next)) {
                at.next++;
            }
            if (at.next == at.end) {
                return false;
            }
        }
    } while (depth > 0);
    *cursor = at;
    return true;
}

bool dk_json_cursor_u64(struct dk_json_cursor *cursor, uint64_t *out)
{
    const char *p = cursor->next;
    uint64_t value = 0;
    for (; p < cursor->end && *p >= '0' && *p <= '9'; p++) {
        if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value)) {
            return false;
        }
    }
    if (p == cursor->next || p == cursor->end || !is_delimiter(*p)) {
        return false;
    }
    *out = value;
    cursor->next = p;
    return true;
}
