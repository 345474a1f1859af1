/* fuzz_metrics_text.c: any bytes as exposition text: read to the end or refused with a reason, and what is
 * read can be compared and shown. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/metrics_text.h"
#include "client/top_view.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_samples(const char *text, size_t size)
{
    struct dk_metrics_cursor cursor;
    struct dk_metric_sample sample;
    struct dk_error error = {0};
    enum dk_metrics_step step;
    dk_metrics_cursor_init(&cursor, text, size);
    while ((step = dk_metrics_text_next(&cursor, &sample, &error)) == DK_METRICS_SAMPLE) {
        if (sample.name[0] == '\0' || memchr(sample.name, 0, sizeof sample.name) == NULL ||
            sample.label_count > DK_METRIC_MAX_LABELS)
            abort();
        for (uint32_t i = 0; i < sample.label_count; i++)
            if (!dk_metric_label(&sample, sample.labels[i].name) ||
                memchr(sample.labels[i].value, 0, sizeof sample.labels[i].value) == NULL)
                abort();
    }
    if (step == DK_METRICS_BAD && error.message[0] == '\0')
        abort(); /* a refusal without a reason */
    if (step == DK_METRICS_END && cursor.at != cursor.end)
        abort();
}

/* The first half as the scrape before, all of it as the one after. */
static void show(const char *text, size_t size)
{
    struct dk_top_snapshot before, now;
    struct dk_top_view view;
    struct dk_json_text json = {0};
    struct dk_error error;
    if (dk_top_snapshot_read(text, size / 2, &before, &error) != DK_OK)
        return;
    if (dk_top_snapshot_read(text, size, &now, &error) == DK_OK) {
        now.taken_ns = 1000000000;
        for (int by_bucket = 0; by_bucket <= 1; by_bucket++) {
            if (dk_top_view_make(&before, &now, NULL, by_bucket, &view, &error) != DK_OK)
                break;
            FILE *sink = fopen("/dev/null", "w");
            if (sink) {
                (void)dk_top_view_text(&view, by_bucket, sink);
                fclose(sink);
            }
            dk_top_view_json(&view, &json);
            dk_json_text_free(&json);
            dk_top_view_deinit(&view);
        }
        dk_top_snapshot_deinit(&now);
    }
    dk_top_snapshot_deinit(&before);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = malloc(size > 0 ? size : 1); /* exact, so that a read past the end is found */
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    read_samples(copy, size);
    show(copy, size);
    free(copy);
    return 0;
}
