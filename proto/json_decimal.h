/* json_decimal.h: digits and a power of ten to the text of a JSON number. */
#ifndef DK_PROTO_JSON_DECIMAL_H
#define DK_PROTO_JSON_DECIMAL_H

#include <stddef.h>
#include <stdint.h>

/* digits * 10^exponent, trailing zeros dropped: "120", "0.5", "1.5e-20". At most 17 significant digits;
 * writes at most 25 bytes, no NUL; returns the length. */
size_t dk_json_decimal_write(char *out, uint64_t digits, int exponent);

#endif
