/* status.c: names, texts and HTTP statuses of every outcome, and the message beside it. */
#include "proto/status.h"

#include <stdarg.h>
#include <stdio.h>

#include "proto/utf8.h"

struct status_row {
    const char *name;
    int http;
    const char *text;
};

static const struct status_row status_rows[DK_STATUS_COUNT] = {
#define DK_STATUS_ROW(name, http, text) [DK_##name] = {#name, http, text},
    DK_STATUS_MAP(DK_STATUS_ROW)
#undef DK_STATUS_ROW
};

static const struct status_row *row_of(dk_status status)
{
    unsigned index = (unsigned)status;
    return &status_rows[index < DK_STATUS_COUNT ? index : DK_INTERNAL];
}

const char *dk_status_name(dk_status status)
{
    return row_of(status)->name;
}

const char *dk_status_text(dk_status status)
{
    return row_of(status)->text;
}

int dk_status_http(dk_status status)
{
    return row_of(status)->http;
}

/* C0, DEL and the two-byte C1 controls: a terminal or a log reader may obey any of them. */
static int is_control(const char *bytes, size_t sequence)
{
    unsigned char first = (unsigned char)bytes[0];
    if (sequence == 1) {
        return first < 0x20 || first == 0x7F;
    }
    return first == 0xC2 && (unsigned char)bytes[1] < 0xA0;
}

static void make_printable(char *text, size_t length)
{
    for (size_t i = 0; i < length;) {
        size_t sequence = dk_utf8_sequence(text + i, length - i);
        size_t step = sequence == 0 ? 1 : sequence;
        if (sequence == 0 || is_control(text + i, sequence)) {
            for (size_t j = 0; j < step; j++) {
                text[i + j] = '?';
            }
        }
        i += step;
    }
}

dk_status dk_fail(struct dk_error *error, dk_status status, const char *format, ...)
{
    if (error == NULL) {
        return status;
    }
    /* Formatted aside: an argument may be the old message itself ("loading %s: %s"). */
    char text[DK_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    size_t length = wanted < 0 ? 0 : (size_t)wanted;
    if (length >= sizeof text) {
        length = dk_utf8_whole_prefix(text, sizeof text - 1);
    }
    make_printable(text, length);
    for (size_t i = 0; i < length; i++) {
        error->message[i] = text[i];
    }
    error->message[length] = '\0';
    error->status = status;
    return status;
}
