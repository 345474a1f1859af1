/* test_client_top.c: two scrapes become rates and quantiles; restarts and foreign texts are survived. */
#include "tests/unit/client/check.h"

#include <cjson/cJSON.h>
#include <math.h>

#include "client/cli/top_screen.h"
#include "client/top_view.h"

/* A scrape of one model `gate` of 8x4: `count` requests, all in (0.001, 0.01] s but a tenth in (0.01, 1]. */
static char *page(uint64_t count, uint64_t rows, uint64_t failed, double start_s)
{
    char *text;
    unsigned long long most = count - count / 10, all = count;
    assert_true(
        asprintf(&text,
                 "decomposek_info{version=\"9\",backend=\"cpu\",device=\"d\x1b[2J\",isa=\"x\"} 1\n"
                 "decomposek_http_refused_total %llu\ndecomposek_queue_depth "
                 "3\ndecomposek_in_flight_requests 5\ndecomposek_ready 1\n"
                 "decomposek_requests_total{model=\"@adhoc\",outcome=\"ok\"} 0\n"
                 "decomposek_requests_total{model=\"gate\",outcome=\"ok\"} %llu\n"
                 "decomposek_requests_total{model=\"gate\",outcome=\"busy\"} %llu\n"
                 "decomposek_requests_total{model=\"gate\",outcome=\"client_error\"} 0\n"
                 "decomposek_rows_total{model=\"gate\"} %llu\n"
                 "decomposek_batch_rows_sum %llu\ndecomposek_batch_rows_count %llu\n"
                 "decomposek_request_duration_seconds_bucket{shape=\"8x4\",t_bucket=\"2\",transport=\"a\",le="
                 "\"0.001\"} 0\n"
                 "decomposek_request_duration_seconds_bucket{shape=\"8x4\",t_bucket=\"2\",transport=\"a\",le="
                 "\"0.01\"} %llu\n"
                 "decomposek_request_duration_seconds_bucket{shape=\"8x4\",t_bucket=\"2\",transport=\"a\",le="
                 "\"1.0\"} %llu\n"
                 "decomposek_request_duration_seconds_bucket{shape=\"8x4\",t_bucket=\"2\",transport=\"a\",le="
                 "\"+Inf\"} %llu\n"
                 "decomposek_request_duration_seconds_sum{shape=\"8x4\",t_bucket=\"2\",transport=\"a\"} 1.5\n"
                 "decomposek_request_duration_seconds_bucket{shape=\"8x4\",t_bucket=\"2\",transport=\"b\",le="
                 "\"0.01\"} 0\n"
                 "decomposek_request_duration_seconds_bucket{shape=\"8x4\",t_bucket=\"2\",transport=\"b\",le="
                 "\"+Inf\"} 0\n"
                 "decomposek_kernel_duration_seconds_bucket{shape=\"8x4\",t_bucket=\"2\",le=\"+Inf\"} %llu\n"
                 "decomposek_kernel_duration_seconds_sum{shape=\"8x4\",t_bucket=\"2\"} %llu.25\n"
                 "decomposek_request_duration_seconds_bucket{shape=\"16x4\",t_bucket=\"2\",transport=\"a\","
                 "le=\"+Inf\"} 0\n"
                 "process_start_time_seconds %.3f\nprocess_cpu_seconds_total %llu.5\nunknown{a=\"b\"} 7\n",
                 all / 2, all, (unsigned long long)failed, (unsigned long long)rows, (unsigned long long)rows,
                 all, most, all, all, all, all * 2, start_s, all / 100) > 0);
    return text;
}

static struct dk_top_snapshot snapshot_of(uint64_t count, uint64_t rows, uint64_t failed, double start_s,
                                          uint64_t taken_ns)
{
    struct dk_top_snapshot snapshot;
    struct dk_error error = {0};
    char *text = page(count, rows, failed, start_s);
    if (dk_top_snapshot_read(text, strlen(text), &snapshot, &error) != DK_OK)
        fail_msg("%s", error.message);
    free(text);
    snapshot.taken_ns = taken_ns;
    return snapshot;
}

static cJSON *models(void)
{
    cJSON *tree = cJSON_Parse("{\"models\":[{\"name\":\"gate\",\"k\":8,\"n\":4}]}");
    assert_non_null(tree);
    return tree;
}

static void check_near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-6 * fabs(expected)))
        fail_msg("found %.17g, expected %.17g", found, expected);
}

static void test_rates_and_quantiles_are_of_the_interval(void **state)
{
    (void)state;
    struct dk_top_snapshot before = snapshot_of(1000, 5000, 10, 100, 1000000000),
                           now = snapshot_of(3000, 9000, 14, 100, 3000000000);
    cJSON *tree = models();
    struct dk_top_view view;
    struct dk_error error;
    assert_int_equal(dk_top_view_make(&before, &now, tree, false, &view, &error), DK_OK);
    assert_false(view.is_restarted);
    assert_int_equal(view.row_count, 2);
    const struct dk_top_row *row = &view.rows[0];
    assert_string_equal(row->shape, "8x4");
    check_near(row->requests_per_s, 1000);
    check_near(row->rows_per_s, 2000);
    check_near(row->failed_per_s, 2);
    /* 2000 new: 1800 evenly in (1, 10] ms, 200 in (10, 1000]: the 1000th and the 1980th. */
    check_near(row->p50_us, 1000 + 9000 * (1000.0 / 1800));
    check_near(row->p99_us, 10000 + 990000 * (180.0 / 200));
    check_near(row->kernel_mean_us, 2e6);
    assert_true(isnan(row->queue_p99_us));
    assert_string_equal(view.rows[1].shape, "16x4");
    assert_true(view.rows[1].requests_per_s == 0 && isnan(view.rows[1].p50_us));
    check_near(view.batch_rows, 2);
    check_near(view.cpu_fraction, 10);
    check_near(view.requests_per_s, 1002);
    check_near(view.refused_per_s, 500);
    dk_top_view_deinit(&view);
    assert_int_equal(dk_top_view_make(&before, &now, tree, true, &view, &error), DK_OK);
    assert_int_equal(view.row_count, 1); /* only what had requests */
    assert_int_equal(view.rows[0].bucket, 2);
    assert_true(isnan(view.rows[0].rows_per_s));
    dk_top_view_deinit(&view);
    dk_top_snapshot_deinit(&before);
    dk_top_snapshot_deinit(&now);
    cJSON_Delete(tree);
}

static void check_restart(struct dk_top_snapshot before, struct dk_top_snapshot now)
{
    cJSON *tree = models();
    struct dk_top_view view;
    struct dk_error error;
    assert_int_equal(dk_top_view_make(&before, &now, tree, false, &view, &error), DK_OK);
    assert_true(view.is_restarted);
    check_near(view.rows[0].requests_per_s, 20); /* what the new process has counted, not a huge difference */
    check_near(view.rows[0].rows_per_s, 30);
    dk_top_view_deinit(&view);
    dk_top_snapshot_deinit(&before);
    dk_top_snapshot_deinit(&now);
    cJSON_Delete(tree);
}

static void test_a_restart_is_seen_and_counts_from_zero(void **state)
{
    (void)state;
    check_restart(snapshot_of(1000, 5000, 0, 100, 1000000000), snapshot_of(20, 30, 0, 200, 2000000000));
    /* Without a start time (or with the same) it is the counters that fall. */
    check_restart(snapshot_of(1000, 5000, 0, 100, 1000000000), snapshot_of(20, 30, 0, 100, 2000000000));
}

static void test_rows_of_models_that_are_gone_count_as_other(void **state)
{
    (void)state;
    struct dk_top_snapshot before = snapshot_of(10, 10, 0, 1, 0), now = snapshot_of(20, 20, 0, 1, 1000000000);
    struct dk_top_view view;
    struct dk_error error;
    assert_int_equal(dk_top_view_make(&before, &now, NULL, false, &view, &error), DK_OK);
    assert_true(view.rows[0].rows_per_s == 0);
    check_near(view.rows_per_s, 10); /* the total does not lose them */
    dk_top_view_deinit(&view);
    dk_top_snapshot_deinit(&before);
    dk_top_snapshot_deinit(&now);
}

static void test_text_and_json_show_the_view(void **state)
{
    (void)state;
    struct dk_top_snapshot before = snapshot_of(1000, 5000, 10, 100, 1000000000),
                           now = snapshot_of(3000, 9000, 14, 100, 3000000000);
    cJSON *tree = models();
    struct dk_top_view view;
    struct dk_error error;
    char *text;
    size_t length;
    assert_int_equal(dk_top_view_make(&before, &now, tree, false, &view, &error), DK_OK);
    FILE *stream = open_memstream(&text, &length);
    assert_true(dk_top_view_text(&view, false, stream));
    fclose(stream);
    check_contains(text,
                   "decomposek 9  cpu  d?[2J  ready"); /* no escape from a server reaches the terminal */
    check_contains(text, "queue 3  in flight 5  launch 2.0 rows");
    check_contains(text, "\n8x4     1000    2000");
    assert_null(strchr(text, 0x1b));
    free(text);
    struct dk_json_text json = {0};
    dk_top_view_json(&view, &json);
    cJSON *parsed = cJSON_ParseWithOpts(json.data, NULL, true);
    const cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(parsed, "shapes"), 0);
    assert_string_equal(cJSON_GetObjectItemCaseSensitive(first, "shape")->valuestring, "8x4");
    check_near(cJSON_GetObjectItemCaseSensitive(first, "requests_per_s")->valuedouble, 1000);
    cJSON_Delete(parsed);
    dk_json_text_free(&json);
    dk_top_view_deinit(&view);
    dk_top_snapshot_deinit(&before);
    dk_top_snapshot_deinit(&now);
    cJSON_Delete(tree);
}

static void test_quantiles_at_the_borders(void **state)
{
    (void)state;
    const struct dk_top_histogram histogram = {
        .bound_count = 3, .bounds = {1, 2, INFINITY}, .counts = {0, 4, 8}};
    check_near(dk_top_quantile(NULL, &histogram, 0.5), 2);
    check_near(dk_top_quantile(NULL, &histogram, 0.25), 1.5);
    check_near(dk_top_quantile(NULL, &histogram, 0.99), 2); /* beyond the last bound: at least that */
    const struct dk_top_histogram empty = {0};
    assert_true(isnan(dk_top_quantile(NULL, &empty, 0.5)));
    assert_true(isnan(dk_top_quantile(&histogram, &histogram, 0.5)));
}

static void test_texts_that_are_no_metrics_of_ours_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "<html>",
        "decomposek_request_duration_seconds_bucket{shape=\"8x4\",t_bucket=\"2\"} 1",
        "decomposek_request_duration_seconds_bucket{shape=\"8x4\",le=\"1\"} 1",
        "decomposek_request_duration_seconds_bucket{shape=\"8x4\",t_bucket=\"two\",le=\"1\"} 1",
        "decomposek_request_duration_seconds_bucket{shape=\"8x4\",t_bucket=\"2\",le=\"NaN\"} 1",
        "decomposek_requests_total 1",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct dk_top_snapshot snapshot;
        struct dk_error error = {0};
        if (dk_top_snapshot_read(texts[i], strlen(texts[i]), &snapshot, &error) != DK_BAD_REQUEST)
            fail_msg("accepted: %s", texts[i]);
        assert_null(snapshot.series);
        assert_int_equal(snapshot.series_count, 0);
    }
}

static void test_more_bounds_than_any_histogram_has_are_refused(void **state)
{
    (void)state;
    char *text;
    size_t length;
    FILE *stream = open_memstream(&text, &length);
    for (int i = 0; i <= DK_TOP_MAX_BOUNDS; i++)
        fprintf(stream, "decomposek_queue_duration_seconds_bucket{shape=\"s\",t_bucket=\"1\",le=\"%d\"} 1\n",
                i);
    fclose(stream);
    struct dk_top_snapshot snapshot;
    struct dk_error error;
    assert_int_equal(dk_top_snapshot_read(text, length, &snapshot, &error), DK_TOO_LARGE);
    free(text);
}

static void test_text_is_cut_to_the_terminal(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t columns, lines;
        const char *expected;
    } rows[] = {
        {"abc\nde\n", 80, 24, "abc\nde\n"},
        {"abc\nde\n", 2, 24, "ab\nde\n"},
        {"abc\nde\nf\n", 80, 2, "abc\nde"},
        {"abc\nde\n", 80, 1, "abc"},
        {"\xc3\xa9\xc3\xa9\xc3\xa9\nx", 2, 2, "\xc3\xa9\xc3\xa9\nx"},
        {"", 5, 5, ""},
        {"abc", 0, 5, ""},
        {"abc\n", 5, 0, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char out[64];
        dk_top_clip(rows[i].text, rows[i].columns, rows[i].lines, out);
        assert_string_equal(out, rows[i].expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates_and_quantiles_are_of_the_interval),
        cmocka_unit_test(test_a_restart_is_seen_and_counts_from_zero),
        cmocka_unit_test(test_rows_of_models_that_are_gone_count_as_other),
        cmocka_unit_test(test_text_and_json_show_the_view),
        cmocka_unit_test(test_quantiles_at_the_borders),
        cmocka_unit_test(test_texts_that_are_no_metrics_of_ours_are_refused),
        cmocka_unit_test(test_more_bounds_than_any_histogram_has_are_refused),
        cmocka_unit_test(test_text_is_cut_to_the_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
