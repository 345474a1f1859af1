/* test_metrics_exemplar.c: traced requests in the exposition, where they may stand, and never a torn one. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/metrics.h"
#include "server/metrics_store.h"

static const uint32_t buckets[] = {1, 2};

static struct dk_metrics *make(void)
{
    struct dk_metrics *metrics = NULL;
    struct dk_error error = {0};
    assert_int_equal(dk_metrics_new(buckets, 2, &metrics, &error), DK_OK);
    return metrics;
}

static char *scrape(const struct dk_metrics *metrics, bool is_openmetrics)
{
    struct dk_json_text text = {0};
    dk_metrics_write(metrics, is_openmetrics, &text);
    assert_false(text.failed);
    return text.data;
}

static size_t count(const char *text, const char *word)
{
    size_t found = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++) {
        found++;
    }
    return found;
}

static struct dk_metrics_sample sample_of(int shape, enum dk_transport transport, uint64_t request_ns,
                                          uint64_t id)
{
    return (struct dk_metrics_sample){.shape = shape,
                                      .model = -1,
                                      .transport = transport,
                                      .outcome = DK_OUTCOME_OK,
                                      .rows = 1,
                                      .request_ns = request_ns,
                                      .has_times = true,
                                      .trace = {.high = id != 0 ? 0xab : 0, .low = id}};
}

static void test_an_exemplar_stands_at_its_bound_in_openmetrics_only(void **state)
{
    (void)state;
    struct dk_metrics *metrics = make();
    int shape = dk_metrics_shape(metrics, 7168, 256);
    struct dk_metrics_sample sample = sample_of(shape, DK_TRANSPORT_HTTP_RAW, 42000, 0x1234);
    dk_metrics_record(metrics, &sample);
    char *text = scrape(metrics, true), *plain = scrape(metrics, false);
    assert_non_null(strstr(
        text,
        "decomposek_request_duration_seconds_bucket{shape=\"7168x256\",t_bucket=\"1\",transport=\"http_raw\","
        "le=\"5e-05\"} 1 # {trace_id=\"00000000000000ab0000000000001234\"} 0.000042000 "));
    assert_int_equal(count(text, "trace_id"), 1);
    assert_int_equal(count(plain, "trace_id"), 0);
    assert_int_equal(count(plain, " # "), 0);
    free(text);
    free(plain);
    dk_metrics_free(metrics);
}

static void test_the_newest_traced_request_of_a_bound_is_kept(void **state)
{
    (void)state;
    struct dk_metrics *metrics = make();
    int shape = dk_metrics_shape(metrics, 8, 4);
    for (uint64_t id = 1; id <= 1000; id++) {
        struct dk_metrics_sample sample = sample_of(shape, DK_TRANSPORT_HTTP_JSON, 42000, id);
        dk_metrics_record(metrics, &sample);
    }
    struct dk_metrics_sample untraced = sample_of(shape, DK_TRANSPORT_HTTP_JSON, 42000, 0);
    dk_metrics_record(metrics, &untraced);
    struct dk_metrics_sample slow = sample_of(shape, DK_TRANSPORT_SHM, 20000000000, 0xbeef);
    dk_metrics_record(metrics, &slow);
    char *text = scrape(metrics, true);
    assert_int_equal(count(text, "trace_id"), 2);
    assert_non_null(strstr(text, "00000000000000ab00000000000003e8\"} 0.000042000 "));
    assert_non_null(strstr(text, "transport=\"shm\",le=\"+Inf\"} 1 # {trace_id=\"00000000000000ab"
                                 "000000000000beef\"} 20.000000000 "));
    free(text);
    dk_metrics_free(metrics);
}

/* What many write at once is read whole: every field of an exemplar comes from the same request. */
enum { WRITES = 20000, WRITERS = 3 };

static void *write_many(void *context)
{
    struct dk_metrics *metrics = context;
    for (uint64_t i = 1; i <= WRITES; i++) {
        struct dk_metrics_sample sample = sample_of(1, DK_TRANSPORT_HTTP_RAW, 30001 + i % 20000, 0);
        sample.trace = (struct dk_trace){.high = sample.request_ns, .low = sample.request_ns};
        dk_metrics_record(metrics, &sample);
    }
    return NULL;
}

static void test_exemplars_are_never_torn(void **state)
{
    (void)state;
    struct dk_metrics *metrics = make();
    assert_int_equal(dk_metrics_shape(metrics, 8, 4), 1);
    pthread_t writers[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        assert_int_equal(pthread_create(&writers[i], NULL, write_many, metrics), 0);
    }
    uint32_t seen = 0;
    for (int turn = 0; turn < WRITES || seen == 0; turn++) {
        struct dk_exemplar_sample sample;
        const struct dk_cell *cell = &dk_metrics_shape_series(metrics, 1)->cells[0];
        for (int bound = 0; bound <= DK_REQUEST_BOUND_COUNT; bound++) {
            if (dk_exemplar_load(&cell->exemplars[bound], &sample)) {
                seen++;
                assert_true(sample.trace.high == sample.trace.low && sample.trace.low == sample.value_ns);
                assert_int_equal(sample.transport, DK_TRANSPORT_HTTP_RAW);
                assert_true(bound == DK_REQUEST_BOUND_COUNT ||
                            sample.value_ns <= dk_request_bounds.values[bound]);
            }
        }
    }
    for (int i = 0; i < WRITERS; i++) {
        assert_int_equal(pthread_join(writers[i], NULL), 0);
    }
    dk_metrics_free(metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_exemplar_stands_at_its_bound_in_openmetrics_only),
        cmocka_unit_test(test_the_newest_traced_request_of_a_bound_is_kept),
        cmocka_unit_test(test_exemplars_are_never_torn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
