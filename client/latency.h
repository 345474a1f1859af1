/* latency.h: a histogram of times, log-linear, whose quantiles are off by 0.4 % at most. */
#ifndef DK_CLIENT_LATENCY_H
#define DK_CLIENT_LATENCY_H

#include <stdint.h>

/* Values below 256 ns have a bucket each; above, each power of two is cut into 128 equal buckets, up to
 * 2^40 ns (18 minutes). Longer ones are counted as overflow and show up as the maximum. */
enum {
    DK_LATENCY_EXACT = 256,
    DK_LATENCY_PER_OCTAVE = 128,
    DK_LATENCY_MAX_LOG2 = 40,
    DK_LATENCY_BUCKET_COUNT = DK_LATENCY_EXACT + (DK_LATENCY_MAX_LOG2 - 8) * DK_LATENCY_PER_OCTAVE
};

/* Nanoseconds. Zero-initialise; 35 KB. One writer at a time. */
struct dk_latency {
    uint64_t count, overflow_count;
    uint64_t min_ns, max_ns, sum_ns; /* exact; min and max mean nothing while count is 0 */
    uint64_t buckets[DK_LATENCY_BUCKET_COUNT];
};

void dk_latency_record(struct dk_latency *latency, uint64_t ns);
/* Add all of `from`; the same as recording its values here, bucket by bucket. */
void dk_latency_merge(struct dk_latency *into, const struct dk_latency *from);

/* The smallest recorded value that at least `quantile` (0..1) of all values do not exceed, within 0.4 %; in
 * nanoseconds. 0 is the minimum and 1 the maximum, both exact. NaN without values. */
double dk_latency_quantile(const struct dk_latency *latency, double quantile);
/* Exact; NaN without values. */
double dk_latency_mean(const struct dk_latency *latency);

#endif
