/* test_traceparent.c: which traceparent headers name a trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/traceparent.h"

static const char good[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/* The bytes alone, without a NUL behind them: a step too far is seen by the sanitizers. */
static bool parse(const char *text, size_t length, struct dk_trace *out)
{
    char *bytes = malloc(length > 0 ? length : 1);
    assert_non_null(bytes);
    memcpy(bytes, text, length);
    bool is_good = dk_traceparent_parse(bytes, length, out);
    free(bytes);
    return is_good;
}

static void test_a_sampled_trace_is_taken(void **state)
{
    (void)state;
    struct dk_trace trace;
    char id[DK_TRACE_ID_TEXT_BYTES];
    assert_true(parse(good, strlen(good), &trace));
    dk_trace_write(&trace, id);
    assert_string_equal(id, "0af7651916cd43dd8448eb211c80319c");
    const char *const also_good[] = {
        "00-00000000000000000000000000000001-0000000000000001-ff",
        "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what a later version says",
        "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
    };
    for (size_t i = 0; i < sizeof also_good / sizeof also_good[0]; i++) {
        assert_true(parse(also_good[i], strlen(also_good[i]), &trace));
        dk_trace_write(&trace, id);
        assert_memory_equal(id, also_good[i] + 3, 32);
    }
}

static void test_malformed_and_unsampled_headers_name_no_trace(void **state)
{
    (void)state;
    const char *const bad[] = {
        "",
        "00",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",   /* not sampled */
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-02",   /* not sampled */
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",   /* no version */
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",   /* no trace */
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",   /* no parent */
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",   /* upper case */
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x", /* version 00 ends here */
        "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01x",
        " 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c\"} 1 # -b7ad6b716920-01",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct dk_trace trace = {1, 1};
        assert_false(parse(bad[i], strlen(bad[i]), &trace));
        assert_true(trace.high == 0 && trace.low == 0);
    }
    struct dk_trace trace;
    assert_false(dk_traceparent_parse(NULL, 0, &trace));
}

/* Every byte at every place: what is taken is always 32 lower-case hex digits of the header itself. */
static void test_no_single_byte_gets_anything_else_through(void **state)
{
    (void)state;
    for (size_t at = 0; at < sizeof good - 1; at++) {
        for (int byte = 0; byte < 256; byte++) {
            char text[sizeof good], id[DK_TRACE_ID_TEXT_BYTES];
            struct dk_trace trace;
            memcpy(text, good, sizeof good);
            text[at] = (char)byte;
            if (parse(text, sizeof good - 1, &trace)) {
                dk_trace_write(&trace, id);
                assert_memory_equal(id, text + 3, 32);
                assert_int_equal(strspn(text, "0123456789abcdef-"), sizeof good - 1);
            }
        }
    }
    for (size_t length = 0; length < sizeof good - 1; length++) {
        struct dk_trace trace;
        assert_false(parse(good, length, &trace));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_sampled_trace_is_taken),
        cmocka_unit_test(test_malformed_and_unsampled_headers_name_no_trace),
        cmocka_unit_test(test_no_single_byte_gets_anything_else_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
