/* json_string.c: strings, byte by byte where they are unusual, run by run where they are plain. */
#include "proto/json_string.h"

enum stage { STAGE_PLAIN, STAGE_ESCAPE, STAGE_HEX, STAGE_LOW_BACKSLASH, STAGE_LOW_U };

static bool is_plain(unsigned char byte)
{
    return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
}

static int hex_value(char c)
{
    if (dk_json_is_digit(c)) {
        return c - '0';
    }
    char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* The ranges of RFC 3629: the byte after the lead excludes overlong forms, surrogates, and > U+10FFFF. */
static bool begin_utf8(struct dk_json_string_state *state, unsigned char lead)
{
    if (lead < 0xC2 || lead > 0xF4) {
        return false;
    }
    state->utf8_left = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    state->utf8_low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    state->utf8_high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    return true;
}

static bool continue_utf8(struct dk_json_string_state *state, unsigned char byte)
{
    if (byte < state->utf8_low || byte > state->utf8_high) {
        return false;
    }
    state->utf8_left--;
    state->utf8_low = 0x80;
    state->utf8_high = 0xBF;
    return true;
}

/* Returns what is wrong, or NULL. */
static const char *check_plain(struct dk_json_string_state *state, unsigned char byte)
{
    if (byte == '\\') {
        state->stage = STAGE_ESCAPE;
        return NULL;
    }
    if (byte < 0x20) {
        return "a control character in a string must be escaped";
    }
    if (byte >= 0x80 && !begin_utf8(state, byte)) {
        return "a string holds malformed UTF-8";
    }
    return NULL;
}

static const char *check_escape(struct dk_json_string_state *state, char byte)
{
    switch (byte) {
    case 'u':
        state->stage = STAGE_HEX;
        state->hex_count = 0;
        state->code = 0;
        return NULL;
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
        state->stage = STAGE_PLAIN;
        return NULL;
    default:
        return "unknown escape in a string";
    }
}

static const char *check_code(struct dk_json_string_state *state)
{
    unsigned code = state->code;
    bool is_low = code >= 0xDC00 && code <= 0xDFFF;
    bool is_high = code >= 0xD800 && code <= 0xDBFF;
    if (code == 0) {
        return "\\u0000 is not allowed in a string";
    }
    if (is_low != (state->high_surrogate != 0)) {
        return "a string holds a lone surrogate";
    }
    state->high_surrogate = is_high ? code : 0;
    state->stage = is_high ? STAGE_LOW_BACKSLASH : STAGE_PLAIN;
    return NULL;
}

static const char *check_byte(struct dk_json_string_state *state, char byte)
{
    if (state->utf8_left > 0) {
        return continue_utf8(state, (unsigned char)byte) ? NULL : "a string holds malformed UTF-8";
    }
    switch (state->stage) {
    case STAGE_PLAIN:
        return check_plain(state, (unsigned char)byte);
    case STAGE_ESCAPE:
        return check_escape(state, byte);
    case STAGE_LOW_BACKSLASH:
        state->stage = STAGE_LOW_U;
        return byte == '\\' ? NULL : "a string holds a lone surrogate";
    case STAGE_LOW_U:
        return byte == 'u' ? check_escape(state, byte) : "a string holds a lone surrogate";
    default:
        break;
    }
    int digit = hex_value(byte);
    if (digit < 0) {
        return "\\u in a string needs four hexadecimal digits";
    }
    state->code = state->code << 4 | (unsigned)digit;
    return ++state->hex_count == 4 ? check_code(state) : NULL;
}

const char *dk_json_string_check(struct dk_json_string_state *state, struct dk_json_input *input,
                                 bool *out_is_closed)
{
    while (input->next < input->end) {
        if (state->stage == STAGE_PLAIN && state->utf8_left == 0) {
            while (input->next < input->end && is_plain((unsigned char)*input->next)) {
                input->next++;
            }
            if (input->next == input->end) {
                break;
            }
            if (*input->next == '"') {
                input->next++;
                *out_is_closed = true;
                return NULL;
            }
        }
        const char *wrong = check_byte(state, *input->next);
        if (wrong != NULL) {
            return wrong;
        }
        input->next++;
    }
    *out_is_closed = false;
    return NULL;
}

static unsigned read_hex4(const char *digits)
{
    unsigned code = 0;
    for (int i = 0; i < 4; i++) {
        code = code << 4 | (unsigned)hex_value(digits[i]);
    }
    return code;
}

static size_t write_utf8(unsigned code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xC0U | code >> 6);
        out[1] = (char)(0x80U | (code & 0x3FU));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xE0U | code >> 12);
        out[1] = (char)(0x80U | (code >> 6 & 0x3FU));
        out[2] = (char)(0x80U | (code & 0x3FU));
        return 3;
    }
    out[0] = (char)(0xF0U | code >> 18);
    out[1] = (char)(0x80U | (code >> 12 & 0x3FU));
    out[2] = (char)(0x80U | (code >> 6 & 0x3FU));
    out[3] = (char)(0x80U | (code & 0x3FU));
    return 4;
}

static char short_escape(char letter)
{
    switch (letter) {
    case 'b':
        return '\b';
    case 'f':
        return '\f';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    default:
        return letter; /* quote, backslash, slash */
    }
}

size_t dk_json_string_decode(const char *raw, size_t length, char *out)
{
    size_t written = 0;
    for (size_t i = 0; i < length;) {
        if (raw[i] != '\\') {
            out[written++] = raw[i++];
        } else if (raw[i + 1] != 'u') {
            out[written++] = short_escape(raw[i + 1]);
            i += 2;
        } else {
            unsigned code = read_hex4(raw + i + 2);
            i += 6;
            if (code >= 0xD800 && code <= 0xDBFF) {
                code = 0x10000 + ((code - 0xD800) << 10) + (read_hex4(raw + i + 2) - 0xDC00);
                i += 6;
            }
            written += write_utf8(code, out + written);
        }
    }
    return written;
}
