/* metrics_text.h: read the Prometheus exposition text 0.0.4, sample by sample. */
#ifndef DK_CLIENT_METRICS_TEXT_H
#define DK_CLIENT_METRICS_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "proto/status.h"

enum { DK_METRIC_NAME_BYTES = 96, DK_METRIC_MAX_LABELS = 8, DK_METRIC_LABEL_BYTES = 160 };

struct dk_metric_sample {
    char name[DK_METRIC_NAME_BYTES];
    uint32_t label_count;
    struct {
        char name[DK_METRIC_NAME_BYTES];
        char value[DK_METRIC_LABEL_BYTES]; /* without escapes; cut at its size, between code points */
    } labels[DK_METRIC_MAX_LABELS];
    double value; /* NaN and infinities included */
};

/* Where reading stands. Plain data; borrows the text. */
struct dk_metrics_cursor {
    const char *at, *end;
    uint64_t line;
};
void dk_metrics_cursor_init(struct dk_metrics_cursor *cursor, const char *text, size_t length);

enum dk_metrics_step { DK_METRICS_SAMPLE, DK_METRICS_END, DK_METRICS_BAD };
/* The next sample; comments, HELP, TYPE and empty lines are passed over, timestamps ignored. BAD: the error
 * names the line; the cursor stays there. No allocation, no locale. */
enum dk_metrics_step dk_metrics_text_next(struct dk_metrics_cursor *cursor, struct dk_metric_sample *out,
                                          struct dk_error *error);

/* The value of a label, or NULL. */
const char *dk_metric_label(const struct dk_metric_sample *sample, const char *name);

#endif
