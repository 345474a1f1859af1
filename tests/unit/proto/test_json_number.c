/* test_json_number.c: decimal to binary64 against strtod, over every path of the scanner. */
#include "tests/unit/proto/cmocka_all.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_reader.h"

static uint64_t random_state = 0x9E3779B97F4A7C15U;

static uint64_t random_u64(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Tests run in the C locale: strtod is the reference. */
static void check(const char *text)
{
    double expected = strtod(text, NULL);
    double got = 0;
    assert_true(dk_json_parse_number(text, strlen(text), &got));
    if (memcmp(&got, &expected, sizeof got) != 0) {
        fail_msg("%s: got %.17g, expected %.17g", text, got, expected);
    }
}

static void test_known_values(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "0",
        "-0",
        "0.0",
        "-0.0e5",
        "1",
        "-1",
        "10",
        "0.5",
        "1e0",
        "1E+2",
        "1e-2",
        "0e999999999999",
        "123456789012345678",
        "9007199254740993",
        "9007199254740992.5",
        "9007199254740993.0000000000000001",
        "18446744073709551615",
        "18446744073709551616",
        "9223372036854775807",
        "1e22",
        "1e23",
        "1e27",
        "1e28",
        "9999999999999999999e27",
        "9999999999999999999e-27",
        "1e-27",
        "1e-28",
        "4.9406564584124654e-324",
        "2.4703282292062327e-324",
        "2.4703282292062328e-324",
        "1e-400",
        "-1e-400",
        "1.7976931348623157e308",
        "1.7976931348623158e308",
        "2.2250738585072011e-308",
        "2.2250738585072014e-308",
        "0.1000000000000000055511151231257827021181583404541015625",
        "0.000000000000000000000000000000000000000000000000000001234",
        "100000000000000000000000000000000000000000000000000e-50",
        "8.589973e9",
        "9.5367431640625e-07",
        "0.3",
        "0.30000000000000004",
        "5e-324",
        "6929495644600919.5",
        "3.7455744005952583e15",
        "1.0000000000000002220446049250313080847263336181640625e0",
        "1.00000000000000011102230246251565404236316680908203125",
        "1.00000000000000011102230246251565404236316680908203124",
        "1.00000000000000011102230246251565404236316680908203126",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        check(texts[i]);
    }
}

static void test_random_decimals_of_every_length_and_exponent(void **state)
{
    (void)state;
    for (int i = 0; i < 300000; i++) {
        char text[64];
        uint64_t digits = random_u64() >> random_u64() % 60;
        int exponent = (int)(random_u64() % 80) - 40;
        switch (i % 4) {
        case 0:
            (void)snprintf(text, sizeof text, "%llue%d", (unsigned long long)digits, exponent);
            break;
        case 1:
            (void)snprintf(text, sizeof text, "-%llu.%llu", (unsigned long long)(digits % 1000),
                           (unsigned long long)(digits / 1000));
            break;
        case 2:
            (void)snprintf(text, sizeof text, "0.%0*llu", (int)(digits % 30) + 1,
                           (unsigned long long)(digits >> 20));
            break;
        default:
            (void)snprintf(text, sizeof text, "%llu.%07lluE%+d", (unsigned long long)(digits % 10),
                           (unsigned long long)(digits >> 41), exponent * 7);
            break;
        }
        check(text);
    }
}

static void test_random_bit_patterns_print_and_read_back(void **state)
{
    (void)state;
    for (int i = 0; i < 200000; i++) {
        uint64_t bits = random_u64();
        double value;
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value)) {
            char text[64];
            (void)snprintf(text, sizeof text, "%.*g", i % 2 == 0 ? 17 : 9, value);
            check(text);
        }
    }
}

/* The middle between two neighbours, exactly and a hair aside: the hardest decimals there are. */
static void test_halfway_decimals(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        char text[1100];
        double value = ldexp((double)(random_u64() >> 11), (int)(random_u64() % 120) - 100);
        double next = nextafter(value, INFINITY);
        /* An exponent range where long double holds the middle exactly, printed to its last digit. */
        long double middle = ((long double)value + (long double)next) / 2;
        int length = snprintf(text, sizeof text - 2, "%.160Lf", middle);
        assert_in_range(length, 1, 1000);
        check(text);
        memcpy(text + length, "1", 2);
        check(text);
        /* The same middle with an integer mantissa of 54 bits and no exponent: the 19-digit path. */
        uint64_t odd = (random_u64() >> 10 | UINT64_C(1) << 53) | 1;
        (void)snprintf(text, sizeof text, "%llu", (unsigned long long)odd);
        check(text);
        (void)snprintf(text, sizeof text, "%llu.5", (unsigned long long)(odd >> 1 | UINT64_C(1) << 52));
        check(text);
    }
}

static void test_not_json_numbers(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",      "-",     "+1",       "01",        "-01",   "00",     "1.",
        ".5",    "-.5",   "1e",       "1e+",       "1e-",   "1.e5",   "1..2",
        "1.2.3", "1e5.5", "1e5e5",    "--1",       "1-",    "1+1",    "0x10",
        "NaN",   "nan",   "Infinity", "-Infinity", "inf",   "1f",     "1,5",
        " 1",    "1 ",    "1_000",    "\xD9\xA1",  "1e400", "-1e400", "1e99999999999999999999",
        "2e308",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        double out = 42;
        if (dk_json_parse_number(texts[i], strlen(texts[i]), &out) || out != 42) {
            fail_msg("accepted: %s", texts[i]);
        }
    }
}

static void test_length_limit(void **state)
{
    (void)state;
    char text[1100];
    memset(text, '0', sizeof text);
    text[1] = '.';
    text[1023] = '1';
    double out;
    assert_true(dk_json_parse_number(text, 1024, &out));
    assert_true(out == 0.0);
    assert_false(dk_json_parse_number(text, 1025, &out));
    memset(text, '9', sizeof text);
    text[1] = '.';
    text[1024] = '\0';
    assert_true(dk_json_parse_number(text, 1024, &out));
    assert_true(out == strtod(text, NULL));
    memset(text, '9', 309);
    assert_false(dk_json_parse_number(text, 309, &out)); /* 1e309 almost */
    assert_true(dk_json_parse_number(text, 308, &out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_random_decimals_of_every_length_and_exponent),
        cmocka_unit_test(test_random_bit_patterns_print_and_read_back),
        cmocka_unit_test(test_halfway_decimals),
        cmocka_unit_test(test_not_json_numbers),
        cmocka_unit_test(test_length_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
