/* metrics_exemplar.c: the newest traced request of each bound of a request histogram. */
#include <string.h>
#include <time.h>

#include "server/metrics_store.h"

static uint64_t unix_ms(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

/* A sequence lock whose writers never wait: `turn` is odd while one writes, and a second one leaves its
 * exemplar out. Fields are stored with release after the odd turn and loaded with acquire before the second
 * look at it, so a reader that saw any new field sees that the turn has changed. */
void dk_exemplar_store(struct dk_exemplar *exemplar, const struct dk_trace *trace,
                       enum dk_transport transport, uint64_t value_ns)
{
    uint32_t turn = atomic_load_explicit(&exemplar->turn, memory_order_relaxed);
    if ((turn & 1) != 0 ||
        !atomic_compare_exchange_strong_explicit(&exemplar->turn, &turn, turn + 1, memory_order_acquire,
                                                 memory_order_relaxed)) {
        return;
    }
    atomic_store_explicit(&exemplar->trace_high, trace->high, memory_order_release);
    atomic_store_explicit(&exemplar->trace_low, trace->low, memory_order_release);
    atomic_store_explicit(&exemplar->value_ns, value_ns, memory_order_release);
    atomic_store_explicit(&exemplar->unix_ms, unix_ms(), memory_order_release);
    atomic_store_explicit(&exemplar->transport, (uint32_t)transport, memory_order_release);
    atomic_store_explicit(&exemplar->turn, turn + 2, memory_order_release);
}

bool dk_exemplar_load(const struct dk_exemplar *exemplar, struct dk_exemplar_sample *out)
{
    uint32_t turn = atomic_load_explicit(&exemplar->turn, memory_order_acquire);
    if (turn == 0 || (turn & 1) != 0) {
        return false; /* never written, or being written: the next scrape has it */
    }
    out->trace.high = atomic_load_explicit(&exemplar->trace_high, memory_order_acquire);
    out->trace.low = atomic_load_explicit(&exemplar->trace_low, memory_order_acquire);
    out->value_ns = atomic_load_explicit(&exemplar->value_ns, memory_order_acquire);
    out->unix_ms = atomic_load_explicit(&exemplar->unix_ms, memory_order_acquire);
    out->transport = atomic_load_explicit(&exemplar->transport, memory_order_acquire);
    return atomic_load_explicit(&exemplar->turn, memory_order_relaxed) == turn;
}
