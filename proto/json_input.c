/* json_input.c: error texts that name their byte. */
#include "proto/json_input.h"

#include <stdarg.h>
#include <stdio.h>

dk_status dk_json_fail(struct dk_error *error, uint64_t offset, dk_status status, const char *format, ...)
{
    char text[DK_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return dk_fail(error, status, "at byte %llu: %s", (unsigned long long)offset, length < 0 ? "" : text);
}

const char *dk_json_byte_text(char byte, char out[8])
{
    unsigned value = (unsigned char)byte;
    if (value >= 0x20 && value < 0x7F) {
        (void)snprintf(out, 8, "'%c'", (int)value);
    } else {
        (void)snprintf(out, 8, "0x%02X", value);
    }
    return out;
}
