/* json_number.c: decimal to binary64: three exact paths by integer or one floating operation, and strtod_l
 * for the rest (more than 19 digits or far exponents). */
#include "proto/json_number.h"

#include <endian.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_reader.h"

__extension__ typedef unsigned __int128 uint128;

enum { MAX_EXACT_DIGITS = 19, MAX_INTEGER_POWER = 27, EXPONENT_CLAMP = 100000 };

static const double powers_of_ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                       1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
static const uint32_t small_powers[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};

static bool is_number_byte(char c)
{
    return dk_json_is_digit(c) || c == '.' || c == '-' || c == '+' || c == 'e' || c == 'E';
}

/* Value of eight decimal digits, first digit in the lowest byte, each already reduced to 0..9: pairs, then
 * fours, then eight. */
static inline uint64_t value_of_eight(uint64_t digits)
{
    digits = (digits * 10 + (digits >> 8)) & 0x00FF00FF00FF00FFU;
    digits = (digits * 100 + (digits >> 16)) & 0x0000FFFF0000FFFFU;
    return (digits * 10000 + (digits >> 32)) & 0xFFFFFFFFU;
}

/* Accumulate digits while they last. Wraps beyond 19 significant digits; the caller counts. */
static inline const char *scan_digits(const char *p, const char *end, uint64_t *mantissa)
{
    uint64_t value = *mantissa;
    while (end - p >= 8) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        word = le64toh(word) ^ 0x3030303030303030U;
        /* High bit of every byte that is not 0..9; carries only disturb bytes after the first such byte. */
        uint64_t others = ((word + 0x7676767676767676U) | word) & 0x8080808080808080U;
        if (others == 0) {
            value = value * 100000000 + value_of_eight(word);
            p += 8;
            continue;
        }
        unsigned count = (unsigned)__builtin_ctzll(others) / 8;
        if (count > 0) {
            value = value * small_powers[count] + value_of_eight(word << (64 - 8 * count));
        }
        *mantissa = value;
        return p + count;
    }
    while (p < end && dk_json_is_digit(*p)) {
        value = value * 10 + (uint64_t)(*p - '0');
        p++;
    }
    *mantissa = value;
    return p;
}

/* The token's parts. */
struct number_parts {
    bool is_negative;
    uint64_t mantissa; /* valid when digit_count <= MAX_EXACT_DIGITS */
    size_t digit_count;
    int exponent; /* of ten, for the mantissa taken as an integer */
};

static size_t count_significant(const char *digits, const char *end)
{
    size_t count = 0;
    for (; digits < end && (dk_json_is_digit(*digits) || *digits == '.'); digits++) {
        if (*digits != '.' && (count > 0 || *digits != '0')) {
            count++;
        }
    }
    return count;
}

/* "e-12": p is at the sign or first digit. NULL when no digit follows. */
static const char *scan_exponent(const char *p, const char *end, int *out)
{
    bool is_negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+')) {
        p++;
    }
    if (p == end || !dk_json_is_digit(*p)) {
        return NULL;
    }
    int value = 0;
    for (; p < end && dk_json_is_digit(*p); p++) {
        value = value < EXPONENT_CLAMP ? value * 10 + (*p - '0') : value;
    }
    *out = is_negative ? -value : value;
    return p;
}

/* End of the token by the grammar, or NULL when the grammar is broken or the bytes end too early. */
static inline const char *scan_grammar(const char *p, const char *end, struct number_parts *parts)
{
    parts->is_negative = *p == '-';
    p += parts->is_negative;
    if (p == end || !dk_json_is_digit(*p)) {
        return NULL;
    }
    const char *digits = p;
    uint64_t mantissa = 0;
    p = *p == '0' ? p + 1 : scan_digits(p, end, &mantissa);
    size_t digit_count = (size_t)(p - digits);
    int exponent = 0;
    if (p < end && *p == '.') {
        const char *fraction = p + 1;
        p = scan_digits(fraction, end, &mantissa);
        if (p == fraction) {
            return NULL;
        }
        digit_count += (size_t)(p - fraction);
        exponent = p - fraction > EXPONENT_CLAMP ? -EXPONENT_CLAMP : -(int)(p - fraction);
    }
    if (digit_count > MAX_EXACT_DIGITS) {
        digit_count = count_significant(digits, p);
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        int written = 0;
        p = scan_exponent(p + 1, end, &written);
        exponent += written;
    }
    parts->mantissa = mantissa;
    parts->digit_count = digit_count;
    parts->exponent = exponent;
    return p;
}

/* value * 2^exponent rounded to nearest even; the top bit of `value` is set; `is_inexact`: a remainder lies
 * below the last bit. The result is a normal number. */
static double assemble(uint64_t value, int exponent, bool is_inexact)
{
    uint64_t kept = value >> 11;
    uint64_t rest = value & 0x7FF;
    if (rest > 0x400 || (rest == 0x400 && (is_inexact || (kept & 1) != 0))) {
        kept++;
    }
    /* Adding instead of or-ing the exponent lets the carry of the rounding move it. */
    uint64_t bits = kept + ((uint64_t)(exponent + 11 + 1075 - 1) << 52);
    double result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

static uint64_t power_of_five(unsigned exponent)
{
    uint64_t power = 1;
    for (uint64_t base = 5; exponent > 0; exponent >>= 1, base *= base) {
        power *= (exponent & 1) != 0 ? base : 1;
    }
    return power;
}

/* mantissa * 10^exponent, |exponent| <= 27 so that 5^|exponent| fits in 64 bits; every step is exact. */
static double scale_exactly(uint64_t mantissa, int exponent)
{
    int lead = __builtin_clzll(mantissa);
    uint64_t value = mantissa << lead;
    if (exponent >= 0) {
        uint128 product = (uint128)value * power_of_five((unsigned)exponent);
        uint64_t high = (uint64_t)(product >> 64);
        if (high == 0) {
            return assemble(value, exponent - lead, false);
        }
        int shift = __builtin_clzll(high);
        product <<= shift;
        return assemble((uint64_t)(product >> 64), exponent - lead + 64 - shift, (uint64_t)product != 0);
    }
    uint64_t divisor = power_of_five((unsigned)-exponent);
    int divisor_lead = __builtin_clzll(divisor);
    divisor <<= divisor_lead;
    /* The quotient of two numbers with their top bits set, the first made the smaller, has its top bit at 63.
     */
    int half = value >= divisor ? 1 : 0;
    uint128 numerator = (uint128)value << (64 - half);
    uint64_t quotient = (uint64_t)(numerator / divisor);
    bool is_inexact = (uint64_t)numerator != quotient * divisor;
    return assemble(quotient, exponent - lead + divisor_lead - 64 + half, is_inexact);
}

static bool convert_slowly(const char *token, size_t length, locale_t c_locale, double *out)
{
    char text[DK_JSON_MAX_NUMBER_BYTES + 1];
    memcpy(text, token, length);
    text[length] = '\0';
    *out = strtod_l(text, NULL, c_locale);
    return isfinite(*out);
}

static enum dk_json_number_result explain(const char *start, const char *end)
{
    const char *p = start;
    while (p < end && is_number_byte(*p)) {
        p++;
    }
    if (p - start > DK_JSON_MAX_NUMBER_BYTES) {
        return DK_JSON_NUMBER_TOO_LONG;
    }
    return p == end ? DK_JSON_NUMBER_CUT : DK_JSON_NUMBER_MALFORMED;
}

enum dk_json_number_result dk_json_number_scan(const char **next, const char *end, locale_t c_locale,
                                               double *out)
{
    const char *start = *next;
    struct number_parts parts;
    const char *p = scan_grammar(start, end, &parts);
    if (p == NULL || p == end || is_number_byte(*p) || p - start > DK_JSON_MAX_NUMBER_BYTES) {
        return explain(start, end);
    }
    double value;
    if (parts.digit_count > MAX_EXACT_DIGITS) {
        if (!convert_slowly(start, (size_t)(p - start), c_locale, &value)) {
            return DK_JSON_NUMBER_OVERFLOW;
        }
        *out = value; /* the sign is in the text */
        *next = p;
        return DK_JSON_NUMBER_OK;
    }
    if (parts.mantissa <= (UINT64_C(1) << 53) && parts.exponent >= -22 && parts.exponent <= 22) {
        /* Both operands are exact, so the one operation rounds correctly (Clinger 1990). */
        value = (double)parts.mantissa;
        value = parts.exponent < 0 ? value / powers_of_ten[-parts.exponent]
                                   : value * powers_of_ten[parts.exponent];
    } else if (parts.mantissa == 0) {
        value = 0.0;
    } else if (parts.exponent >= -MAX_INTEGER_POWER && parts.exponent <= MAX_INTEGER_POWER) {
        value = scale_exactly(parts.mantissa, parts.exponent);
    } else if (!convert_slowly(start, (size_t)(p - start), c_locale, &value)) {
        return DK_JSON_NUMBER_OVERFLOW;
    }
    *out = parts.is_negative ? -fabs(value) : value;
    *next = p;
    return DK_JSON_NUMBER_OK;
}

bool dk_json_token_collect(struct dk_json_token *token, struct dk_json_input *input)
{
    while (input->next < input->end && is_number_byte(*input->next)) {
        if (token->length > DK_JSON_MAX_NUMBER_BYTES) {
            return true;
        }
        token->bytes[token->length++] = *input->next++;
    }
    return token->length > DK_JSON_MAX_NUMBER_BYTES || input->next < input->end;
}

enum dk_json_number_result dk_json_token_value(struct dk_json_token *token, locale_t c_locale, double *out)
{
    if (token->length > DK_JSON_MAX_NUMBER_BYTES) {
        return DK_JSON_NUMBER_TOO_LONG;
    }
    token->bytes[token->length] = ' '; /* so that the token's end is seen */
    const char *next = token->bytes;
    return dk_json_number_scan(&next, token->bytes + token->length + 1, c_locale, out);
}

dk_status dk_json_number_fail(struct dk_error *error, uint64_t offset, enum dk_json_number_result result,
                              const char *bytes, size_t length)
{
    enum { QUOTED_BYTES = 40 };
    size_t token = 0;
    while (token < length && token < QUOTED_BYTES && is_number_byte(bytes[token])) {
        token++;
    }
    int shown = (int)token;
    switch (result) {
    case DK_JSON_NUMBER_TOO_LONG:
        return dk_json_fail(error, offset, DK_BAD_JSON, "number %.*s... is longer than %d bytes", shown,
                            bytes, (int)DK_JSON_MAX_NUMBER_BYTES);
    case DK_JSON_NUMBER_OVERFLOW:
        return dk_json_fail(error, offset, DK_BAD_VALUE, "number %.*s is beyond the range of binary64", shown,
                            bytes);
    default:
        return dk_json_fail(error, offset, DK_BAD_JSON, "%.*s is not a JSON number", shown, bytes);
    }
}

bool dk_json_parse_number(const char *text, size_t length, double *out)
{
    if (length == 0 || length > DK_JSON_MAX_NUMBER_BYTES || !(text[0] == '-' || dk_json_is_digit(text[0]))) {
        return false;
    }
    struct dk_json_token token;
    token.length = length;
    memcpy(token.bytes, text, length);
    for (size_t i = 0; i < length; i++) {
        if (!is_number_byte(text[i])) {
            return false;
        }
    }
    /* "C" is a static object in common C libraries: nothing is allocated. */
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c_locale == (locale_t)0) {
        return false;
    }
    double value;
    enum dk_json_number_result result = dk_json_token_value(&token, c_locale, &value);
    freelocale(c_locale);
    if (result != DK_JSON_NUMBER_OK) {
        return false;
    }
    *out = value;
    return true;
}
