/* test_metrics.c: the exposition text: names, labels, cumulative buckets, both formats, under load. */
#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/metrics.h"
#include "tests/unit/server/exposition_reader.h"

static const uint32_t buckets[] = {1, 2, 4, 8, 16, 32, 64};
enum { BUCKETS = 7 };

static struct dk_metrics *make(void)
{
    struct dk_metrics *metrics = NULL;
    struct dk_error error = {0};
    assert_int_equal(dk_metrics_new(buckets, BUCKETS, &metrics, &error), DK_OK);
    return metrics;
}

static char *scrape(const struct dk_metrics *metrics, bool is_openmetrics)
{
    struct dk_json_text text = {0};
    dk_metrics_write(metrics, is_openmetrics, &text);
    assert_false(text.failed);
    assert_non_null(text.data);
    return text.data;
}

static struct dk_metrics_sample sample_of(int shape, int model, uint32_t bucket)
{
    struct dk_metrics_sample sample = {.shape = shape,
                                       .model = model,
                                       .bucket_index = bucket,
                                       .transport = DK_TRANSPORT_HTTP_RAW,
                                       .outcome = DK_OUTCOME_OK,
                                       .rows = 3,
                                       .queue_ns = 6000,
                                       .copy_ns = 700,
                                       .kernel_ns = 12000,
                                       .request_ns = 40000,
                                       .has_times = true};
    return sample;
}

static void test_series_of_a_loaded_shape_and_model_exist_at_zero(void **state)
{
    (void)state;
    struct dk_metrics *metrics = make();
    assert_int_equal(dk_metrics_shape(metrics, 7168, 256), 1);
    assert_int_equal(dk_metrics_model(metrics, "gate"), 0);
    char *text = scrape(metrics, false);
    assert_true(value_of(text, "decomposek_request_duration_seconds_bucket{shape=\"7168x256\",t_bucket=\"1\","
                               "transport=\"http_json\",le=\"5e-06\"}") == 0.0);
    assert_true(
        value_of(text, "decomposek_kernel_duration_seconds_count{shape=\"7168x256\",t_bucket=\"64\"}") ==
        0.0);
    assert_true(value_of(text, "decomposek_requests_total{model=\"gate\",outcome=\"server_error\"}") == 0.0);
    assert_true(value_of(text, "decomposek_rows_total{model=\"gate\"}") == 0.0);
    assert_null(strstr(text, "shape=\"other\"")); /* appears with its first sample */
    free(text);
    dk_metrics_free(metrics);
}

static void test_a_sample_lands_in_its_series_and_only_there(void **state)
{
    (void)state;
    struct dk_metrics *metrics = make();
    int shape = dk_metrics_shape(metrics, 7168, 256), model = dk_metrics_model(metrics, "gate");
    int other = dk_metrics_model(metrics, "gate2");
    struct dk_metrics_sample sample = sample_of(shape, model, 2);
    dk_metrics_record(metrics, &sample);
    char *text = scrape(metrics, false);
#define REQUEST(end) "decomposek_request_duration_seconds_" end
#define WHERE        "shape=\"7168x256\",t_bucket=\"4\""
    assert_true(value_of(text, REQUEST("bucket{" WHERE ",transport=\"http_raw\",le=\"3e-05\"}")) == 0.0);
    assert_true(value_of(text, REQUEST("bucket{" WHERE ",transport=\"http_raw\",le=\"5e-05\"}")) == 1.0);
    assert_true(value_of(text, REQUEST("bucket{" WHERE ",transport=\"http_raw\",le=\"+Inf\"}")) == 1.0);
    assert_non_null(strstr(text, REQUEST("sum{" WHERE ",transport=\"http_raw\"} 0.000040000\n")));
    assert_true(value_of(text, REQUEST("count{" WHERE ",transport=\"http_json\"}")) == 0.0);
    assert_true(value_of(text, "decomposek_queue_duration_seconds_bucket{" WHERE ",le=\"5e-06\"}") == 0.0);
    assert_true(value_of(text, "decomposek_queue_duration_seconds_bucket{" WHERE ",le=\"7.5e-06\"}") == 1.0);
    assert_true(value_of(text, "decomposek_copy_duration_seconds_bucket{" WHERE ",le=\"5e-07\"}") == 0.0);
    assert_true(value_of(text, "decomposek_copy_duration_seconds_bucket{" WHERE ",le=\"1e-06\"}") == 1.0);
    assert_true(value_of(text, "decomposek_kernel_duration_seconds_bucket{" WHERE ",le=\"1e-05\"}") == 0.0);
    assert_true(value_of(text, "decomposek_kernel_duration_seconds_bucket{" WHERE ",le=\"1.5e-05\"}") == 1.0);
    assert_true(value_of(text, "decomposek_requests_total{model=\"gate\",outcome=\"ok\"}") == 1.0);
    assert_true(value_of(text, "decomposek_rows_total{model=\"gate\"}") == 3.0);
    assert_true(value_of(text, "decomposek_requests_total{model=\"gate2\",outcome=\"ok\"}") == 0.0);
    assert_true(value_of(text, "decomposek_requests_total{model=\"@adhoc\",outcome=\"ok\"}") == 0.0);
    assert_true(value_of(text, "decomposek_request_rows_bucket{le=\"2.0\"}") == 0.0);
    assert_true(value_of(text, "decomposek_request_rows_bucket{le=\"4.0\"}") == 1.0);
    assert_int_equal(other, model + 1);
    free(text);
    dk_metrics_free(metrics);
}

static void test_ad_hoc_and_unknown_handles_count_as_other(void **state)
{
    (void)state;
    struct dk_metrics *metrics = make();
    const int handles[] = {-1, 99, DK_METRICS_SHAPE_OTHER};
    for (int i = 0; i < 3; i++) {
        struct dk_metrics_sample sample = sample_of(handles[i], -1 - i, 0);
        dk_metrics_record(metrics, &sample);
    }
    struct dk_metrics_sample sample = sample_of(0, 5000, UINT32_MAX); /* above the largest bucket */
    dk_metrics_record(metrics, &sample);
    char *text = scrape(metrics, false);
    assert_true(value_of(text, "decomposek_kernel_duration_seconds_count{shape=\"other\",t_bucket=\"1\"}") ==
                3.0);
    assert_true(value_of(text, "decomposek_kernel_duration_seconds_count{shape=\"other\",t_bucket=\"64\"}") ==
                1.0);
    assert_true(value_of(text, "decomposek_requests_total{model=\"@adhoc\",outcome=\"ok\"}") == 4.0);
    free(text);
    dk_metrics_free(metrics);
}

static void test_a_request_without_times_counts_only_its_outcome(void **state)
{
    (void)state;
    struct dk_metrics *metrics = make();
    struct dk_metrics_sample sample = sample_of(dk_metrics_shape(metrics, 8, 4), -1, 0);
    sample.has_times = false;
    sample.outcome = DK_OUTCOME_BUSY;
    dk_metrics_record(metrics, &sample);
    char *text = scrape(metrics, false);
    assert_true(value_of(text, "decomposek_requests_total{model=\"@adhoc\",outcome=\"busy\"}") == 1.0);
    assert_true(value_of(text, "decomposek_kernel_duration_seconds_count{shape=\"8x4\",t_bucket=\"1\"}") ==
                0.0);
    assert_true(value_of(text, "decomposek_request_rows_count") == 0.0);
    free(text);
    dk_metrics_free(metrics);
}

static void test_bounds_are_inclusive_and_infinity_takes_the_rest(void **state)
{
    (void)state;
    struct dk_metrics *metrics = make();
    struct dk_metrics_sample sample = sample_of(dk_metrics_shape(metrics, 8, 4), -1, 0);
    sample.kernel_ns = 500;
    dk_metrics_record(metrics, &sample);
    sample.kernel_ns = 501;
    dk_metrics_record(metrics, &sample);
    sample.kernel_ns = 100000001;
    dk_metrics_record(metrics, &sample);
    char *text = scrape(metrics, false);
#define KERNEL(le) "decomposek_kernel_duration_seconds_bucket{shape=\"8x4\",t_bucket=\"1\",le=\"" le "\"}"
    assert_true(value_of(text, KERNEL("5e-07")) == 1.0);
    assert_true(value_of(text, KERNEL("1e-06")) == 2.0);
    assert_true(value_of(text, KERNEL("0.1")) == 2.0);
    assert_true(value_of(text, KERNEL("+Inf")) == 3.0);
    free(text);
    dk_metrics_free(metrics);
}

/* The le texts of a family, in order, must be these. */
static void check_bounds(const char *text, const char *prefix, const double *wanted, size_t count)
{
    const char *at = strstr(text, prefix);
    for (size_t i = 0; i < count; i++) {
        assert_non_null(at);
        const char *le = strstr(at, "le=\"") + 4;
        double got = strtod(le, NULL);
        assert_true(fabs(got - wanted[i]) <= 1e-12 * wanted[i]);
        at = strchr(at, '\n') + 1;
        assert_true(strncmp(at, prefix, strlen(prefix)) == 0);
    }
    assert_non_null(strstr(at, "le=\"+Inf\""));
    assert_true(strstr(at, "le=\"+Inf\"") < strchr(at, '\n'));
}

static void test_buckets_are_those_of_the_operations_document(void **state)
{
    (void)state;
    static const double kernel[] = {5e-7, 1e-6, 1.5e-6, 2e-6,  2.5e-6, 3e-6, 4e-6, 5e-6, 7.5e-6, 1e-5, 1.5e-5,
                                    2e-5, 3e-5, 5e-5,   75e-6, 1e-4,   2e-4, 5e-4, 1e-3, 1e-2,   1e-1};
    static const double request[] = {5e-6, 7.5e-6, 1e-5,  1.5e-5, 2e-5, 3e-5, 5e-5, 75e-6, 1e-4, 1.5e-4, 2e-4,
                                     3e-4, 5e-4,   75e-5, 1e-3,   2e-3, 5e-3, 1e-2, 5e-2,  0.1,  1,      10};
    struct dk_metrics *metrics = make();
    dk_metrics_shape(metrics, 7168, 256);
    for (int format = 0; format < 2; format++) { /* the same texts in both */
        char *text = scrape(metrics, format == 1);
        check_bounds(text, "decomposek_kernel_duration_seconds_bucket{shape=\"7168x256\",t_bucket=\"1\",",
                     kernel, sizeof kernel / sizeof kernel[0]);
        check_bounds(text,
                     "decomposek_request_duration_seconds_bucket{shape=\"7168x256\",t_bucket=\"1\",transport="
                     "\"http_json\",",
                     request, sizeof request / sizeof request[0]);
        free(text);
    }
    dk_metrics_free(metrics);
}

static void test_both_formats_hold_the_same_samples(void **state)
{
    (void)state;
    struct dk_metrics *metrics = make();
    dk_metrics_set_info(metrics, "0.1.0", "cpu", "x", "avx2");
    struct dk_metrics_sample sample = sample_of(dk_metrics_shape(metrics, 7168, 256), -1, 1);
    dk_metrics_record(metrics, &sample);
    char *plain = scrape(metrics, false), *open = scrape(metrics, true);
    assert_int_equal(read_strictly(plain, false), read_strictly(open, true));
    assert_non_null(strstr(plain, "# TYPE decomposek_requests_total counter\n"));
    assert_non_null(strstr(open, "# TYPE decomposek_requests counter\n"));
    assert_non_null(strstr(open, "\ndecomposek_requests_total{"));
    char *cut_plain = strstr(plain, "# HELP process_"), *cut_open = strstr(open, "# HELP process_");
    *cut_plain = *cut_open = '\0'; /* the process lives on between the scrapes */
    const char *a = plain, *b = open;
    for (; *a != '\0' && *b != '\0'; a = strchr(a, '\n') + 1, b = strchr(b, '\n') + 1) {
        size_t length = strcspn(a, "\n");
        if (*a != '#')
            assert_memory_equal(a, b, length + 1);
    }
    free(plain);
    free(open);
    dk_metrics_free(metrics);
}

static void test_scalars_add_set_and_show(void **state)
{
    (void)state;
    struct dk_metrics *metrics = make();
    dk_metrics_add(metrics, DK_METRIC_IN_FLIGHT, 3);
    dk_metrics_add(metrics, DK_METRIC_IN_FLIGHT, -1);
    dk_metrics_set(metrics, DK_METRIC_WEIGHTS_BYTES, 3670016);
    dk_metrics_add(metrics, DK_METRIC_RELOADS, 1);
    assert_int_equal(dk_metrics_get(metrics, DK_METRIC_IN_FLIGHT), 2);
    char *text = scrape(metrics, false);
    assert_true(value_of(text, "decomposek_in_flight_requests") == 2.0);
    assert_true(value_of(text, "decomposek_weights_bytes") == 3670016.0);
    assert_true(value_of(text, "decomposek_reloads_total") == 1.0);
    assert_true(value_of(text, "process_resident_memory_bytes") > 100000.0);
    assert_true(value_of(text, "process_open_fds") >= 3.0);
    assert_true(value_of(text, "process_cpu_seconds_total") > 0.0);
    double started = value_of(text, "process_start_time_seconds");
    assert_true(started <= (double)time(NULL) + 1.0 && started > (double)time(NULL) - 3600.0);
    free(text);
    dk_metrics_free(metrics);
}

static void test_launches_fill_their_histograms(void **state)
{
    (void)state;
    struct dk_metrics *metrics = make();
    dk_metrics_record_launch(metrics, 17, 3);
    char *text = scrape(metrics, false);
    assert_true(value_of(text, "decomposek_batch_rows_bucket{le=\"16.0\"}") == 0.0);
    assert_true(value_of(text, "decomposek_batch_rows_bucket{le=\"32.0\"}") == 1.0);
    assert_true(value_of(text, "decomposek_batch_rows_sum") == 17.0);
    assert_true(value_of(text, "decomposek_batch_jobs_bucket{le=\"4.0\"}") == 1.0);
    assert_true(value_of(text, "decomposek_batch_jobs_bucket{le=\"2.0\"}") == 0.0);
    free(text);
    dk_metrics_free(metrics);
}

static void test_info_escapes_what_a_device_is_called(void **state)
{
    (void)state;
    struct dk_metrics *metrics = make();
    char *text = scrape(metrics, false);
    assert_null(strstr(text, "decomposek_info"));
    free(text);
    dk_metrics_set_info(metrics, "0.1.0", "cpu", "first", NULL);
    dk_metrics_set_info(metrics, "0.1.0", "cpu", "a\"b\\c\nd\xff\x01", "avx512");
    text = scrape(metrics, false);
    assert_non_null(strstr(text,
                           "\ndecomposek_info{version=\"0.1.0\",backend=\"cpu\",device=\"a\\\"b\\\\c\\nd??\","
                           "isa=\"avx512\"} 1\n"));
    read_strictly(text, false);
    free(text);
    dk_metrics_free(metrics);
}

static void test_equal_shapes_share_a_handle_and_the_table_is_bounded(void **state)
{
    (void)state;
    struct dk_metrics *metrics = make();
    for (int i = 1; i <= DK_METRICS_MAX_SHAPES; i++)
        assert_int_equal(dk_metrics_shape(metrics, (uint64_t)i, 4), i);
    assert_int_equal(dk_metrics_shape(metrics, 5, 4), 5);
    assert_int_equal(dk_metrics_shape(metrics, 9999, 4), -1);
    char name[16];
    for (int i = 0; i < DK_METRICS_MAX_MODELS; i++) {
        snprintf(name, sizeof name, "m%d", i);
        assert_int_equal(dk_metrics_model(metrics, name), i);
    }
    assert_int_equal(dk_metrics_model(metrics, "m7"), 7);
    assert_int_equal(dk_metrics_model(metrics, "one-more"), -1);
    char *text = scrape(metrics, false);
    assert_true(read_strictly(text, false) > 1000);
    free(text);
    dk_metrics_free(metrics);
}

static void test_bad_bucket_counts_are_refused(void **state)
{
    (void)state;
    struct dk_metrics *metrics = NULL;
    struct dk_error error = {0};
    assert_int_equal(dk_metrics_new(buckets, 0, &metrics, &error), DK_BAD_VALUE);
    assert_int_equal(dk_metrics_new(buckets, 1000, &metrics, &error), DK_BAD_VALUE);
    assert_null(metrics);
    dk_metrics_free(NULL);
}

static void test_quantile_is_linear_inside_its_bucket(void **state)
{
    (void)state;
    struct dk_metrics *metrics = make();
    int shape = dk_metrics_shape(metrics, 8, 4);
    assert_true(isnan(dk_metrics_request_quantile(metrics, shape, 0, 0.5)));
    struct dk_metrics_sample sample = sample_of(shape, -1, 0);
    for (int i = 0; i < 100; i++) { /* 50 in (10, 15] us, 50 in (100, 150] us, over both transports */
        sample.transport = i % 2 == 0 ? DK_TRANSPORT_HTTP_JSON : DK_TRANSPORT_HTTP_RAW;
        sample.request_ns = i < 50 ? 12000 : 120000;
        dk_metrics_record(metrics, &sample);
    }
    assert_true(fabs(dk_metrics_request_quantile(metrics, shape, 0, 0.25) - 12.5e-6) < 1e-9);
    assert_true(fabs(dk_metrics_request_quantile(metrics, shape, 0, 0.5) - 15e-6) < 1e-9);
    assert_true(fabs(dk_metrics_request_quantile(metrics, shape, 0, 0.99) - 149e-6) < 1e-9);
    sample.request_ns = UINT64_C(60000000000);
    for (int i = 0; i < 100; i++)
        dk_metrics_record(metrics, &sample);
    assert_true(dk_metrics_request_quantile(metrics, shape, 0, 0.99) == 10.0);
    dk_metrics_free(metrics);
}

static void test_promtool_finds_nothing(void **state)
{
    (void)state;
    if (system("command -v promtool >/dev/null 2>&1") != 0)
        skip();
    struct dk_metrics *metrics = make();
    dk_metrics_set_info(metrics, "0.1.0", "cpu", "x", "avx2");
    struct dk_metrics_sample sample = sample_of(dk_metrics_shape(metrics, 7168, 256), -1, 1);
    dk_metrics_record(metrics, &sample);
    sample.shape = DK_METRICS_SHAPE_OTHER;
    dk_metrics_record(metrics, &sample);
    char *text = scrape(metrics, false);
    FILE *tool = popen("promtool check metrics", "w");
    assert_non_null(tool);
    assert_int_equal(fwrite(text, 1, strlen(text), tool), strlen(text));
    assert_int_equal(pclose(tool), 0);
    free(text);
    dk_metrics_free(metrics);
}

static void test_c42_text_is_the_same_under_a_comma_locale(void **state)
{
    (void)state;
    if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL && setlocale(LC_ALL, "fr_FR.UTF-8") == NULL)
        skip();
    struct dk_metrics *metrics = make();
    struct dk_metrics_sample sample = sample_of(dk_metrics_shape(metrics, 8, 4), -1, 0);
    dk_metrics_record(metrics, &sample);
    char *text = scrape(metrics, false);
    setlocale(LC_ALL, "C");
    assert_non_null(strstr(text, "_sum{shape=\"8x4\",t_bucket=\"1\"} 0.000012000\n"));
    read_strictly(text, false);
    free(text);
    dk_metrics_free(metrics);
}

static void test_c44_descriptors_run_out_and_the_scrape_still_tells(void **state)
{
    (void)state;
    struct dk_metrics *metrics = make();
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    char *text = scrape(metrics, false);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(value_of(text, "process_resident_memory_bytes") > 0.0);
    assert_true(value_of(text, "process_max_fds") == 0.0);
    read_strictly(text, false);
    free(text);
    dk_metrics_free(metrics);
}

struct load {
    struct dk_metrics *metrics;
    int shape, model;
    _Atomic bool is_over;
};

static void *record_until_over(void *context)
{
    struct load *load = context;
    uint32_t random = (uint32_t)(uintptr_t)&random | 1;
    while (!load->is_over) {
        for (int i = 0; i < 64; i++) {
            random = random * 1664525u + 1013904223u;
            struct dk_metrics_sample sample = sample_of(load->shape, load->model, random >> 29);
            sample.transport = random & 1 ? DK_TRANSPORT_HTTP_JSON : DK_TRANSPORT_HTTP_RAW;
            sample.request_ns = sample.kernel_ns = random >> (random & 15);
            dk_metrics_record(load->metrics, &sample);
            dk_metrics_record_launch(load->metrics, random & 255, random & 3);
        }
        sched_yield(); /* two cores: let the scraper in */
    }
    return NULL;
}

static void *register_until_over(void *context)
{
    struct load *load = context;
    for (uint64_t i = 1; !load->is_over && i < 6; i++) {
        char name[16];
        snprintf(name, sizeof name, "late%u", (unsigned)i);
        dk_metrics_model(load->metrics, name);
        dk_metrics_shape(load->metrics, i, i);
        dk_metrics_set_info(load->metrics, name, "cpu", "x", "y");
        usleep(5000);
    }
    return NULL;
}

static void test_c64_every_scrape_under_load_is_strictly_right(void **state)
{
    (void)state;
    struct load load = {.metrics = make()};
    load.shape = dk_metrics_shape(load.metrics, 7168, 256);
    load.model = dk_metrics_model(load.metrics, "gate");
    pthread_t threads[3];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, record_until_over, &load), 0);
    assert_int_equal(pthread_create(&threads[2], NULL, register_until_over, &load), 0);
    double last_count = 0.0, last_requests = 0.0;
    for (int i = 0; i < 30; i++) {
        char *text = scrape(load.metrics, i % 2 == 1);
        read_strictly(text, i % 2 == 1);
        double count =
            value_of(text, "decomposek_kernel_duration_seconds_count{shape=\"7168x256\",t_bucket=\"4\"}");
        double requests = value_of(text, "decomposek_requests_total{model=\"gate\",outcome=\"ok\"}");
        assert_true(count >= last_count && requests >= last_requests);
        last_count = count;
        last_requests = requests;
        free(text);
    }
    load.is_over = true;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_true(last_requests > 0.0);
    dk_metrics_free(load.metrics);
}

int main(int argc, char **argv)
{
    if (argc == 2) { /* print a page, for an outside parser: plain or openmetrics */
        struct dk_metrics *metrics = NULL;
        if (dk_metrics_new(buckets, BUCKETS, &metrics, NULL) != DK_OK)
            return 1;
        dk_metrics_set_info(metrics, "0.1.0", "cpu", "a \"b\" \\", "avx2");
        struct dk_metrics_sample sample = sample_of(dk_metrics_shape(metrics, 7168, 256), -1, 1);
        dk_metrics_record(metrics, &sample);
        struct dk_json_text text = {0};
        dk_metrics_write(metrics, strcmp(argv[1], "openmetrics") == 0, &text);
        fputs(text.data, stdout);
        dk_json_text_free(&text);
        dk_metrics_free(metrics);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_series_of_a_loaded_shape_and_model_exist_at_zero),
        cmocka_unit_test(test_a_sample_lands_in_its_series_and_only_there),
        cmocka_unit_test(test_ad_hoc_and_unknown_handles_count_as_other),
        cmocka_unit_test(test_a_request_without_times_counts_only_its_outcome),
        cmocka_unit_test(test_bounds_are_inclusive_and_infinity_takes_the_rest),
        cmocka_unit_test(test_buckets_are_those_of_the_operations_document),
        cmocka_unit_test(test_both_formats_hold_the_same_samples),
        cmocka_unit_test(test_scalars_add_set_and_show),
        cmocka_unit_test(test_launches_fill_their_histograms),
        cmocka_unit_test(test_info_escapes_what_a_device_is_called),
        cmocka_unit_test(test_equal_shapes_share_a_handle_and_the_table_is_bounded),
        cmocka_unit_test(test_bad_bucket_counts_are_refused),
        cmocka_unit_test(test_quantile_is_linear_inside_its_bucket),
        cmocka_unit_test(test_promtool_finds_nothing),
        cmocka_unit_test(test_c42_text_is_the_same_under_a_comma_locale),
        cmocka_unit_test(test_c44_descriptors_run_out_and_the_scrape_still_tells),
        cmocka_unit_test(test_c64_every_scrape_under_load_is_strictly_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
