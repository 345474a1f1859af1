/* test_statistics.c: what requests add up to in the statistics extension. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <time.h>

#include "server/metrics.h"
#include "server/statistics.h"

static const uint32_t bucket_rows[] = {1, 2, 4, 8};

static struct dk_metrics_sample sample_of(uint64_t rows, uint32_t bucket_index)
{
    return (struct dk_metrics_sample){.outcome = DK_OUTCOME_OK,
                                      .rows = rows,
                                      .bucket_index = bucket_index,
                                      .piece_count = rows > 0 ? 1 : 0,
                                      .intake_ns = 1,
                                      .queue_ns = 20,
                                      .copy_ns = 300,
                                      .kernel_ns = 4000,
                                      .answer_ns = 50000,
                                      .request_ns = 54321};
}

static void test_success_is_the_sum_of_its_parts(void **state)
{
    (void)state;
    static struct dk_statistics statistics;
    struct dk_metrics_sample samples[] = {sample_of(1, 0), sample_of(3, 2), sample_of(4, 2), sample_of(0, 0)};
    for (size_t i = 0; i < 4; i++) {
        dk_statistics_record(&statistics, &samples[i]);
    }
    struct dk_oip_model_stats stats;
    struct dk_oip_batch_stats batches[DK_STATISTICS_BATCHES];
    dk_statistics_read(&statistics, bucket_rows, 4, &stats, batches);
    assert_int_equal(stats.inference_count, 8);
    assert_int_equal(stats.execution_count, 3);
    assert_int_equal(stats.success.count, 4);
    assert_int_equal(stats.queue.count, 4);
    assert_int_equal(stats.success.ns, stats.queue.ns + stats.compute_input.ns + stats.compute_infer.ns +
                                           stats.compute_output.ns);
    assert_int_equal(stats.compute_input.ns, 4 * 301);
    assert_int_equal(stats.compute_infer.ns, 4 * 4000);
    assert_int_equal(stats.fail.count, 0);
    assert_int_equal(stats.cache_hit.count, 0);
    assert_true(stats.last_inference_ms / 1000 + 10 >= (uint64_t)time(NULL));
    assert_int_equal(stats.batch_count, 2); /* T = 0 is in none */
    assert_int_equal(stats.batches[0].batch_size, 1);
    assert_int_equal(stats.batches[1].batch_size, 4);
    assert_int_equal(stats.batches[1].compute_infer.count, 2);
    assert_int_equal(stats.batches[1].compute_infer.ns, 8000);
}

static void test_failures_count_apart(void **state)
{
    (void)state;
    static struct dk_statistics statistics;
    for (int outcome = DK_OUTCOME_CLIENT_ERROR; outcome < DK_OUTCOME_COUNT; outcome++) {
        struct dk_metrics_sample sample = sample_of(2, 1);
        sample.outcome = (enum dk_outcome)outcome;
        dk_statistics_record(&statistics, &sample);
    }
    struct dk_oip_model_stats stats;
    struct dk_oip_batch_stats batches[DK_STATISTICS_BATCHES];
    dk_statistics_read(&statistics, bucket_rows, 4, &stats, batches);
    assert_int_equal(stats.fail.count, DK_OUTCOME_COUNT - 1);
    assert_int_equal(stats.fail.ns, (DK_OUTCOME_COUNT - 1) * 54321);
    assert_int_equal(stats.success.count, 0);
    assert_int_equal(stats.inference_count, 0);
    assert_int_equal(stats.last_inference_ms, 0);
    assert_int_equal(stats.batch_count, 0);
}

static void test_large_sums_are_exact(void **state)
{
    (void)state;
    static struct dk_statistics statistics;
    struct dk_metrics_sample sample = sample_of(1, 0);
    sample.request_ns = (UINT64_C(1) << 53) + 1; /* not a double */
    dk_statistics_record(&statistics, &sample);
    struct dk_oip_model_stats stats;
    struct dk_oip_batch_stats batches[DK_STATISTICS_BATCHES];
    dk_statistics_read(&statistics, bucket_rows, 4, &stats, batches);
    assert_true(stats.success.ns == (UINT64_C(1) << 53) + 1);
}

static void *record_many(void *context)
{
    struct dk_metrics_sample sample = sample_of(2, 1);
    for (int i = 0; i < 10000; i++) {
        dk_statistics_record(context, &sample);
    }
    return NULL;
}

static void test_threads_lose_nothing(void **state)
{
    (void)state;
    static struct dk_statistics statistics;
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, record_many, &statistics), 0);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    struct dk_oip_model_stats stats;
    struct dk_oip_batch_stats batches[DK_STATISTICS_BATCHES];
    dk_statistics_read(&statistics, bucket_rows, 4, &stats, batches);
    assert_int_equal(stats.success.count, 30000);
    assert_int_equal(stats.inference_count, 60000);
    assert_int_equal(stats.batches[0].compute_output.count, 30000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_success_is_the_sum_of_its_parts),
        cmocka_unit_test(test_failures_count_apart),
        cmocka_unit_test(test_large_sums_are_exact),
        cmocka_unit_test(test_threads_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
