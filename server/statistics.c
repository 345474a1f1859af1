/* statistics.c: adding up and reading out. */
#include "server/statistics.h"

#include <string.h>
#include <time.h>

#include "server/metrics.h"

static void add(_Atomic uint64_t *counter, uint64_t value)
{
    atomic_fetch_add_explicit(counter, value, memory_order_relaxed);
}

static uint64_t get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static uint64_t unix_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

void dk_statistics_record(struct dk_statistics *statistics, const struct dk_metrics_sample *sample)
{
    if (sample->outcome != DK_OUTCOME_OK) {
        add(&statistics->fail_count, 1);
        add(&statistics->fail_ns, sample->request_ns);
        return;
    }
    uint64_t input_ns = sample->intake_ns + sample->copy_ns;
    add(&statistics->success_ns, sample->request_ns);
    add(&statistics->row_count, sample->rows);
    add(&statistics->launch_count, sample->piece_count);
    add(&statistics->queue_ns, sample->queue_ns);
    add(&statistics->input_ns, input_ns);
    add(&statistics->infer_ns, sample->kernel_ns);
    add(&statistics->output_ns, sample->answer_ns);
    if (sample->rows > 0) {
        uint32_t index =
            sample->bucket_index < DK_STATISTICS_BATCHES ? sample->bucket_index : DK_STATISTICS_BATCHES - 1;
        struct dk_statistics_batch *batch = &statistics->batches[index];
        add(&batch->input_ns, input_ns);
        add(&batch->infer_ns, sample->kernel_ns);
        add(&batch->output_ns, sample->answer_ns);
        add(&batch->count, 1);
    }
    add(&statistics->success_count, 1);
    atomic_store_explicit(&statistics->last_ms, unix_ms(), memory_order_relaxed);
}

void dk_statistics_read(const struct dk_statistics *statistics, const uint32_t *bucket_rows,
                        uint32_t bucket_count, struct dk_oip_model_stats *out,
                        struct dk_oip_batch_stats *batches)
{
    uint64_t count = get(&statistics->success_count);
    memset(out, 0, sizeof *out);
    out->last_inference_ms = get(&statistics->last_ms);
    out->inference_count = get(&statistics->row_count);
    out->execution_count = get(&statistics->launch_count);
    out->success = (struct dk_oip_duration){count, get(&statistics->success_ns)};
    out->fail = (struct dk_oip_duration){get(&statistics->fail_count), get(&statistics->fail_ns)};
    out->queue = (struct dk_oip_duration){count, get(&statistics->queue_ns)};
    out->compute_input = (struct dk_oip_duration){count, get(&statistics->input_ns)};
    out->compute_infer = (struct dk_oip_duration){count, get(&statistics->infer_ns)};
    out->compute_output = (struct dk_oip_duration){count, get(&statistics->output_ns)};
    for (uint32_t i = 0; i < bucket_count && i < DK_STATISTICS_BATCHES; i++) {
        const struct dk_statistics_batch *batch = &statistics->batches[i];
        uint64_t batch_count = get(&batch->count);
        if (batch_count > 0) {
            batches[out->batch_count++] = (struct dk_oip_batch_stats){
                .batch_size = bucket_rows[i],
                .compute_input = {batch_count, get(&batch->input_ns)},
                .compute_infer = {batch_count, get(&batch->infer_ns)},
                .compute_output = {batch_count, get(&batch->output_ns)},
            };
        }
    }
    out->batches = batches;
}
