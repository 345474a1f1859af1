/* http_admin.c: GET routes: health, metrics, models and plans as JSON. */
#include <string.h>

#include "server/daemon.h"
#include "server/http_gzip.h"
#include "server/http_reply.h"
#include "server/http_routes.h"
#include "server/metrics.h"
#include "server/models.h"

static void add_key(struct dk_json_text *text, const char *prefix, const char *key)
{
    dk_json_text_raw(text, prefix);
    dk_json_text_string(text, key, strlen(key));
    dk_json_text_raw(text, ":");
}

static void add_string(struct dk_json_text *text, const char *prefix, const char *key, const char *value)
{
    add_key(text, prefix, key);
    dk_json_text_string(text, value, strlen(value));
}

static void add_u64(struct dk_json_text *text, const char *prefix, const char *key, uint64_t value)
{
    add_key(text, prefix, key);
    dk_json_text_u64(text, value);
}

static enum MHD_Result reply_not_loaded(struct dk_http_request *request)
{
    struct dk_error error;
    (void)dk_fail(&error, DK_UNAVAILABLE, "models are still being loaded");
    return dk_http_reply_error(request, &error);
}

enum MHD_Result dk_admin_live(struct dk_http_request *request)
{
    struct dk_json_text text = {0};
    dk_json_text_raw(&text, "{\"live\":true}\n");
    return dk_http_reply_text(request, MHD_HTTP_OK, DK_MEDIA_JSON, NULL, &text);
}

enum MHD_Result dk_admin_ready(struct dk_http_request *request)
{
    static const char *const reasons[] = {
        [DK_DAEMON_LOADING] = "models are still being loaded",
        [DK_DAEMON_DRAINING] = "the daemon is draining: it will stop soon",
        [DK_DAEMON_CLOSING] = "the daemon is stopping",
    };
    enum dk_daemon_state state = dk_daemon_get_state(request->daemon);
    if (state != DK_DAEMON_READY) {
        struct dk_error error;
        (void)dk_fail(&error, DK_UNAVAILABLE, "%s", reasons[state]);
        return dk_http_reply_error(request, &error);
    }
    struct dk_json_text text = {0};
    dk_json_text_raw(&text, "{\"ready\":true}\n");
    return dk_http_reply_text(request, MHD_HTTP_OK, DK_MEDIA_JSON, NULL, &text);
}

enum MHD_Result dk_admin_metrics(struct dk_http_request *request)
{
    bool is_named;
    unsigned open_metrics =
        dk_accept_quality(request->head.accept, "application/openmetrics-text", &is_named);
    unsigned plain = dk_accept_quality(request->head.accept, "text/plain", NULL);
    bool is_open_metrics = is_named && open_metrics > 0 && open_metrics >= plain;
    struct dk_json_text text = {0};
    dk_metrics_write(request->daemon->metrics, is_open_metrics, &text);
    bool wants_gzip;
    bool is_gzip = dk_accept_quality(request->head.accept_encoding, "gzip", &wants_gzip) > 0 && wants_gzip &&
                   dk_gzip_text(&text);
    return dk_http_reply_text(request, MHD_HTTP_OK,
                              is_open_metrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                              : "text/plain; version=0.0.4; charset=utf-8",
                              is_gzip ? "gzip" : NULL, &text);
}

/* Base name only: where files lie on the host is nobody's business. */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

void dk_admin_model_json(struct dk_json_text *text, const struct dk_model *model)
{
    add_string(text, "{", "name", model->name);
    add_u64(text, ",", "n", model->n);
    add_u64(text, ",", "k", model->k);
    add_string(text, ",", "dtype", dk_dtype_name(model->dtype, DK_DIALECT_NATIVE));
    add_string(text, ",", "layout", dk_layout_name(model->layout));
    add_string(text, ",", "epilogue", dk_epilogue_name(model->epilogue));
    add_key(text, ",", "has_bias");
    dk_json_text_raw(text, model->has_bias ? "true" : "false");
    add_string(text, ",", "source", base_name(model->source_path));
    add_string(text, ",", "tensor", model->tensor_name);
    add_u64(text, ",", "version", model->version);
    add_u64(text, ",", "weights_bytes", dk_weights_bytes(model->weights));
    dk_json_text_raw(text, "}");
}

enum MHD_Result dk_admin_models(struct dk_http_request *request)
{
    if (dk_daemon_get_state(request->daemon) == DK_DAEMON_LOADING) {
        return reply_not_loaded(request);
    }
    struct dk_json_text text = {0};
    dk_json_text_raw(&text, "{\"models\":[");
    size_t cursor = 0, count = 0;
    for (struct dk_model *model; (model = dk_models_next(request->daemon->models, &cursor)) != NULL;) {
        dk_json_text_raw(&text, count++ > 0 ? "," : "");
        dk_admin_model_json(&text, model);
        dk_model_release(model);
    }
    dk_json_text_raw(&text, "]}\n");
    return dk_http_reply_text(request, MHD_HTTP_OK, DK_MEDIA_JSON, NULL, &text);
}

static void add_engine(struct dk_json_text *text, const struct dk_engine_info *info)
{
    add_string(text, "{", "backend", info->backend);
    add_string(text, ",", "reason", info->reason);
    add_string(text, ",", "device", info->device_name);
    add_string(text, ",", "isa", info->isa);
    add_string(text, ",", "driver", info->driver_version);
    add_string(text, ",", "runtime", info->runtime_version);
    add_u64(text, ",", "threads", info->thread_count);
    add_u64(text, ",", "max_tokens", info->max_tokens);
    dk_json_text_raw(text, "}");
}

static void add_plan(struct dk_json_text *text, const struct dk_model *model, const struct dk_plan *plan)
{
    add_string(text, "{", "model", model->name);
    add_u64(text, ",", "n", model->n);
    add_u64(text, ",", "k", model->k);
    add_u64(text, ",", "bucket", plan->bucket_rows);
    add_string(text, ",", "variant", plan->variant);
    add_u64(text, ",", "split_k", plan->split_k);
    add_u64(text, ",", "chunk_k", plan->chunk_k);
    add_u64(text, ",", "tile_m", plan->tile_m);
    add_u64(text, ",", "tile_n", plan->tile_n);
    add_u64(text, ",", "workspace_bytes", plan->workspace_bytes);
    dk_json_text_raw(text, "}");
}

enum MHD_Result dk_admin_plans(struct dk_http_request *request)
{
    struct dk_daemon *daemon = request->daemon;
    if (dk_daemon_get_state(daemon) == DK_DAEMON_LOADING) {
        return reply_not_loaded(request);
    }
    struct dk_json_text text = {0};
    dk_json_text_raw(&text, "{\"engine\":");
    add_engine(&text, dk_engine_get_info(daemon->engine));
    dk_json_text_raw(&text, ",\"plans\":[");
    bool is_first = true;
    size_t cursor = 0;
    for (struct dk_model *model; (model = dk_models_next(daemon->models, &cursor)) != NULL;) {
        for (uint32_t bucket = 0; bucket < dk_engine_get_info(daemon->engine)->bucket_count; bucket++) {
            dk_json_text_raw(&text, is_first ? "" : ",");
            add_plan(&text, model,
                     dk_plan_get(model->weights, dk_engine_bucket_rows(daemon->engine, bucket)));
            is_first = false;
        }
        dk_model_release(model);
    }
    dk_json_text_raw(&text, "]}\n");
    return dk_http_reply_text(request, MHD_HTTP_OK, DK_MEDIA_JSON, NULL, &text);
}
