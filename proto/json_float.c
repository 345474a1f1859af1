/* json_float.c: fp32 to its shortest decimal by exact integer arithmetic (the interval idea of Steele and
 * White 1990; the choice among at most four candidates is that of Giulietti's Schubfach). */
#include <math.h>
#include <string.h>

#include "proto/json_decimal.h"
#include "proto/json_writer.h"

__extension__ typedef unsigned __int128 uint128;

/* Text -----------------------------------------------------------------------------------------------------
 */

enum { FIRST_PLAIN_EXPONENT = -5, LAST_PLAIN_EXPONENT = 14 };

/* Exactly `count` digits, two at a time. */
static size_t write_digits(char *out, uint64_t value, size_t count)
{
    static const char pairs[] =
        "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
        "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
        "8081828384858687888990919293949596979899";
    size_t at = count;
    while (value > UINT32_MAX) {
        at -= 2;
        memcpy(out + at, pairs + value % 100 * 2, 2);
        value /= 100;
    }
    uint32_t rest = (uint32_t)value; /* 32-bit divisions are several times faster */
    for (; at >= 2; rest /= 100) {
        at -= 2;
        memcpy(out + at, pairs + rest % 100 * 2, 2);
    }
    if (at == 1) {
        out[0] = (char)('0' + rest);
    }
    return count;
}

static size_t count_digits(uint64_t value)
{
    size_t count = 1;
    for (; value >= 10000; value /= 10000) {
        count += 4;
    }
    return count + (value >= 10) + (value >= 100) + (value >= 1000);
}

/* Drop trailing zeros of a positive number; returns how many. */
static int drop_zeros(uint64_t *digits)
{
    int dropped = 0;
    for (; *digits > UINT32_MAX && *digits % 10 == 0; *digits /= 10) {
        dropped++;
    }
    if (*digits <= UINT32_MAX) {
        uint32_t rest = (uint32_t)*digits;
        for (; rest % 10 == 0; rest /= 10) {
            dropped++;
        }
        *digits = rest;
    }
    return dropped;
}

static size_t write_scientific(char *out, uint64_t digits, size_t count, int lead_exponent)
{
    /* One place to the right of where the digits belong, then the first digit moves before the point. */
    size_t length = 1 + write_digits(out + 1, digits, count);
    out[0] = out[1];
    out[1] = '.';
    length = count == 1 ? 1 : length;
    out[length++] = 'e';
    if (lead_exponent < 0) {
        out[length++] = '-';
    }
    uint64_t magnitude = (uint64_t)(lead_exponent < 0 ? -lead_exponent : lead_exponent);
    return length + write_digits(out + length, magnitude, count_digits(magnitude));
}

size_t dk_json_decimal_write(char *out, uint64_t digits, int exponent)
{
    if (digits == 0) {
        out[0] = '0';
        return 1;
    }
    exponent += drop_zeros(&digits);
    size_t count = count_digits(digits);
    int lead_exponent = exponent + (int)count - 1; /* of the first digit */
    if (lead_exponent < FIRST_PLAIN_EXPONENT || lead_exponent > LAST_PLAIN_EXPONENT) {
        return write_scientific(out, digits, count, lead_exponent);
    }
    if (exponent >= 0) {
        write_digits(out, digits, count);
        memset(out + count, '0', (size_t)exponent);
        return count + (size_t)exponent;
    }
    if (lead_exponent < 0) {
        size_t zeros = (size_t)(-1 - lead_exponent);
        memcpy(out, "0.0000", 2 + zeros);
        return 2 + zeros + write_digits(out + 2 + zeros, digits, count);
    }
    size_t whole = (size_t)lead_exponent + 1;
    write_digits(out + 1, digits, count);
    memmove(out, out + 1, whole);
    out[whole] = '.';
    return count + 1;
}

/* Shortest digits
 * -------------------------------------------------------------------------------------------- */

/* floor(x), and whether something was cut off. */
struct cut {
    uint64_t whole;
    bool has_rest;
};

static uint64_t small_power_of_five(unsigned exponent)
{
    static const uint64_t powers[] = {1,
                                      5,
                                      25,
                                      125,
                                      625,
                                      3125,
                                      15625,
                                      78125,
                                      390625,
                                      1953125,
                                      9765625,
                                      48828125,
                                      244140625,
                                      1220703125,
                                      6103515625,
                                      30517578125,
                                      152587890625,
                                      762939453125,
                                      3814697265625,
                                      19073486328125,
                                      95367431640625,
                                      476837158203125,
                                      2384185791015625,
                                      11920928955078125,
                                      59604644775390625,
                                      298023223876953125,
                                      1490116119384765625,
                                      7450580596923828125};
    return powers[exponent];
}

enum {
    FAST_POWERS = 15,  /* 5^15 * 2^27 < 2^62; magnitudes 2^-26 .. 2^24 */
    SMALL_POWERS = 27, /* 5^27 < 2^63 */
    DIRECT_POWERS = 43 /* 5^43 * 2^27 < 2^127 */
};

/* 5^exponent, exponent <= 45: below 2^105. */
static uint128 power_of_five(unsigned exponent)
{
    if (exponent <= SMALL_POWERS) {
        return small_power_of_five(exponent);
    }
    return (uint128)small_power_of_five(SMALL_POWERS) * small_power_of_five(exponent - SMALL_POWERS);
}

static struct cut shift_right(uint128 value, unsigned shift)
{
    uint128 whole = value >> shift;
    return (struct cut){(uint64_t)whole, whole << shift != value};
}

/* x * 2^binary / 10^decimal for x < 2^27, the result below 2^63. Exact but for the cut. */
static struct cut scale(uint32_t x, int binary, int decimal)
{
    int twos = binary - decimal; /* 10^d = 5^d * 2^d */
    if (decimal > 0) {
        /* Only for values >= 2^23: twos is positive, x * 2^twos below 2^128. */
        uint128 divisor = power_of_five((unsigned)decimal);
        uint128 numerator = (uint128)x << twos;
        uint128 quotient = numerator / divisor;
        return (struct cut){(uint64_t)quotient, quotient * divisor != numerator};
    }
    unsigned fives = (unsigned)-decimal;
    if (twos >= 0) {
        return (struct cut){(uint64_t)(x * power_of_five(fives)) << twos, false};
    }
    unsigned shift = (unsigned)-twos;
    if (fives <= FAST_POWERS) {
        uint64_t product = small_power_of_five(fives) * x;
        uint64_t whole = product >> shift;
        return (struct cut){whole, whole << shift != product};
    }
    uint128 power = power_of_five(fives);
    if (fives <= DIRECT_POWERS) {
        return shift_right(power * x, shift);
    }
    /* Up to 131 bits: the low 64 aside; the shift is above 100 here. */
    uint128 low = (uint128)(uint64_t)power * x;
    uint128 high = (power >> 64) * x + (low >> 64);
    struct cut result = shift_right(high, shift - 64);
    result.has_rest = result.has_rest || (uint64_t)low != 0;
    return result;
}

/* The decimals that read back to the value, in units of 10^decimal. */
struct interval {
    struct cut low, high;
    bool is_closed; /* ties go to the even mantissa, so its borders read back to it */
};

static bool contains(const struct interval *interval, uint64_t candidate)
{
    uint64_t twice = candidate * 2;
    const struct cut *low = &interval->low;
    const struct cut *high = &interval->high;
    bool above = twice > low->whole || (interval->is_closed && twice == low->whole && !low->has_rest);
    bool below = twice < high->whole || (twice == high->whole && (high->has_rest || interval->is_closed));
    return above && below;
}

/* The shortest decimal of mantissa * 2^binary: among those of its length the closest. Units of 10^*decimal.
 */
static uint64_t shortest(uint32_t mantissa, int binary, bool is_low_border_near, int *decimal)
{
    /* floor(log10(2^binary)), or of 3/4 of it where the gap below is half the gap above: one unit is then no
     * wider than the interval. Constants are log10(2) and log10(4/3) times 2^22. */
    *decimal = (binary * 1262611 - (is_low_border_near ? 524031 : 0)) >> 22;
    /* Half units, so that the middle between two candidates is seen: hence x * 2^(binary - 2) * 2. */
    uint32_t x = mantissa * 4;
    struct cut value = scale(x, binary - 1, *decimal);
    struct interval interval = {.low = scale(x - (is_low_border_near ? 1 : 2), binary - 1, *decimal),
                                .high = scale(x + 2, binary - 1, *decimal),
                                .is_closed = mantissa % 2 == 0};
    uint64_t floor_digits = value.whole / 2;
    uint64_t tens = floor_digits - floor_digits % 10;
    bool has_tens = contains(&interval, tens);
    bool has_next_tens = contains(&interval, tens + 10);
    if (has_tens != has_next_tens) {
        return has_tens ? tens : tens + 10;
    }
    bool has_floor = contains(&interval, floor_digits);
    bool has_next = contains(&interval, floor_digits + 1);
    if (has_floor != has_next) {
        return has_floor ? floor_digits : floor_digits + 1;
    }
    bool is_above_middle = value.whole % 2 == 1 && (value.has_rest || floor_digits % 2 == 1);
    return is_above_middle ? floor_digits + 1 : floor_digits;
}

size_t dk_json_write_float(char *out, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t biased = bits >> 23 & 0xFF;
    uint32_t fraction = bits & 0x7FFFFF;
    if (biased == 0xFF) {
        static const char null_text[4] = {'n', 'u', 'l', 'l'};
        memcpy(out, null_text, sizeof null_text);
        return sizeof null_text;
    }
    size_t sign = bits >> 31;
    out[0] = '-';
    float magnitude = fabsf(value);
    if (magnitude < 0x1p24F && magnitude == (float)(uint32_t)magnitude) {
        uint32_t whole = (uint32_t)magnitude;
        return sign + write_digits(out + sign, whole, count_digits(whole));
    }
    uint32_t mantissa = biased == 0 ? fraction : fraction | 0x800000;
    int binary = (biased == 0 ? 1 : (int)biased) - 150;
    int decimal;
    uint64_t digits = shortest(mantissa, binary, fraction == 0 && biased > 1, &decimal);
    return sign + dk_json_decimal_write(out + sign, digits, decimal);
}
