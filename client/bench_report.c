/* bench_report.c: tables and JSON of benchmark results. */
#include "client/bench_report.h"

#include <math.h>
#include <string.h>

#include "client/json_add.h"
#include "client/table.h"

enum { COLUMN_COUNT = 13, CELL_BYTES = 32 };

bool dk_bench_rate_was_missed(const struct dk_load_plan *plan, const struct dk_load_result *result)
{
    uint64_t sent = result->codes[DK_OK] + result->failed_count;
    return plan->rate > 0 && (double)result->unsent_count > 0.01 * (double)(sent + result->unsent_count);
}

static double per_second(const struct dk_load_result *result, double count)
{
    return result->window_s > 0 ? count / result->window_s : NAN;
}

/* --- text ---------------------------------------------------------------------------------------------- */

static void print_plan(const struct dk_bench *bench, FILE *stream)
{
    const struct dk_bench_options *options = &bench->options;
    const struct dk_load_plan *load = &options->load;
    bool is_http = options->way == &dk_bench_http, is_inproc = options->way == &dk_bench_inproc;
    fprintf(stream, "%s%s[%llu, %llu] %s, x %s, over %s%s: ", bench->model.name,
            bench->model.name[0] ? " " : "", (unsigned long long)bench->model.k,
            (unsigned long long)bench->model.n, dk_dtype_name(bench->model.dtype, DK_DIALECT_NATIVE),
            dk_dtype_name(bench->dtype, DK_DIALECT_NATIVE), options->way->name,
            !is_http                           ? ""
            : options->protocol == DK_BENCH_V2 ? " /v2"
                                               : " /v1");
    if (load->rate > 0)
        fprintf(stream, "open loop, %.0f requests/s, %s arrivals, ", load->rate,
                load->arrivals == DK_ARRIVALS_POISSON ? "Poisson" : "constant");
    else
        fprintf(stream, "closed loop, ");
    if (!is_inproc)
        fprintf(stream, "%u x %u in flight, %u thread%s, ", options->client_count, options->inflight_count,
                load->thread_count, load->thread_count == 1 ? "" : "s");
    fprintf(stream, "%g s after %g s of warm-up\n", load->duration_s, load->warmup_s);
}

static void print_server(const struct dk_bench_server *server, FILE *stream)
{
    if (server->version[0] == '\0')
        fprintf(stream, "server: unknown (no /metrics to read)\n");
    else
        fprintf(stream, "server: decomposek %s, %s, %s, %s\n", server->version, server->backend,
                server->device, server->isa);
}

static void put_us(char *cell, double ns)
{
    if (isnan(ns))
        (void)snprintf(cell, CELL_BYTES, "-");
    else
        (void)snprintf(cell, CELL_BYTES, ns < 10000 ? "%.2f" : "%.1f", ns / 1e3);
}

static void add_row(struct dk_table *table, uint64_t rows, const struct dk_load_result *result)
{
    char cells[COLUMN_COUNT][CELL_BYTES];
    const char *pointers[COLUMN_COUNT];
    static const double quantiles[] = {0.50, 0.90, 0.99, 0.999, 1.0};
    double rate = per_second(result, (double)result->answered_count);
    (void)snprintf(cells[0], CELL_BYTES, "%llu", (unsigned long long)rows);
    (void)snprintf(cells[1], CELL_BYTES, isnan(rate) ? "-" : "%.0f", rate);
    (void)snprintf(cells[2], CELL_BYTES, isnan(rate) ? "-" : "%.0f", rate * (double)rows);
    put_us(cells[3], dk_latency_mean(&result->latency));
    for (int i = 0; i < 5; i++)
        put_us(cells[4 + i], dk_latency_quantile(&result->latency, quantiles[i]));
    put_us(cells[9], dk_latency_quantile(&result->kernel, 0.5));
    put_us(cells[10], dk_latency_quantile(&result->above_kernel, 0.5));
    put_us(cells[11], dk_latency_quantile(&result->above_kernel, 0.99));
    (void)snprintf(cells[12], CELL_BYTES, "%llu", (unsigned long long)result->failed_count);
    for (int i = 0; i < COLUMN_COUNT; i++)
        pointers[i] = cells[i];
    dk_table_add(table, pointers);
}

static void print_failures(uint64_t rows, const struct dk_load_result *result, FILE *stream)
{
    if (result->failed_count == 0)
        return;
    uint64_t request_count = result->failed_count + result->codes[DK_OK];
    fprintf(stream, "rows %llu: %llu of %llu requests failed:", (unsigned long long)rows,
            (unsigned long long)result->failed_count, (unsigned long long)request_count);
    const char *separator = " ";
    for (uint32_t code = 1; code < DK_LOAD_CODE_COUNT; code++) {
        char name[32];
        if (result->codes[code] == 0)
            continue;
        dk_load_code_name(code, name);
        fprintf(stream, "%s%s x %llu", separator, name, (unsigned long long)result->codes[code]);
        separator = ", ";
    }
    fputc('\n', stream);
}

static void print_notes(const struct dk_load_plan *plan, uint64_t rows, const struct dk_load_result *result,
                        FILE *stream)
{
    unsigned long long shown = rows;
    print_failures(rows, result, stream);
    if (plan->rate > 0)
        fprintf(stream,
                "rows %llu: requests were sent %.1f us after they were due at most; %llu were due "
                "and not sent by the end\n",
                shown, (double)result->max_late_ns / 1e3, (unsigned long long)result->unsent_count);
    if (dk_bench_rate_was_missed(plan, result))
        fprintf(stream,
                "rows %llu: THE RATE WAS NOT REACHED: requests that were never sent count with what they had "
                "waited, so the times are too low\n",
                shown);
    if (result->latency.overflow_count > 0)
        fprintf(stream, "rows %llu: %llu answers took longer than 18 minutes\n", shown,
                (unsigned long long)result->latency.overflow_count);
    if (result->is_stopped)
        fprintf(stream, "rows %llu: stopped after %.1f s\n", shown, result->window_s);
}

bool dk_bench_report_text(const struct dk_bench_report *report, FILE *stream)
{
    static const struct dk_table_column columns[COLUMN_COUNT] = {
        {"ROWS", true},      {"REQ/S", true},     {"ROWS/S", true}, {"MEAN", true}, {"P50", true},
        {"P90", true},       {"P99", true},       {"P99.9", true},  {"MAX", true},  {"KERNEL P50", true},
        {"ABOVE P50", true}, {"ABOVE P99", true}, {"FAILED", true}};
    struct dk_table table = {.columns = columns, .column_count = COLUMN_COUNT};
    print_plan(report->bench, stream);
    print_server(&report->bench->server, stream);
    for (uint32_t i = 0; i < report->count; i++)
        add_row(&table, report->rows[i], &report->results[i]);
    bool is_good = dk_table_print(&table, stream);
    dk_table_deinit(&table);
    fprintf(stream, "microseconds; ABOVE is the latency less the time in the kernels\n");
    for (uint32_t i = 0; i < report->count; i++)
        print_notes(&report->bench->options.load, report->rows[i], &report->results[i], stream);
    return is_good && !ferror(stream);
}

/* --- JSON ---------------------------------------------------------------------------------------------- */

/* `prefix` ends where the object begins. Microseconds, null where nothing was measured. */
static void add_times(struct dk_json_text *text, const char *prefix, const struct dk_latency *latency)
{
    static const struct {
        const char *name;
        double quantile;
    } rows[] = {{",\"min\":", 0},    {",\"p50\":", 0.5},     {",\"p90\":", 0.9},
                {",\"p99\":", 0.99}, {",\"p99.9\":", 0.999}, {",\"max\":", 1}};
    dk_json_text_raw(text, prefix);
    dk_json_add_u64(text, "{\"count\":", latency->count);
    dk_json_add_double(text, ",\"mean\":", dk_latency_mean(latency) / 1e3);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        dk_json_add_double(text, rows[i].name, dk_latency_quantile(latency, rows[i].quantile) / 1e3);
    dk_json_text_raw(text, "}");
}

static void add_bool(struct dk_json_text *text, const char *prefix, bool value)
{
    dk_json_text_raw(text, prefix);
    dk_json_text_raw(text, value ? "true" : "false");
}

static void add_failures(struct dk_json_text *text, const struct dk_load_result *result)
{
    const char *separator = "";
    dk_json_text_raw(text, ",\"failures\":{");
    for (uint32_t code = 1; code < DK_LOAD_CODE_COUNT; code++) {
        char name[32];
        if (result->codes[code] == 0)
            continue;
        dk_load_code_name(code, name);
        dk_json_add_text(text, separator, name);
        dk_json_add_u64(text, ":", result->codes[code]);
        separator = ",";
    }
    dk_json_text_raw(text, "}");
}

static void add_result(struct dk_json_text *text, const struct dk_load_plan *plan, uint64_t rows,
                       const struct dk_load_result *result)
{
    double rate = per_second(result, (double)result->answered_count);
    dk_json_add_u64(text, "{\"rows\":", rows);
    dk_json_add_double(text, ",\"seconds\":", result->window_s);
    dk_json_add_double(text, ",\"requests_per_s\":", rate);
    dk_json_add_double(text, ",\"rows_per_s\":", rate * (double)rows);
    dk_json_add_u64(text, ",\"ok\":", result->codes[DK_OK]);
    dk_json_add_u64(text, ",\"failed\":", result->failed_count);
    add_failures(text, result);
    add_times(text, ",\"latency_us\":", &result->latency);
    add_times(text, ",\"kernel_us\":", &result->kernel);
    add_times(text, ",\"above_kernel_us\":", &result->above_kernel);
    if (plan->rate > 0) {
        dk_json_add_u64(text, ",\"unsent\":", result->unsent_count);
        dk_json_add_double(text, ",\"max_late_us\":", (double)result->max_late_ns / 1e3);
        add_bool(text, ",\"is_rate_reached\":", !dk_bench_rate_was_missed(plan, result));
    }
    add_bool(text, ",\"is_stopped\":", result->is_stopped);
    dk_json_text_raw(text, "}");
}

static void add_load(struct dk_json_text *text, const struct dk_bench_options *options)
{
    const struct dk_load_plan *load = &options->load;
    dk_json_add_text(text, ",\"load\":{\"loop\":", load->rate > 0 ? "open" : "closed");
    if (load->rate > 0) {
        dk_json_add_double(text, ",\"rate\":", load->rate);
        dk_json_add_text(text,
                         ",\"arrivals\":", load->arrivals == DK_ARRIVALS_POISSON ? "poisson" : "constant");
    }
    dk_json_add_u64(text, ",\"clients\":", options->client_count);
    dk_json_add_u64(text, ",\"inflight\":", options->inflight_count);
    dk_json_add_u64(text, ",\"threads\":", load->thread_count);
    dk_json_add_double(text, ",\"warmup_s\":", load->warmup_s);
    dk_json_add_double(text, ",\"duration_s\":", load->duration_s);
    dk_json_add_u64(text, ",\"seed\":", load->seed);
    dk_json_text_raw(text, "}");
}

static void add_server(struct dk_json_text *text, const struct dk_bench_server *server)
{
    if (server->version[0] == '\0') {
        dk_json_text_raw(text, ",\"server\":null");
        return;
    }
    dk_json_add_text(text, ",\"server\":{\"version\":", server->version);
    dk_json_add_text(text, ",\"backend\":", server->backend);
    dk_json_add_text(text, ",\"device\":", server->device);
    dk_json_add_text(text, ",\"isa\":", server->isa);
    dk_json_text_raw(text, "}");
}

void dk_bench_report_json(const struct dk_bench_report *report, struct dk_json_text *text)
{
    const struct dk_bench *bench = report->bench;
    const struct dk_bench_options *options = &bench->options;
    dk_json_add_text(text, "{\"version\":", DK_VERSION);
    dk_json_add_text(text, ",\"commit\":", dk_bench_commit);
    dk_json_add_text(text, ",\"transport\":", options->way->name);
    if (options->way == &dk_bench_http)
        dk_json_add_text(text, ",\"protocol\":", options->protocol == DK_BENCH_V2 ? "v2" : "v1");
    if (options->way == &dk_bench_shm)
        add_bool(text, ",\"is_copying\":", options->is_copying);
    dk_json_add_text(text, ",\"model\":{\"name\":", bench->model.name);
    dk_json_add_u64(text, ",\"k\":", bench->model.k);
    dk_json_add_u64(text, ",\"n\":", bench->model.n);
    dk_json_add_text(text, ",\"dtype\":", dk_dtype_name(bench->model.dtype, DK_DIALECT_NATIVE));
    dk_json_add_text(text, "},\"x_dtype\":", dk_dtype_name(bench->dtype, DK_DIALECT_NATIVE));
    add_server(text, &bench->server);
    add_load(text, options);
    dk_json_text_raw(text, ",\"results\":[");
    for (uint32_t i = 0; i < report->count; i++) {
        dk_json_text_raw(text, i > 0 ? "," : "");
        add_result(text, &options->load, report->rows[i], &report->results[i]);
    }
    dk_json_text_raw(text, "]}");
}
