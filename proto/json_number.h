/* json_number.h: one JSON number token to binary64, correctly rounded, whatever the locale and the split. */
#ifndef DK_PROTO_JSON_NUMBER_H
#define DK_PROTO_JSON_NUMBER_H

#include <locale.h>
#include <stddef.h>

#include "proto/json_input.h"

/* Longer tokens are refused: nobody needs them, and the limit bounds the work per number. */
enum { DK_JSON_MAX_NUMBER_BYTES = 1024 };

enum dk_json_number_result {
    DK_JSON_NUMBER_OK,
    DK_JSON_NUMBER_CUT,       /* the bytes end before the token does */
    DK_JSON_NUMBER_MALFORMED, /* not the grammar of RFC 8259 */
    DK_JSON_NUMBER_OVERFLOW,  /* beyond the largest binary64 */
    DK_JSON_NUMBER_TOO_LONG
};

/* Read the token at `*next` (a '-' or a digit). A token is the longest run of [0-9+-.eE]. On OK `*next` is
 * behind it and *out is set; otherwise both are untouched. `c_locale` is used by the rare slow path. */
enum dk_json_number_result dk_json_number_scan(const char **next, const char *end, locale_t c_locale,
                                               double *out);

/* A token that was cut by the end of a feed. Zero-initialise. */
struct dk_json_token {
    size_t length;
    char bytes[DK_JSON_MAX_NUMBER_BYTES + 1]; /* one more: too long is seen; or the sentinel of the scan */
};
/* Append the number bytes at input->next. True when the token is complete (a byte that is not of a number
 * follows) or already too long. */
bool dk_json_token_collect(struct dk_json_token *token, struct dk_json_input *input);
/* Value of a complete token; never CUT. */
enum dk_json_number_result dk_json_token_value(struct dk_json_token *token, locale_t c_locale, double *out);

/* Error of a token that starts at body offset `offset`, quoting it; `bytes[length]` may run past the token.
 */
dk_status dk_json_number_fail(struct dk_error *error, uint64_t offset, enum dk_json_number_result result,
                              const char *bytes, size_t length);

#endif
