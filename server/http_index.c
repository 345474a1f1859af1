/* http_index.c: GET /: one plain page for people: what runs, where to look. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "server/clock.h"
#include "server/daemon.h"
#include "server/http_reply.h"
#include "server/http_routes.h"
#include "server/metrics.h"
#include "server/models.h"

static void add_escaped(struct dk_json_text *page, const char *value)
{
    char one[2] = "";
    for (; *value != '\0'; value++) {
        one[0] = *value;
        dk_json_text_raw(page, *value == '<'   ? "&lt;"
                               : *value == '>' ? "&gt;"
                               : *value == '&' ? "&amp;"
                               : *value == '"' ? "&quot;"
                                               : one);
    }
}

static void add_cell(struct dk_json_text *page, const char *value)
{
    dk_json_text_raw(page, "<td>");
    add_escaped(page, value);
    dk_json_text_raw(page, "</td>");
}

static void add_cell_u64(struct dk_json_text *page, uint64_t value)
{
    dk_json_text_raw(page, "<td>");
    dk_json_text_u64(page, value);
    dk_json_text_raw(page, "</td>");
}

/* Microseconds, whole: no locale in it. */
static void add_cell_us(struct dk_json_text *page, double seconds)
{
    dk_json_text_raw(page, "<td>");
    dk_json_text_u64(page, (uint64_t)(seconds * 1e6 + 0.5));
    dk_json_text_raw(page, "</td>");
}

static void add_models(struct dk_json_text *page, const struct dk_daemon *daemon)
{
    dk_json_text_raw(page, "<h2>Models</h2>\n<table><tr><th>name</th><th>K</th><th>N</th><th>type</th>"
                           "<th>epilogue</th><th>version</th></tr>\n");
    size_t cursor = 0;
    for (struct dk_model *model; (model = dk_models_next(daemon->models, &cursor)) != NULL;) {
        dk_json_text_raw(page, "<tr>");
        add_cell(page, model->name);
        add_cell_u64(page, model->k);
        add_cell_u64(page, model->n);
        add_cell(page, dk_dtype_name(model->dtype, DK_DIALECT_NATIVE));
        add_cell(page, dk_epilogue_name(model->epilogue));
        add_cell_u64(page, model->version);
        dk_json_text_raw(page, "</tr>\n");
        dk_model_release(model);
    }
    dk_json_text_raw(page, "</table>\n");
}

static void add_latency(struct dk_json_text *page, const struct dk_daemon *daemon)
{
    dk_json_text_raw(page, "<h2>Request time, microseconds</h2>\n<table><tr><th>model</th><th>rows up to</th>"
                           "<th>p50</th><th>p99</th></tr>\n");
    size_t cursor = 0;
    for (struct dk_model *model; (model = dk_models_next(daemon->models, &cursor)) != NULL;) {
        for (uint32_t bucket = 0; bucket < dk_engine_get_info(daemon->engine)->bucket_count; bucket++) {
            double p50 = dk_metrics_request_quantile(daemon->metrics, model->metrics_shape, bucket, 0.5);
            double p99 = dk_metrics_request_quantile(daemon->metrics, model->metrics_shape, bucket, 0.99);
            if (!isfinite(p50) || !isfinite(p99)) {
                continue; /* nothing measured yet */
            }
            dk_json_text_raw(page, "<tr>");
            add_cell(page, model->name);
            add_cell_u64(page, dk_engine_bucket_rows(daemon->engine, bucket));
            add_cell_us(page, p50);
            add_cell_us(page, p99);
            dk_json_text_raw(page, "</tr>\n");
        }
        dk_model_release(model);
    }
    dk_json_text_raw(page, "</table>\n");
}

static void add_routes(struct dk_json_text *page)
{
    dk_json_text_raw(page, "<h2>Routes</h2>\n<table>\n");
    for (size_t i = 0; i < dk_route_count; i++) {
        bool is_link =
            (dk_routes[i].methods & DK_METHOD_GET) != 0 && strpbrk(dk_routes[i].path, "{[") == NULL;
        char allow[64];
        dk_route_allow(&dk_routes[i], allow, sizeof allow);
        allow[strcspn(allow, ",")] = '\0';
        dk_json_text_raw(page, "<tr>");
        add_cell(page, allow);
        dk_json_text_raw(page, is_link ? "<td><a href=\"" : "<td>");
        if (is_link) {
            dk_json_text_raw(page, dk_routes[i].path);
            dk_json_text_raw(page, "\">");
        }
        dk_json_text_raw(page, dk_routes[i].path);
        dk_json_text_raw(page, is_link ? "</a></td>" : "</td>");
        add_cell(page, dk_routes[i].help);
        dk_json_text_raw(page, "</tr>\n");
    }
    dk_json_text_raw(page, "</table>\n");
}

enum MHD_Result dk_admin_index(struct dk_http_request *request)
{
    static const char *const states[] = {[DK_DAEMON_LOADING] = "loading models",
                                         [DK_DAEMON_READY] = "ready",
                                         [DK_DAEMON_DRAINING] = "draining",
                                         [DK_DAEMON_CLOSING] = "stopping"};
    const struct dk_daemon *daemon = request->daemon;
    enum dk_daemon_state state = dk_daemon_get_state(daemon);
    struct dk_json_text page = {0};
    dk_json_text_raw(&page, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                            "<title>decomposek</title><style>body{font:15px sans-serif;margin:2em}"
                            "td,th{text-align:left;padding:.1em 1em .1em 0}</style></head><body>\n"
                            "<h1>decomposek " DK_VERSION "</h1>\n<p>State: ");
    dk_json_text_raw(&page, states[state]);
    dk_json_text_raw(&page, ". Up ");
    dk_json_text_u64(&page, (dk_clock_now_ns() - daemon->started_ns) / 1000000000u);
    dk_json_text_raw(&page, " s. Backend: ");
    add_escaped(&page, dk_engine_get_info(daemon->engine)->reason);
    dk_json_text_raw(&page, "</p>\n");
    if (state != DK_DAEMON_LOADING) {
        add_models(&page, daemon);
        add_latency(&page, daemon);
    }
    add_routes(&page);
    dk_json_text_raw(&page, "</body></html>\n");
    return dk_http_reply_text(request, MHD_HTTP_OK, "text/html; charset=utf-8", NULL, &page);
}
