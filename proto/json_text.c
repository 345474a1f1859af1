/* json_text.c: a growing JSON text: strings escaped, integers and doubles locale-free. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_decimal.h"
#include "proto/json_reader.h"
#include "proto/json_writer.h"
#include "proto/utf8.h"

static void append(struct dk_json_text *text, const char *bytes, size_t length)
{
    if (text->failed) {
        return;
    }
    size_t needed = text->length + length + 1;
    if (needed > text->capacity) {
        enum { FIRST_CAPACITY = 256 };
        size_t capacity = needed < FIRST_CAPACITY ? FIRST_CAPACITY : needed * 2;
        char *data = realloc(text->data, capacity);
        if (data == NULL) {
            text->failed = true;
            return;
        }
        text->data = data;
        text->capacity = capacity;
    }
    memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = '\0';
}

void dk_json_text_free(struct dk_json_text *text)
{
    free(text->data);
    *text = (struct dk_json_text){0};
}

void dk_json_text_raw(struct dk_json_text *text, const char *bytes)
{
    append(text, bytes, strlen(bytes));
}

static void append_escape(struct dk_json_text *text, unsigned char byte)
{
    static const char letters[32] = {['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    static const char hex[] = "0123456789abcdef";
    if (byte >= 0x20) { /* quote or backslash */
        append(text, (const char[]){'\\', (char)byte}, 2);
    } else if (letters[byte] != 0) {
        append(text, (const char[]){'\\', letters[byte]}, 2);
    } else {
        append(text, (const char[]){'\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15]}, 6);
    }
}

void dk_json_text_string(struct dk_json_text *text, const char *bytes, size_t length)
{
    append(text, "\"", 1);
    size_t start = 0; /* of the run that goes out as it is */
    for (size_t i = 0; i < length;) {
        unsigned char byte = (unsigned char)bytes[i];
        size_t sequence = dk_utf8_sequence(bytes + i, length - i);
        if (sequence != 0 && byte >= 0x20 && byte != '"' && byte != '\\') {
            i += sequence;
            continue;
        }
        append(text, bytes + start, i - start);
        if (sequence == 0) {
            append(text, "\xEF\xBF\xBD", 3);
        } else {
            append_escape(text, byte);
        }
        start = ++i;
    }
    append(text, bytes + start, length - start);
    append(text, "\"", 1);
}

void dk_json_text_u64(struct dk_json_text *text, uint64_t value)
{
    char digits[20];
    size_t start = sizeof digits;
    do {
        digits[--start] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    append(text, digits + start, sizeof digits - start);
}

void dk_json_text_i64(struct dk_json_text *text, int64_t value)
{
    if (value < 0) {
        append(text, "-", 1);
    }
    dk_json_text_u64(text, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

/* `value` is finite and not negative. "%.*e" has a digit, a decimal point that depends on the locale, digits,
 * 'e' and the exponent: only the digits and the exponent are taken. */
static size_t format_digits(double value, int digit_count, char *out)
{
    char text[64];
    (void)snprintf(text, sizeof text, "%.*e", digit_count - 1, value);
    uint64_t digits = 0;
    const char *p = text;
    for (; *p != 'e'; p++) {
        digits = *p >= '0' && *p <= '9' ? digits * 10 + (uint64_t)(*p - '0') : digits;
    }
    int exponent = (int)strtol(p + 1, NULL, 10);
    return dk_json_decimal_write(out, digits, exponent - (digit_count - 1));
}

void dk_json_text_double(struct dk_json_text *text, double value)
{
    enum { ENOUGH = 17 };
    /* A shorter decimal of a normal number shows up as 15 digits with trailing zeros. */
    const int first = fabs(value) < DBL_MIN ? 1 : DBL_DIG;
    if (!isfinite(value)) {
        dk_json_text_raw(text, "null");
        return;
    }
    char digits[DK_JSON_NUMBER_BYTES];
    size_t length = 0;
    double back = NAN;
    for (int count = first; count <= ENOUGH && back != fabs(value); count++) {
        length = format_digits(fabs(value), count, digits);
        if (!dk_json_parse_number(digits, length, &back)) {
            back = NAN; /* DBL_MAX rounded up: one more digit is needed */
        }
    }
    if (signbit(value)) {
        append(text, "-", 1);
    }
    append(text, digits, length);
}
