/* test_client_options.c: option tables: forms, bounds, positionals, refusals with suggestions. */
#include "tests/unit/client/check.h"

#include "client/cli/options.h"
#include "proto/dtype.h"
#include "proto/gemm.h"

static struct {
    bool flag, has_count;
    const char *text;
    uint64_t count;
    double seconds;
    dk_dtype dtype;
    dk_epilogue epilogue;
} values;

static const struct dk_option options[] = {
    {"flag", DK_OPTION_FLAG, &values.flag, NULL, NULL, "a flag", 0, 0},
    {"text", DK_OPTION_TEXT, &values.text, NULL, "TEXT", "a text", 0, 0},
    {"count", DK_OPTION_U64, &values.count, &values.has_count, "N", "a count", 1, 100},
};
static const struct dk_option more_options[] = {
    {"timeout", DK_OPTION_SECONDS, &values.seconds, NULL, "SECONDS", "seconds", 0, 0},
    {"dtype", DK_OPTION_DTYPE, &values.dtype, NULL, "TYPE", "a type", 0, 0},
    {"epilogue", DK_OPTION_EPILOGUE, &values.epilogue, NULL, "NAME", "an epilogue", 0, 0},
};
static const struct dk_option_group groups[] = {{options, 3}, {more_options, 3}};

/* Parses the words up to NULL; argv is kept for a look at the positionals. */
static char *argv[16];
static int positional_count;
static struct dk_error error;

static dk_status parse(bool stop_early, const char *const *words)
{
    memset(&values, 0, sizeof values);
    memset(&error, 0, sizeof error);
    positional_count = -1;
    int argc = 0;
    while (words[argc]) {
        argv[argc] = (char *)(uintptr_t)words[argc];
        argc++;
    }
    return dk_options_parse(groups, 2, stop_early, argc, argv, &positional_count, &error);
}
#define PARSE(...) parse(false, (const char *const[]){__VA_ARGS__, NULL})

static void test_both_forms_and_all_kinds(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--flag", "--text", "a b", "--count=7", "--timeout", "0.25", "--dtype=bf16",
                           "--epilogue", "relu"),
                     DK_OK);
    assert_true(values.flag && values.has_count);
    assert_string_equal(values.text, "a b");
    assert_int_equal(values.count, 7);
    assert_true(values.seconds == 0.25);
    assert_int_equal(values.dtype, DK_BF16);
    assert_int_equal(values.epilogue, DK_EPILOGUE_RELU);
    assert_int_equal(positional_count, 0);
}

static void test_positionals_keep_their_order_around_options(void **state)
{
    (void)state;
    assert_int_equal(PARSE("one", "--count", "5", "-", "--", "--flag"), DK_OK);
    assert_int_equal(positional_count, 3);
    assert_string_equal(argv[0], "one");
    assert_string_equal(argv[1], "-");
    assert_string_equal(argv[2], "--flag");
    assert_false(values.flag);
}

static void test_stopping_early_leaves_the_rest(void **state)
{
    (void)state;
    assert_int_equal(parse(true, (const char *const[]){"--count", "5", "infer", "--unknown", NULL}), DK_OK);
    assert_int_equal(positional_count, 2);
    assert_string_equal(argv[0], "infer");
    assert_string_equal(argv[1], "--unknown");
}

static void test_last_one_wins_and_value_may_look_like_an_option(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--count", "5", "--count", "6", "--text", "--flag"), DK_OK);
    assert_int_equal(values.count, 6);
    assert_string_equal(values.text, "--flag");
    assert_false(values.flag);
}

static void test_unknown_option_suggests_the_nearest(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--cuont", "5"), DK_BAD_REQUEST);
    check_contains(error.message, "'--cuont'");
    check_contains(error.message, "'--count'");
    assert_int_equal(PARSE("--epi=relu"), DK_BAD_REQUEST); /* a beginning is a hint, not an abbreviation */
    check_contains(error.message, "'--epilogue'");
    assert_int_equal(PARSE("--zzzzzz"), DK_BAD_REQUEST);
    assert_null(strstr(error.message, "did you mean"));
    assert_int_equal(PARSE("--a-word-that-is-much-longer-than-any-option-there-is"), DK_BAD_REQUEST);
    assert_int_equal(PARSE("-x"), DK_BAD_REQUEST);
    check_contains(error.message, "two dashes");
}

static void test_missing_and_unwanted_values_are_refused(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--count"), DK_BAD_REQUEST);
    check_contains(error.message, "--count needs a value");
    assert_int_equal(PARSE("--flag=yes"), DK_BAD_REQUEST);
    check_contains(error.message, "takes no value");
    assert_int_equal(PARSE("--text="), DK_BAD_REQUEST);
    check_contains(error.message, "empty");
}

static void test_numbers_outside_their_bounds_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "0", "101", "-1", "+1", "1.0", "1e1", " 1", "1 ", "", "0x1", "18446744073709551617"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(PARSE("--count", bad[i]), DK_BAD_REQUEST);
        check_contains(error.message, "from 1 to 100");
        assert_int_equal(values.count, 0);
    }
    assert_int_equal(PARSE("--count", "100"), DK_OK);
}

static void test_c42_seconds_take_a_point_and_no_comma(void **state)
{
    (void)state;
    static const char *const bad[] = {"0,5", "0", "1e9", "nan", "inf", "-1", "", "1s", ".5"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(PARSE("--timeout", bad[i]), DK_BAD_REQUEST);
    assert_int_equal(PARSE("--timeout", "1e-3"), DK_OK);
    assert_true(values.seconds == 0.001);
}

static void test_types_and_epilogues_are_exact_words(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--dtype", "FP32"), DK_BAD_REQUEST);
    check_contains(error.message, "'FP32'");
    assert_int_equal(PARSE("--dtype", "int32"), DK_BAD_REQUEST);
    assert_int_equal(PARSE("--epilogue", "gelu"), DK_BAD_REQUEST);
    check_contains(error.message, "none, relu, sigmoid");
}

static void test_help_lists_every_option(void **state)
{
    (void)state;
    char *text = NULL;
    size_t length;
    FILE *stream = open_memstream(&text, &length);
    assert_non_null(stream);
    dk_options_print(groups, 2, stream);
    fclose(stream);
    for (size_t i = 0; i < 3; i++) {
        check_contains(text, options[i].name);
        check_contains(text, more_options[i].help);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_forms_and_all_kinds),
        cmocka_unit_test(test_positionals_keep_their_order_around_options),
        cmocka_unit_test(test_stopping_early_leaves_the_rest),
        cmocka_unit_test(test_last_one_wins_and_value_may_look_like_an_option),
        cmocka_unit_test(test_unknown_option_suggests_the_nearest),
        cmocka_unit_test(test_missing_and_unwanted_values_are_refused),
        cmocka_unit_test(test_numbers_outside_their_bounds_are_refused),
        cmocka_unit_test(test_c42_seconds_take_a_point_and_no_comma),
        cmocka_unit_test(test_types_and_epilogues_are_exact_words),
        cmocka_unit_test(test_help_lists_every_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
