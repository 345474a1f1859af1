/* log_escape.c: quoting of log values, so that no argument can end a line, start a key or move a cursor. */
#include "server/log_escape.h"

#include <stdint.h>
#include <string.h>

#include "proto/utf8.h"

/* Kept free for ` truncated=true`, the closing brace and the newline. */
enum { TAIL_BYTES = 32 };

static bool append(struct dk_log_line *line, const char *bytes, size_t length)
{
    if (length > sizeof line->text - TAIL_BYTES - line->length)
        return false;
    memcpy(line->text + line->length, bytes, length);
    line->length += length;
    return true;
}

/* `\u001b` or `\xff`. */
static size_t put_hex(char *out, char letter, uint32_t value, int digits)
{
    size_t length = 0;
    out[length++] = '\\';
    out[length++] = letter;
    for (int i = digits - 1; i >= 0; i--)
        out[length++] = "0123456789abcdef"[value >> (4 * i) & 15];
    return length;
}

/* The code point when it is C0, DEL, C1 (terminals obey them) or one of the two separators that some readers
 * take for line ends; else 0xffff. */
static uint32_t control_point(const unsigned char *at, size_t length)
{
    if (length == 1 && (at[0] < 0x20 || at[0] == 0x7f))
        return at[0];
    if (length == 2 && at[0] == 0xc2 && at[1] < 0xa0)
        return at[1];
    if (length == 3 && at[0] == 0xe2 && at[1] == 0x80 && (at[2] == 0xa8 || at[2] == 0xa9))
        return 0x2000u + (at[2] & 0x3fu);
    return 0xffff;
}

static bool append_sequence(struct dk_log_line *line, const char *at, size_t length)
{
    char escaped[8];
    if (length == 0) /* malformed; JSON has no escape for a raw byte */
        return append(line, escaped,
                      line->is_json ? put_hex(escaped, 'u', 0xfffd, 4)
                                    : put_hex(escaped, 'x', (unsigned char)*at, 2));
    uint32_t point = control_point((const unsigned char *)at, length);
    if (*at == '"' || *at == '\\')
        return append(line, "\\", 1) && append(line, at, 1);
    if (point == '\n')
        return append(line, "\\n", 2);
    if (point != 0xffff)
        return append(line, escaped, put_hex(escaped, 'u', point, 4));
    return append(line, at, length);
}

static bool append_quoted(struct dk_log_line *line, const char *text, size_t length)
{
    bool fits = append(line, "\"", 1);
    for (size_t at = 0; fits && at < length;) {
        size_t taken = dk_utf8_sequence(text + at, length - at);
        fits = append_sequence(line, text + at, taken);
        at += taken > 0 ? taken : 1;
    }
    return fits && append(line, "\"", 1);
}

static bool is_bare(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                        (c != '\0' && strchr("._:/+@-,%[]()", c) != NULL);
        if (!is_plain)
            return false;
    }
    return length > 0;
}

void dk_log_line_init(struct dk_log_line *line, bool is_json)
{
    line->length = 0;
    line->is_json = is_json;
    line->is_truncated = false;
    if (is_json)
        (void)append(line, "{", 1);
}

void dk_log_line_pair(struct dk_log_line *line, const char *key, size_t key_length, const char *value,
                      size_t value_length, bool is_number)
{
    size_t start = line->length;
    bool is_first = start <= (line->is_json ? 1u : 0u);
    bool fits = is_first || append(line, line->is_json ? "," : " ", 1);
    if (line->is_json)
        fits = fits && append(line, "\"", 1) && append(line, key, key_length) && append(line, "\":", 2);
    else
        fits = fits && append(line, key, key_length) && append(line, "=", 1);
    bool is_plain = line->is_json ? is_number : is_bare(value, value_length);
    fits = fits && (is_plain ? append(line, value, value_length) : append_quoted(line, value, value_length));
    if (!fits) {
        line->length = start;
        line->is_truncated = true;
    }
}

void dk_log_line_finish(struct dk_log_line *line)
{
    const char *note = "";
    if (line->is_truncated)
        note = line->is_json ? ",\"truncated\":true" : " truncated=true";
    const char *end = line->is_json ? "}\n" : "\n";
    /* TAIL_BYTES were kept free for this */
    memcpy(line->text + line->length, note, strlen(note));
    line->length += strlen(note);
    memcpy(line->text + line->length, end, strlen(end));
    line->length += strlen(end);
}
