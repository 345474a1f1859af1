/* latency.c: a histogram of times in log-linear buckets. */
#include "client/latency.h"

#include <math.h>

enum { EXACT_LOG2 = 8, OCTAVE_LOG2 = 7 };
_Static_assert(DK_LATENCY_EXACT == 1 << EXACT_LOG2 && DK_LATENCY_PER_OCTAVE == 1 << OCTAVE_LOG2,
               "the buckets of an octave are as wide as its position is past the exact ones");

/* `ns` < 2^DK_LATENCY_MAX_LOG2 */
static uint32_t bucket_of(uint64_t ns)
{
    if (ns < DK_LATENCY_EXACT)
        return (uint32_t)ns;
    uint32_t log2 = 63u - (uint32_t)__builtin_clzll(ns);
    uint32_t within = (uint32_t)(ns >> (log2 - OCTAVE_LOG2)) - DK_LATENCY_PER_OCTAVE;
    return DK_LATENCY_EXACT + (log2 - EXACT_LOG2) * DK_LATENCY_PER_OCTAVE + within;
}

/* The middle of a bucket. */
static double middle_of(uint32_t bucket)
{
    if (bucket < DK_LATENCY_EXACT)
        return bucket;
    uint32_t past = bucket - DK_LATENCY_EXACT;
    uint32_t log2 = EXACT_LOG2 + past / DK_LATENCY_PER_OCTAVE;
    double width = (double)(1ull << (log2 - OCTAVE_LOG2));
    return (DK_LATENCY_PER_OCTAVE + past % DK_LATENCY_PER_OCTAVE + 0.5) * width;
}

void dk_latency_record(struct dk_latency *latency, uint64_t ns)
{
    if (latency->count == 0 || ns < latency->min_ns)
        latency->min_ns = ns;
    if (ns > latency->max_ns)
        latency->max_ns = ns;
    latency->count++;
    latency->sum_ns += ns;
    if (ns >> DK_LATENCY_MAX_LOG2)
        latency->overflow_count++;
    else
        latency->buckets[bucket_of(ns)]++;
}

void dk_latency_merge(struct dk_latency *into, const struct dk_latency *from)
{
    if (from->count == 0)
        return;
    if (into->count == 0 || from->min_ns < into->min_ns)
        into->min_ns = from->min_ns;
    if (from->max_ns > into->max_ns)
        into->max_ns = from->max_ns;
    into->count += from->count;
    into->overflow_count += from->overflow_count;
    into->sum_ns += from->sum_ns;
    for (uint32_t i = 0; i < DK_LATENCY_BUCKET_COUNT; i++)
        into->buckets[i] += from->buckets[i];
}

double dk_latency_quantile(const struct dk_latency *latency, double quantile)
{
    if (latency->count == 0)
        return NAN;
    double rank = ceil(quantile * (double)latency->count);
    if (rank < 1)
        return (double)latency->min_ns;
    if (rank >= (double)latency->count)
        return (double)latency->max_ns;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < DK_LATENCY_BUCKET_COUNT; i++) {
        seen += latency->buckets[i];
        if ((double)seen >= rank) /* the extremes are known exactly, so no bucket may reach past them */
            return fmin(fmax(middle_of(i), (double)latency->min_ns), (double)latency->max_ns);
    }
    return (double)latency->max_ns;
}

double dk_latency_mean(const struct dk_latency *latency)
{
    return latency->count == 0 ? NAN : (double)latency->sum_ns / (double)latency->count;
}
