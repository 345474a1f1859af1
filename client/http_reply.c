/* http_reply.c: parse the head of an answer without copying it. */
#include "client/http_reply.h"

#include <string.h>
#include <strings.h>

/* "HTTP/1.1 200 OK" */
static bool read_status_line(const char *line, size_t length, struct dk_http_reply_head *head)
{
    if (length < 12 || memcmp(line, "HTTP/1.", 7) != 0 || (line[7] != '0' && line[7] != '1') ||
        line[8] != ' ' || (length > 12 && line[12] != ' '))
        return false;
    head->is_last = line[7] == '0';
    for (int i = 9; i < 12; i++) {
        if (line[i] < '0' || line[i] > '9')
            return false;
        head->status = head->status * 10 + (uint32_t)(line[i] - '0');
    }
    return head->status >= 200 && head->status <= 599;
}

/* Up to 18 digits and nothing else. */
static bool read_length(const char *value, size_t length, uint64_t *out)
{
    uint64_t number = 0;
    if (length == 0 || length > 18)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (value[i] < '0' || value[i] > '9')
            return false;
        number = number * 10 + (uint64_t)(value[i] - '0');
    }
    *out = number;
    return true;
}

struct field {
    const char *name, *value;
    size_t name_length, value_length;
};

static bool is_named(const struct field *field, const char *name)
{
    return strlen(name) == field->name_length && strncasecmp(field->name, name, field->name_length) == 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool split_field(const char *line, size_t length, struct field *out)
{
    const char *colon = memchr(line, ':', length);
    if (!colon || colon == line || is_blank(*line) || is_blank(colon[-1]))
        return false;
    const char *value = colon + 1, *end = line + length;
    while (value < end && is_blank(*value))
        value++;
    while (end > value && is_blank(end[-1]))
        end--;
    *out = (struct field){line, value, (size_t)(colon - line), (size_t)(end - value)};
    return true;
}

/* Nanoseconds of "kernel=63.200" (microseconds) in a list of pairs; 0 when there is none. */
static uint64_t read_kernel_ns(const char *list, size_t length)
{
    static const char key[] = "kernel=";
    const char *end = list + length, *at = memmem(list, length, key, sizeof key - 1);
    if (!at || (at > list && !is_blank(at[-1])))
        return 0;
    uint64_t ns = 0, unit_ns = 1000;
    bool is_fraction = false;
    for (at += sizeof key - 1; at < end && ns < 1000000000000000u && unit_ns > 0; at++) {
        if (*at == '.' && !is_fraction) {
            is_fraction = true;
            unit_ns = 100;
        } else if (*at < '0' || *at > '9') {
            break;
        } else if (is_fraction) {
            ns += (uint64_t)(*at - '0') * unit_ns;
            unit_ns /= 10;
        } else {
            ns = ns * 10 + (uint64_t)(*at - '0') * 1000;
        }
    }
    return ns;
}

/* Which fields were met. */
struct seen {
    bool has_length, has_inference;
};

static bool take_field(const struct field *field, struct seen *seen, struct dk_http_reply_head *head)
{
    if (is_named(field, "Content-Length")) {
        bool is_first = !seen->has_length;
        seen->has_length = true;
        return is_first && read_length(field->value, field->value_length, &head->body_bytes);
    }
    if (is_named(field, "Inference-Header-Content-Length")) {
        bool is_first = !seen->has_inference;
        seen->has_inference = true;
        return is_first && read_length(field->value, field->value_length, &head->inference_bytes);
    }
    if (is_named(field, "X-Decomposek-Timing-Us"))
        head->kernel_ns = read_kernel_ns(field->value, field->value_length);
    if (is_named(field, "Transfer-Encoding"))
        return false;
    if (is_named(field, "Connection") && field->value_length == 5 &&
        strncasecmp(field->value, "close", 5) == 0)
        head->is_last = true;
    return true;
}

enum dk_http_reply_parse dk_http_reply_parse(const char *bytes, size_t length, struct dk_http_reply_head *out)
{
    size_t limit = length < DK_HTTP_REPLY_MAX_HEAD ? length : DK_HTTP_REPLY_MAX_HEAD;
    const char *end = memmem(bytes, limit, "\r\n\r\n", 4);
    if (!end)
        return length >= DK_HTTP_REPLY_MAX_HEAD ? DK_HTTP_REPLY_BAD : DK_HTTP_REPLY_MORE;
    struct dk_http_reply_head head = {.head_bytes = (size_t)(end - bytes) + 4};
    struct seen seen = {0};
    const char *line = bytes;
    for (bool is_first = true; line < end + 2; is_first = false) {
        const char *stop = memmem(line, (size_t)(end + 2 - line), "\r\n", 2); /* the last line has one too */
        size_t line_length = (size_t)(stop - line);
        struct field field;
        if (is_first ? !read_status_line(line, line_length, &head)
                     : !split_field(line, line_length, &field) || !take_field(&field, &seen, &head))
            return DK_HTTP_REPLY_BAD;
        line = stop + 2;
    }
    if (!seen.has_length || head.inference_bytes > head.body_bytes)
        return DK_HTTP_REPLY_BAD;
    *out = head;
    return DK_HTTP_REPLY_COMPLETE;
}
