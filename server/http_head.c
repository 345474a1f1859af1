/* http_head.c: header checks and content negotiation. */
#include "server/http_head.h"

#include <microhttpd.h>
#include <string.h>
#include <strings.h>

static bool name_is(const char *name, size_t length, const char *expected)
{
    return length == strlen(expected) && strncasecmp(name, expected, length) == 0;
}

static bool is_token(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c <= 0x20 || c >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", c) != NULL) {
            return false;
        }
    }
    return length > 0;
}

static bool has_control(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (((unsigned char)text[i] < 0x20 && text[i] != '\t') || text[i] == 0x7f) {
            return true;
        }
    }
    return false;
}

/* Plain digits only; libmicrohttpd has already refused the request when they overflow. */
static bool parse_length(const char *text, size_t length, uint64_t *out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || value > (UINT64_MAX - 9) / 10) {
            return false;
        }
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    *out = value;
    return length > 0;
}

/* The first refusal counts: `before` "shown text" `after`. */
static void refuse(struct dk_http_head_check *check, dk_status status, const char *before, const char *text,
                   size_t length, const char *after)
{
    if (check->error.status == DK_OK) {
        (void)dk_fail(&check->error, status, "%s \"%.*s\" %s", before, (int)(length < 64 ? length : 64), text,
                      after);
    }
}

/* A refusal after which nobody can be sure where this request's body ends. */
static void refuse_framing(struct dk_http_head_check *check, dk_status status, const char *before,
                           const char *text, size_t length, const char *after)
{
    check->head.is_framing_doubtful = true;
    refuse(check, status, before, text, length, after);
}

void dk_http_head_check_add(struct dk_http_head_check *check, const char *name, size_t name_length,
                            const char *value, size_t value_length)
{
    struct dk_http_head *head = &check->head;
    if (!is_token(name, name_length)) {
        refuse_framing(check, DK_BAD_REQUEST, "the header name", name, name_length, "is malformed");
        return;
    }
    if (has_control(value, value_length)) {
        refuse_framing(check, DK_BAD_REQUEST, "the header", name, name_length, "holds a control character");
        return;
    }
    if (name_is(name, name_length, "content-length")) {
        check->content_length_count++;
        head->has_content_length = parse_length(value, value_length, &head->content_length);
        if (!head->has_content_length) {
            refuse_framing(check, DK_BAD_REQUEST, "Content-Length", value, value_length, "is not a number");
        }
    } else if (name_is(name, name_length, "transfer-encoding")) {
        check->transfer_encoding_count++;
        head->is_chunked = name_is(value, value_length, "chunked");
        if (!head->is_chunked) {
            refuse_framing(check, DK_UNSUPPORTED_MEDIA, "Transfer-Encoding", value, value_length,
                           "is not supported, only chunked");
        }
    } else if (name_is(name, name_length, "content-encoding")) {
        if (++check->content_encoding_count > 1 || dk_coding_parse(value, &head->coding, NULL) != DK_OK) {
            refuse(check, DK_UNSUPPORTED_MEDIA, "Content-Encoding", value, value_length,
                   "is not supported, only one of gzip, deflate and identity");
        }
    } else if (name_is(name, name_length, "inference-header-content-length")) {
        if (head->json_length != NULL) {
            refuse(check, DK_BAD_REQUEST, "Inference-Header-Content-Length", value, value_length,
                   "was sent more than once");
        }
        head->json_length = value;
    } else if (name_is(name, name_length, "expect")) {
        head->expect = value;
        head->wants_continue = name_is(value, value_length, "100-continue");
        if (!head->wants_continue) {
            refuse(check, DK_EXPECTATION_FAILED, "the expectation", value, value_length, "is not supported");
        }
    } else if (name_is(name, name_length, "content-type")) {
        head->content_type = value;
    } else if (name_is(name, name_length, "accept")) {
        head->accept = value;
    } else if (name_is(name, name_length, "accept-encoding")) {
        head->accept_encoding = value;
    } else if (name_is(name, name_length, "traceparent")) {
        /* Twice is no error of the request, but then nobody knows which trace it belongs to. */
        head->traceparent = check->traceparent_count++ == 0 ? value : NULL;
    } else if (name_is(name, name_length, "authorization")) {
        head->authorization = value;
        if (check->authorization_count++ > 0) { /* without its text */
            refuse(check, DK_BAD_REQUEST, "the header", name, name_length, "was sent more than once");
        }
    }
}

void dk_http_head_check_finish(struct dk_http_head_check *check)
{
    const char *what = NULL;
    if (check->content_length_count > 0 && check->transfer_encoding_count > 0) {
        what = "was sent beside Transfer-Encoding";
    } else if (check->content_length_count > 1) {
        what = "was sent more than once";
    }
    if (what != NULL) {
        refuse_framing(check, DK_BAD_REQUEST, "the header", "Content-Length", strlen("Content-Length"), what);
    }
    if (check->transfer_encoding_count > 1) {
        refuse_framing(check, DK_BAD_REQUEST, "the header", "Transfer-Encoding", strlen("Transfer-Encoding"),
                       "was sent more than once");
    }
}

static enum MHD_Result add_header(void *context, enum MHD_ValueKind kind, const char *name,
                                  size_t name_length, const char *value, size_t value_length)
{
    (void)kind;
    dk_http_head_check_add(context, name, name_length, value != NULL ? value : "", value_length);
    return MHD_YES;
}

dk_status dk_http_head_read(struct MHD_Connection *connection, struct dk_http_head *out,
                            struct dk_error *error)
{
    struct dk_http_head_check check = {0};
    (void)MHD_get_connection_values_n(connection, MHD_HEADER_KIND, add_header, &check);
    dk_http_head_check_finish(&check);
    *out = check.head;
    if (check.error.status != DK_OK) {
        *error = check.error;
    }
    return check.error.status;
}

/* The next `delimiter`-separated item of *cursor without surrounding blanks; false at the end. */
static bool next_item(const char **cursor, char delimiter, const char **item, size_t *length)
{
    const char *text = *cursor;
    if (text == NULL || *text == '\0') {
        return false;
    }
    const char *end = strchr(text, delimiter);
    *cursor = end != NULL ? end + 1 : NULL;
    *length = end != NULL ? (size_t)(end - text) : strlen(text);
    while (*length > 0 && (*text == ' ' || *text == '\t')) {
        text++;
        (*length)--;
    }
    while (*length > 0 && (text[*length - 1] == ' ' || text[*length - 1] == '\t')) {
        (*length)--;
    }
    *item = text;
    return true;
}

dk_status dk_body_kind_parse(const char *content_type, enum dk_body_kind *out, struct dk_error *error)
{
    const char *cursor = content_type, *item = "";
    size_t length = 0;
    if (content_type == NULL || !next_item(&cursor, ';', &item, &length) || length == 0) {
        *out = DK_BODY_JSON;
        return DK_OK;
    }
    if (name_is(item, length, "application/octet-stream")) {
        *out = DK_BODY_RAW;
        return DK_OK;
    }
    bool is_json = name_is(item, length, "application/json") ||
                   name_is(item, length, "application/x-www-form-urlencoded");
    while (is_json && next_item(&cursor, ';', &item, &length)) {
        if (length > 8 && strncasecmp(item, "charset=", 8) == 0) {
            is_json = name_is(item, length, "charset=utf-8") || name_is(item, length, "charset=\"utf-8\"");
        }
    }
    if (!is_json) {
        return dk_fail(error, DK_UNSUPPORTED_MEDIA,
                       "Content-Type \"%.80s\" is not supported; send application/json (utf-8) or "
                       "application/octet-stream",
                       content_type);
    }
    *out = DK_BODY_JSON;
    return DK_OK;
}

/* "0.5" -> 500; malformed counts as 1. */
static unsigned parse_quality(const char *text, size_t length)
{
    if (length == 0 || (text[0] != '0' && text[0] != '1')) {
        return 1000;
    }
    unsigned quality = text[0] == '1' ? 1000 : 0;
    unsigned unit = 100;
    for (size_t i = 2; i < length && i < 5 && text[1] == '.' && text[i] >= '0' && text[i] <= '9'; i++) {
        quality += (unsigned)(text[i] - '0') * unit;
        unit /= 10;
    }
    return quality < 1000 ? quality : 1000;
}

/* 3: the type itself, 2: its "type/" wildcard, 1: the full wildcard, 0: no match. */
static int match_range(const char *range, size_t length, const char *type)
{
    size_t major_length = strcspn(type, "/") + 1;
    if (name_is(range, length, type)) {
        return 3;
    }
    if (length == major_length + 1 && range[length - 1] == '*' &&
        strncasecmp(range, type, major_length) == 0) {
        return 2;
    }
    return length == 3 && memcmp(range, "*/*", 3) == 0 ? 1 : 0;
}

unsigned dk_accept_quality(const char *accept, const char *type, bool *is_named)
{
    int best_match = accept == NULL || *accept == '\0' ? 1 : 0;
    unsigned best_quality = best_match > 0 ? 1000 : 0;
    const char *ranges = accept, *range;
    size_t length;
    while (next_item(&ranges, ',', &range, &length)) {
        unsigned quality = 1000;
        const char *parameter = memchr(range, ';', length);
        size_t type_length = parameter != NULL ? (size_t)(parameter - range) : length;
        while (type_length > 0 && range[type_length - 1] == ' ') {
            type_length--;
        }
        for (const char *p = parameter; p != NULL && p < range + length;) {
            p++;
            p += strspn(p, " \t");
            if (p >= range + length) {
                break;
            }
            if ((*p == 'q' || *p == 'Q') && p[1] == '=') {
                quality = parse_quality(p + 2, (size_t)(range + length - p - 2));
            }
            p = memchr(p, ';', (size_t)(range + length - p));
        }
        int match = match_range(range, type_length, type);
        if (match > best_match || (match == best_match && match > 0 && quality > best_quality)) {
            best_match = match;
            best_quality = quality;
        }
    }
    if (is_named != NULL) {
        *is_named = best_match == 3;
    }
    return best_quality;
}
