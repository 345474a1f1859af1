/* json_add.h: append a punctuated prefix and a value to a JSON text; for reports of a few members. */
#ifndef DK_CLIENT_JSON_ADD_H
#define DK_CLIENT_JSON_ADD_H

#include <stdint.h>
#include <string.h>

#include "proto/json_writer.h"

/* `prefix` goes out as it is, such as ",\"name\":". */
static inline void dk_json_add_text(struct dk_json_text *text, const char *prefix, const char *value)
{
    dk_json_text_raw(text, prefix);
    dk_json_text_string(text, value, strlen(value));
}

static inline void dk_json_add_u64(struct dk_json_text *text, const char *prefix, uint64_t value)
{
    dk_json_text_raw(text, prefix);
    dk_json_text_u64(text, value);
}

static inline void dk_json_add_double(struct dk_json_text *text, const char *prefix, double value)
{
    dk_json_text_raw(text, prefix);
    dk_json_text_double(text, value);
}

#endif
