/* utf8.c: well-formed UTF-8 by the table of RFC 3629. */
#include "proto/utf8.h"

#include <stdbool.h>

static bool is_continuation(unsigned char byte)
{
    return (byte & 0xC0U) == 0x80U;
}

/* Sequence length that the lead byte announces; 0 for bytes that cannot lead. */
static size_t announced_length(unsigned char lead)
{
    if (lead < 0x80) {
        return 1;
    }
    if (lead < 0xC2 || lead > 0xF4) {
        return 0;
    }
    return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/* The second byte also excludes overlong forms, surrogates and code points above U+10FFFF. */
static bool second_byte_fits(unsigned char lead, unsigned char second)
{
    switch (lead) {
    case 0xE0:
        return second >= 0xA0 && second <= 0xBF;
    case 0xED:
        return second >= 0x80 && second <= 0x9F;
    case 0xF0:
        return second >= 0x90 && second <= 0xBF;
    case 0xF4:
        return second >= 0x80 && second <= 0x8F;
    default:
        return is_continuation(second);
    }
}

size_t dk_utf8_sequence(const char *bytes, size_t length)
{
    if (length == 0) {
        return 0;
    }
    unsigned char lead = (unsigned char)bytes[0];
    size_t need = announced_length(lead);
    if (need <= 1) {
        return need;
    }
    if (length < need || !second_byte_fits(lead, (unsigned char)bytes[1])) {
        return 0;
    }
    for (size_t i = 2; i < need; i++) {
        if (!is_continuation((unsigned char)bytes[i])) {
            return 0;
        }
    }
    return need;
}

size_t dk_utf8_whole_prefix(const char *bytes, size_t length)
{
    size_t back = length < 3 ? length : 3;
    for (size_t i = 1; i <= back; i++) {
        unsigned char byte = (unsigned char)bytes[length - i];
        if (!is_continuation(byte)) {
            return announced_length(byte) > i ? length - i : length;
        }
    }
    return length;
}
