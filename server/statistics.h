/* statistics.h: per model what GET /v2/models/{m}/stats tells: exact unsigned counters, relaxed atomics, no
 * lock. */
#ifndef DK_SERVER_STATISTICS_H
#define DK_SERVER_STATISTICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "proto/oip_stats.h"

struct dk_metrics_sample;

enum { DK_STATISTICS_BATCHES = 32 };

/* Zero-initialise. Nanoseconds. */
struct dk_statistics {
    _Atomic uint64_t last_ms; /* of the last success, since 1970 */
    _Atomic uint64_t success_count, success_ns, fail_count, fail_ns;
    _Atomic uint64_t row_count, launch_count;
    _Atomic uint64_t queue_ns, input_ns, infer_ns, output_ns; /* of successes */
    struct dk_statistics_batch {                              /* by bucket of rows; T = 0 is in none */
        _Atomic uint64_t count, input_ns, infer_ns, output_ns;
    } batches[DK_STATISTICS_BATCHES];
};

/* One finished or refused request. compute_input is its intake and the copies around the kernels,
 * compute_infer the kernels, compute_output from the end of the job to the answer; with queue they add up to
 * success. Wait-free. Thread: any. */
void dk_statistics_record(struct dk_statistics *statistics, const struct dk_metrics_sample *sample);
/* Fills all of *out but name and memory; `batches` [DK_STATISTICS_BATCHES] keeps the batch statistics.
 * `bucket_rows` [bucket_count <= DK_STATISTICS_BATCHES] are the rows of the buckets. */
void dk_statistics_read(const struct dk_statistics *statistics, const uint32_t *bucket_rows,
                        uint32_t bucket_count, struct dk_oip_model_stats *out,
                        struct dk_oip_batch_stats *batches);

#endif
