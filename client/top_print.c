/* top_print.c: a view as text and as JSON. */
#include <math.h>
#include <string.h>

#include "client/json_add.h"
#include "client/table.h"
#include "client/top_view.h"

enum { COLUMN_COUNT = 9, CELL_BYTES = 64 };

/* --- text ---------------------------------------------------------------------------------------------- */

static void put_number(char *cell, double value, const char *format)
{
    if (isfinite(value))
        (void)snprintf(cell, CELL_BYTES, format, value);
    else
        (void)snprintf(cell, CELL_BYTES, "-");
}

/* Up to 999 with a decimal, more without: "8.5", "1234". */
static void put_short(char *cell, double value)
{
    put_number(cell, value, value < 1000 ? "%.1f" : "%.0f");
}

static void add_row(struct dk_table *table, const struct dk_top_row *row, bool by_bucket)
{
    char cells[COLUMN_COUNT][CELL_BYTES];
    const char *pointers[COLUMN_COUNT];
    int count = 0;
    (void)snprintf(cells[count++], CELL_BYTES, "%s", row->shape);
    if (by_bucket)
        (void)snprintf(cells[count++], CELL_BYTES, "%llu", (unsigned long long)row->bucket);
    put_short(cells[count++], row->requests_per_s);
    if (!by_bucket)
        put_short(cells[count++], row->rows_per_s);
    put_short(cells[count++], row->p50_us);
    put_short(cells[count++], row->p99_us);
    put_short(cells[count++], row->queue_p99_us);
    put_short(cells[count++], row->kernel_mean_us);
    if (!by_bucket)
        put_short(cells[count++], row->failed_per_s);
    for (int i = 0; i < count; i++)
        pointers[i] = cells[i];
    dk_table_add(table, pointers);
}

static void print_summary(const struct dk_top_view *view, FILE *stream)
{
    const struct dk_top_snapshot *now = view->now;
    char cells[9][CELL_BYTES];
    put_short(cells[0], view->requests_per_s);
    put_short(cells[1], view->rows_per_s);
    put_short(cells[2], view->failed_per_s);
    put_number(cells[3], now->queue_depth, "%.0f");
    put_number(cells[4], now->in_flight, "%.0f");
    put_short(cells[5], view->batch_rows);
    put_short(cells[6], view->batch_jobs);
    put_short(cells[8], view->refused_per_s);
    put_number(cells[7], 100 * view->cpu_fraction, "%.0f");
    /* The labels come from a server: control characters must not reach the terminal. */
    struct dk_error clean;
    dk_fail(&clean, DK_OK, "decomposek %s  %s  %s", now->version[0] ? now->version : "?", now->backend,
            now->device);
    fprintf(stream, "%s  %s  cpu %s %%  %.0f MiB%s\n", clean.message,
            isnan(now->is_ready) ? "?"
            : now->is_ready > 0  ? "ready"
                                 : "NOT READY",
            cells[7], isnan(now->resident_bytes) ? 0 : now->resident_bytes / 1048576,
            view->is_restarted ? "  RESTARTED" : "");
    fprintf(stream,
            "%s requests/s  %s rows/s  %s failed/s  %s refused/s  queue %s  in flight %s  launch %s rows, %s "
            "requests\n",
            cells[0], cells[1], cells[2], cells[8], cells[3], cells[4], cells[5], cells[6]);
}

bool dk_top_view_text(const struct dk_top_view *view, bool by_bucket, FILE *stream)
{
    static const struct dk_table_column by_shape_columns[] = {
        {"SHAPE", false}, {"REQ/S", true},     {"ROWS/S", true},    {"P50 us", true},
        {"P99 us", true}, {"QUEUE P99", true}, {"KERNEL us", true}, {"FAILED/S", true}};
    static const struct dk_table_column by_bucket_columns[] = {
        {"SHAPE", false}, {"T", true},         {"REQ/S", true},    {"P50 us", true},
        {"P99 us", true}, {"QUEUE P99", true}, {"KERNEL us", true}};
    struct dk_table table = {.columns = by_bucket ? by_bucket_columns : by_shape_columns,
                             .column_count = by_bucket
                                                 ? sizeof by_bucket_columns / sizeof by_bucket_columns[0]
                                                 : sizeof by_shape_columns / sizeof by_shape_columns[0]};
    print_summary(view, stream);
    for (size_t i = 0; i < view->row_count; i++)
        add_row(&table, &view->rows[i], by_bucket);
    bool is_good = dk_table_print(&table, stream);
    dk_table_deinit(&table);
    return is_good && !ferror(stream);
}

/* --- JSON ---------------------------------------------------------------------------------------------- */

static void add_row_json(struct dk_json_text *text, const struct dk_top_row *row)
{
    dk_json_add_text(text, "{\"shape\":", row->shape);
    if (row->bucket > 0)
        dk_json_add_u64(text, ",\"t_bucket\":", row->bucket);
    dk_json_add_double(text, ",\"requests_per_s\":", row->requests_per_s);
    if (row->bucket == 0) {
        dk_json_add_double(text, ",\"rows_per_s\":", row->rows_per_s);
        dk_json_add_double(text, ",\"failed_per_s\":", row->failed_per_s);
    }
    dk_json_add_double(text, ",\"p50_us\":", row->p50_us);
    dk_json_add_double(text, ",\"p99_us\":", row->p99_us);
    dk_json_add_double(text, ",\"queue_p99_us\":", row->queue_p99_us);
    dk_json_add_double(text, ",\"kernel_mean_us\":", row->kernel_mean_us);
    dk_json_text_raw(text, "}");
}

void dk_top_view_json(const struct dk_top_view *view, struct dk_json_text *text)
{
    const struct dk_top_snapshot *now = view->now;
    dk_json_add_text(text, "{\"version\":", now->version);
    dk_json_add_text(text, ",\"backend\":", now->backend);
    dk_json_add_text(text, ",\"device\":", now->device);
    dk_json_add_double(text, ",\"interval_s\":", view->elapsed_s);
    dk_json_text_raw(text, view->is_restarted ? ",\"is_restarted\":true" : ",\"is_restarted\":false");
    dk_json_text_raw(text, now->is_ready > 0 ? ",\"is_ready\":true" : ",\"is_ready\":false");
    dk_json_add_double(text, ",\"requests_per_s\":", view->requests_per_s);
    dk_json_add_double(text, ",\"rows_per_s\":", view->rows_per_s);
    dk_json_add_double(text, ",\"failed_per_s\":", view->failed_per_s);
    dk_json_add_double(text, ",\"refused_per_s\":", view->refused_per_s);
    dk_json_add_double(text, ",\"queue_depth\":", now->queue_depth);
    dk_json_add_double(text, ",\"in_flight\":", now->in_flight);
    dk_json_add_double(text, ",\"batch_rows_mean\":", view->batch_rows);
    dk_json_add_double(text, ",\"batch_requests_mean\":", view->batch_jobs);
    dk_json_add_double(text, ",\"cpu_fraction\":", view->cpu_fraction);
    dk_json_add_double(text, ",\"resident_bytes\":", now->resident_bytes);
    dk_json_text_raw(text, ",\"shapes\":[");
    for (size_t i = 0; i < view->row_count; i++) {
        dk_json_text_raw(text, i > 0 ? "," : "");
        add_row_json(text, &view->rows[i]);
    }
    dk_json_text_raw(text, "]}");
}
