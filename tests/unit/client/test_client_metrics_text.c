/* test_client_metrics_text.c: the exposition format: what is read, what is passed over, what is refused. */
#include "tests/unit/client/check.h"

#include <math.h>

#include "client/metrics_text.h"

static enum dk_metrics_step read_one(const char *text, struct dk_metric_sample *sample,
                                     struct dk_error *error)
{
    struct dk_metrics_cursor cursor;
    dk_metrics_cursor_init(&cursor, text, strlen(text));
    return dk_metrics_text_next(&cursor, sample, error);
}

static void test_names_labels_and_values_are_read(void **state)
{
    (void)state;
    static const char text[] = "# HELP a something {not a sample}\n# TYPE a counter\n\n"
                               "a 1\n  a:b_9{x=\"1\",le=\"+Inf\"} 2.5e-3 1700000000000\n"
                               "c{ x = \"a\\\\b\\\"c\\nd\" , } -3\nlast{} 4";
    struct dk_metrics_cursor cursor;
    struct dk_metric_sample sample;
    struct dk_error error;
    dk_metrics_cursor_init(&cursor, text, strlen(text));
    assert_int_equal(dk_metrics_text_next(&cursor, &sample, &error), DK_METRICS_SAMPLE);
    assert_string_equal(sample.name, "a");
    assert_true(sample.value == 1 && sample.label_count == 0);
    assert_int_equal(dk_metrics_text_next(&cursor, &sample, &error), DK_METRICS_SAMPLE);
    assert_string_equal(sample.name, "a:b_9");
    assert_true(sample.value == 0.0025);
    assert_string_equal(dk_metric_label(&sample, "x"), "1");
    assert_string_equal(dk_metric_label(&sample, "le"), "+Inf");
    assert_null(dk_metric_label(&sample, "y"));
    assert_int_equal(dk_metrics_text_next(&cursor, &sample, &error), DK_METRICS_SAMPLE);
    assert_string_equal(dk_metric_label(&sample, "x"), "a\\b\"c\nd");
    assert_true(sample.value == -3);
    assert_int_equal(dk_metrics_text_next(&cursor, &sample, &error), DK_METRICS_SAMPLE);
    assert_string_equal(sample.name, "last");
    assert_int_equal(dk_metrics_text_next(&cursor, &sample, &error), DK_METRICS_END);
    assert_int_equal(dk_metrics_text_next(&cursor, &sample, &error), DK_METRICS_END);
}

static void test_special_values_are_read(void **state)
{
    (void)state;
    struct dk_metric_sample sample;
    struct dk_error error;
    assert_int_equal(read_one("a NaN", &sample, &error), DK_METRICS_SAMPLE);
    assert_true(isnan(sample.value));
    assert_int_equal(read_one("a +Inf", &sample, &error), DK_METRICS_SAMPLE);
    assert_true(isinf(sample.value) && sample.value > 0);
    assert_int_equal(read_one("a -Inf", &sample, &error), DK_METRICS_SAMPLE);
    assert_true(isinf(sample.value) && sample.value < 0);
    assert_int_equal(read_one("a 1e+06", &sample, &error), DK_METRICS_SAMPLE);
    assert_true(sample.value == 1e6);
}

static void test_bad_lines_are_refused_with_their_number(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "9a 1",
        "a",
        "a ",
        "a x",
        "a 1 x",
        "a 1 2 3",
        "a{b=\"c\" 1",
        "a{b=c} 1",
        "a{b} 1",
        "a{=\"c\"} 1",
        "a{b=\"c} 1",
        "a{b=\"\\q\"} 1",
        "a{,} 1",
        "a{b=\"c\";d=\"e\"} 1",
        "a{b=\"c\"}",
        "a--1 2",
        "a --1",
        "a +-1",
        "a 1,5",
        "{b=\"c\"} 1",
        "a{b=\"c\"}{d=\"e\"} 1",
        "a{b=\"\\",
        "a 0x10",
        "a infinity",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char text[128];
        struct dk_metrics_cursor cursor;
        struct dk_metric_sample sample;
        struct dk_error error = {0};
        snprintf(text, sizeof text, "good 1\n# comment\n%s\nafter 1\n", lines[i]);
        dk_metrics_cursor_init(&cursor, text, strlen(text));
        assert_int_equal(dk_metrics_text_next(&cursor, &sample, &error), DK_METRICS_SAMPLE);
        if (dk_metrics_text_next(&cursor, &sample, &error) != DK_METRICS_BAD)
            fail_msg("accepted: %s", lines[i]);
        check_contains(error.message, "line 3");
    }
}

static void test_long_names_and_many_labels_are_refused_long_values_cut(void **state)
{
    (void)state;
    char text[1024], name[DK_METRIC_NAME_BYTES + 1];
    struct dk_metric_sample sample;
    struct dk_error error;
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    snprintf(text, sizeof text, "%s 1", name);
    assert_int_equal(read_one(text, &sample, &error), DK_METRICS_BAD);
    assert_int_equal(
        read_one("a{a=\"\",b=\"\",c=\"\",d=\"\",e=\"\",f=\"\",g=\"\",h=\"\"} 1", &sample, &error),
        DK_METRICS_SAMPLE);
    assert_int_equal(
        read_one("a{a=\"\",b=\"\",c=\"\",d=\"\",e=\"\",f=\"\",g=\"\",h=\"\",i=\"\"} 1", &sample, &error),
        DK_METRICS_BAD);
    /* Two bytes a letter, after an odd one: the border falls inside a letter, which is left out whole. */
    char *at = stpcpy(text, "a{v=\"x");
    for (int i = 0; i < 200; i++)
        at = stpcpy(at, "\xc3\xa9");
    stpcpy(at, "\"} 1");
    assert_int_equal(read_one(text, &sample, &error), DK_METRICS_SAMPLE);
    size_t length = strlen(sample.labels[0].value);
    assert_true(length == DK_METRIC_LABEL_BYTES - 1 || length == DK_METRIC_LABEL_BYTES - 2);
    assert_int_equal(length % 2, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_labels_and_values_are_read),
        cmocka_unit_test(test_special_values_are_read),
        cmocka_unit_test(test_bad_lines_are_refused_with_their_number),
        cmocka_unit_test(test_long_names_and_many_labels_are_refused_long_values_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
