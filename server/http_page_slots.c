/* http_page_slots.c: what stands in the {{slots}} of page/status.html. */
#include "server/http_page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "server/clock.h"
#include "server/daemon.h"
#include "server/metrics.h"
#include "server/models.h"

enum { SHOWN_MODELS = 32 }; /* more would make a page that nobody reads; /v1/models has all */

static void add(struct dk_json_text *page, const char *text)
{
    dk_json_text_raw(page, text);
}

static void add_escaped(struct dk_json_text *page, const char *value)
{
    char one[2] = "";
    for (; *value != '\0'; value++) {
        one[0] = *value;
        add(page, *value == '<'   ? "&lt;"
                  : *value == '>' ? "&gt;"
                  : *value == '&' ? "&amp;"
                  : *value == '"' ? "&quot;"
                                  : one);
    }
}

static void add_cell(struct dk_json_text *page, const char *value)
{
    add(page, "<td>");
    add_escaped(page, value);
    add(page, "</td>");
}

static void add_cell_u64(struct dk_json_text *page, uint64_t value)
{
    add(page, "<td class=\"n\">");
    dk_json_text_u64(page, value);
    add(page, "</td>");
}

/* Tenths below 100, whole numbers above: by integers, no locale. */
static void add_tenths(struct dk_json_text *page, uint64_t tenths)
{
    dk_json_text_u64(page, tenths < 1000 ? tenths / 10 : (tenths + 5) / 10);
    if (tenths > 0 && tenths < 1000) {
        add(page, ".");
        dk_json_text_u64(page, tenths % 10);
    }
}

static void add_us(struct dk_json_text *page, double seconds)
{
    add(page, "<td class=\"n\">");
    uint64_t tenths = (uint64_t)(seconds * 1e7 + 0.5);
    if (tenths < 1000) {
        dk_json_text_u64(page, tenths / 10);
        add(page, ".");
        dk_json_text_u64(page, tenths % 10);
    } else {
        dk_json_text_u64(page, (uint64_t)(seconds * 1e6 + 0.5));
    }
    add(page, "</td>");
}

static void add_ratio(struct dk_json_text *page, uint64_t sum, uint64_t count)
{
    if (count == 0) {
        add(page, "\xe2\x80\x93");
        return;
    }
    add_tenths(page, (sum * 20 / count + 1) / 2);
}

static void slot_version(struct dk_json_text *page, const struct dk_daemon *daemon)
{
    (void)daemon;
    add(page, DK_VERSION);
}

static void slot_state(struct dk_json_text *page, const struct dk_daemon *daemon)
{
    static const char *const states[] = {[DK_DAEMON_LOADING] = "loading models",
                                         [DK_DAEMON_READY] = "ready",
                                         [DK_DAEMON_DRAINING] = "draining",
                                         [DK_DAEMON_CLOSING] = "stopping"};
    add(page, states[dk_daemon_get_state(daemon)]);
}

static void slot_state_class(struct dk_json_text *page, const struct dk_daemon *daemon)
{
    add(page, dk_daemon_get_state(daemon) == DK_DAEMON_READY ? "good" : "bad");
}

static void slot_reason(struct dk_json_text *page, const struct dk_daemon *daemon)
{
    add_escaped(page, dk_engine_get_info(daemon->engine)->reason);
}

static void slot_device(struct dk_json_text *page, const struct dk_daemon *daemon)
{
    const struct dk_engine_info *info = dk_engine_get_info(daemon->engine);
    add_escaped(page, info->backend);
    add(page, ": ");
    add_escaped(page, info->device_name);
    add(page, *info->isa != '\0' ? ", " : "");
    add_escaped(page, info->isa);
    add(page, *info->driver_version != '\0' ? ", driver " : "");
    add_escaped(page, info->driver_version);
    add(page, ", ");
    dk_json_text_u64(page, info->thread_count);
    add(page, " threads, up to ");
    dk_json_text_u64(page, info->max_tokens);
    add(page, " rows a launch");
}

static void slot_uptime(struct dk_json_text *page, const struct dk_daemon *daemon)
{
    uint64_t seconds = (dk_clock_now_ns() - daemon->started_ns) / 1000000000u;
    char text[64];
    (void)snprintf(text, sizeof text, "%llu d %llu h %llu min %llu s", (unsigned long long)(seconds / 86400),
                   (unsigned long long)(seconds / 3600 % 24), (unsigned long long)(seconds / 60 % 60),
                   (unsigned long long)(seconds % 60));
    add(page, text);
}

static void slot_queue_depth(struct dk_json_text *page, const struct dk_daemon *daemon)
{
    dk_json_text_i64(page, dk_metrics_get(daemon->metrics, DK_METRIC_QUEUE_DEPTH));
}

static void slot_in_flight(struct dk_json_text *page, const struct dk_daemon *daemon)
{
    dk_json_text_i64(page, dk_metrics_get(daemon->metrics, DK_METRIC_IN_FLIGHT));
}

static void slot_launch_jobs(struct dk_json_text *page, const struct dk_daemon *daemon)
{
    struct dk_metrics_launches launches = dk_metrics_launches(daemon->metrics);
    add_ratio(page, launches.jobs, launches.count);
}

static void slot_launch_rows(struct dk_json_text *page, const struct dk_daemon *daemon)
{
    struct dk_metrics_launches launches = dk_metrics_launches(daemon->metrics);
    add_ratio(page, launches.rows, launches.count);
}

/* Over every model that was ever served, as the metrics count. */
static uint64_t count_requests(const struct dk_metrics *metrics, enum dk_outcome first)
{
    uint64_t total = 0;
    for (int model = -1; dk_metrics_model_name(metrics, model) != NULL; model++) {
        for (int outcome = (int)first; outcome < DK_OUTCOME_COUNT; outcome++) {
            total += dk_metrics_model_requests(metrics, model, (enum dk_outcome)outcome);
        }
    }
    return total;
}

static void slot_requests(struct dk_json_text *page, const struct dk_daemon *daemon)
{
    dk_json_text_u64(page, count_requests(daemon->metrics, DK_OUTCOME_OK));
}

static void slot_errors(struct dk_json_text *page, const struct dk_daemon *daemon)
{
    dk_json_text_u64(page, count_requests(daemon->metrics, DK_OUTCOME_CLIENT_ERROR));
}

static void slot_latency(struct dk_json_text *page, const struct dk_daemon *daemon)
{
    const char *label;
    for (int shape = 0; (label = dk_metrics_shape_label(daemon->metrics, shape)) != NULL; shape++) {
        for (uint32_t bucket = 0; bucket < dk_engine_get_info(daemon->engine)->bucket_count; bucket++) {
            uint64_t count = dk_metrics_request_count(daemon->metrics, shape, bucket);
            double p50 = dk_metrics_request_quantile(daemon->metrics, shape, bucket, 0.5);
            double p99 = dk_metrics_request_quantile(daemon->metrics, shape, bucket, 0.99);
            if (count == 0 || !isfinite(p50) || !isfinite(p99)) {
                continue; /* nothing measured yet */
            }
            add(page, "<tr>");
            add_cell(page, label);
            add_cell_u64(page, dk_engine_bucket_rows(daemon->engine, bucket));
            add_cell_u64(page, count);
            add_us(page, p50);
            add_us(page, p99);
            add(page, "</tr>\n");
        }
    }
}

/* Its outcomes and rows, with the names that the script looks for. */
static void add_model_counters(struct dk_json_text *page, const struct dk_metrics *metrics, int model)
{
    static const char *const names[DK_OUTCOME_COUNT] = {"ok", "client_error", "busy", "server_error",
                                                        "cancelled"};
    add(page, "<td class=\"n\" data-of=\"rows\">");
    dk_json_text_u64(page, dk_metrics_model_rows(metrics, model));
    add(page, "</td>");
    for (int outcome = 0; outcome < DK_OUTCOME_COUNT; outcome++) {
        add(page, "<td class=\"n\" data-of=\"");
        add(page, names[outcome]);
        add(page, "\">");
        dk_json_text_u64(page, dk_metrics_model_requests(metrics, model, (enum dk_outcome)outcome));
        add(page, "</td>");
    }
}

static void add_model(struct dk_json_text *page, const struct dk_daemon *daemon, const struct dk_model *model)
{
    add(page, "<tr data-model=\"");
    add_escaped(page, model->name);
    add(page, "\">");
    add_cell(page, model->name);
    add(page, "<td>");
    dk_json_text_u64(page, model->k);
    add(page, "x");
    dk_json_text_u64(page, model->n);
    add(page, "</td>");
    add_cell(page, dk_dtype_name(model->dtype, DK_DIALECT_NATIVE));
    add_cell(page, dk_epilogue_name(model->epilogue));
    add_cell_u64(page, model->version);
    add(page, "<td class=\"n\">");
    add_tenths(page, (dk_weights_bytes(model->weights) + 50000) / 100000);
    add(page, "</td>");
    add_model_counters(page, daemon->metrics, model->metrics_model);
    add(page, "</tr>\n");
}

static void add_left_out(struct dk_json_text *page, size_t count, const char *where)
{
    if (count <= SHOWN_MODELS) {
        return;
    }
    add(page, "<tr><td colspan=\"12\">");
    dk_json_text_u64(page, count - SHOWN_MODELS);
    add(page, " more models: <a href=\"");
    add(page, where);
    add(page, "\">");
    add(page, where);
    add(page, "</a></td></tr>\n");
}

/* Not while models are being loaded: the page answers then, without them. */
static void each_model(struct dk_json_text *page, const struct dk_daemon *daemon,
                       void (*show)(struct dk_json_text *page, const struct dk_daemon *daemon,
                                    const struct dk_model *model),
                       const char *where)
{
    size_t cursor = 0, count = 0;
    if (dk_daemon_get_state(daemon) == DK_DAEMON_LOADING) {
        return;
    }
    for (struct dk_model *model; (model = dk_models_next(daemon->models, &cursor)) != NULL;) {
        if (count++ < SHOWN_MODELS) {
            show(page, daemon, model);
        }
        dk_model_release(model);
    }
    add_left_out(page, count, where);
}

static void slot_models(struct dk_json_text *page, const struct dk_daemon *daemon)
{
    each_model(page, daemon, add_model, "/v1/models");
    add(page, "<tr data-model=\"@adhoc\"><td colspan=\"6\">without a model</td>");
    add_model_counters(page, daemon->metrics, -1);
    add(page, "</tr>\n");
}

static bool is_same_plan(const struct dk_plan *a, const struct dk_plan *b)
{
    return strcmp(a->variant, b->variant) == 0 && a->split_k == b->split_k && a->chunk_k == b->chunk_k &&
           a->tile_n == b->tile_n;
}

static void add_plan(struct dk_json_text *page, const struct dk_model *model, uint64_t first_rows,
                     const struct dk_plan *plan)
{
    char text[64];
    add(page, "<tr>");
    add_cell(page, model->name);
    (void)snprintf(text, sizeof text, "%llu\xe2\x80\x93%u", (unsigned long long)first_rows,
                   plan->bucket_rows);
    add_cell(page, first_rows == plan->bucket_rows ? strstr(text, "\xe2\x80\x93") + 3 : text);
    add_cell(page, plan->variant);
    add_cell_u64(page, plan->split_k);
    add_cell_u64(page, plan->chunk_k);
    (void)snprintf(text, sizeof text, "%u x %u", (unsigned)plan->tile_m, (unsigned)plan->tile_n);
    add_cell(page, text);
    add_cell_u64(page, plan->workspace_bytes);
    add(page, "</tr>\n");
}

/* Neighbouring buckets with the same plan in one line, which shows tile and workspace of the largest. */
static void add_plans(struct dk_json_text *page, const struct dk_daemon *daemon, const struct dk_model *model)
{
    uint32_t bucket_count = dk_engine_get_info(daemon->engine)->bucket_count;
    uint64_t first_rows = 1;
    for (uint32_t bucket = 0; bucket < bucket_count; bucket++) {
        uint32_t rows = dk_engine_bucket_rows(daemon->engine, bucket);
        const struct dk_plan *plan = dk_plan_get(model->weights, rows);
        if (bucket + 1 == bucket_count ||
            !is_same_plan(plan,
                          dk_plan_get(model->weights, dk_engine_bucket_rows(daemon->engine, bucket + 1)))) {
            add_plan(page, model, first_rows, plan);
            first_rows = (uint64_t)rows + 1;
        }
    }
}

static void slot_plans(struct dk_json_text *page, const struct dk_daemon *daemon)
{
    each_model(page, daemon, add_plans, "/v1/plans");
}

static void slot_counters(struct dk_json_text *page, const struct dk_daemon *daemon)
{
    static const char *const names[] = {
#define DK_SCALAR_NAME(id, name, help, is_counter) name,
        DK_METRIC_SCALAR_MAP(DK_SCALAR_NAME)
#undef DK_SCALAR_NAME
    };
    static const char *const helps[] = {
#define DK_SCALAR_HELP(id, name, help, is_counter) help,
        DK_METRIC_SCALAR_MAP(DK_SCALAR_HELP)
#undef DK_SCALAR_HELP
    };
    for (int i = 0; i < DK_METRIC_SCALAR_COUNT; i++) {
        add(page, "<tr>");
        add_cell(page, names[i]);
        add(page, "<td class=\"n\" data-series=\"");
        add(page, names[i]);
        add(page, "\">");
        dk_json_text_i64(page, dk_metrics_get(daemon->metrics, (enum dk_metric_scalar)i));
        add(page, "</td>");
        add_cell(page, helps[i]);
        add(page, "</tr>\n");
    }
}

static const struct slot {
    const char *name;
    void (*fill)(struct dk_json_text *page, const struct dk_daemon *daemon);
} slots[] = {
    {"version", slot_version},         {"state", slot_state},         {"state_class", slot_state_class},
    {"reason", slot_reason},           {"device", slot_device},       {"uptime", slot_uptime},
    {"queue_depth", slot_queue_depth}, {"in_flight", slot_in_flight}, {"launch_jobs", slot_launch_jobs},
    {"launch_rows", slot_launch_rows}, {"requests", slot_requests},   {"errors", slot_errors},
    {"latency", slot_latency},         {"models", slot_models},       {"plans", slot_plans},
    {"counters", slot_counters}};

bool dk_page_fill(struct dk_json_text *page, const struct dk_daemon *daemon, const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++) {
        if (strlen(slots[i].name) == length && memcmp(slots[i].name, name, length) == 0) {
            slots[i].fill(page, daemon);
            return true;
        }
    }
    return false;
}
