/* http_oip.c: GET routes of /v2: server and model metadata, configuration, readiness, statistics. */
#include <stdlib.h>

#include "server/daemon.h"
#include "server/http_reply.h"
#include "server/http_routes.h"
#include "server/infer.h"
#include "server/metrics.h"
#include "server/models.h"
#include "server/statistics.h"

enum { EXTENSIONS_MAX = 8 };

enum MHD_Result dk_oip_server(struct dk_http_request *request)
{
    const struct dk_config *config = request->daemon->config;
    const char *extensions[EXTENSIONS_MAX] = {"binary_tensor_data", "parameters", "schedule_policy",
                                              "model_configuration", "statistics"};
    size_t count = 5;
    if (config->allow_client_shm) {
        extensions[count++] = "system_shared_memory";
    }
    if (config->allow_model_control) {
        extensions[count++] = "model_repository";
    }
    struct dk_json_text text = {0};
    dk_oip_server_metadata(&text, "decomposek", DK_VERSION, extensions, count);
    return dk_http_reply_text(request, MHD_HTTP_OK, DK_MEDIA_JSON, NULL, &text);
}

static dk_status check_loaded(const struct dk_http_request *request, struct dk_error *error)
{
    return dk_daemon_get_state(request->daemon) != DK_DAEMON_LOADING
               ? DK_OK
               : dk_fail(error, DK_UNAVAILABLE, "models are still being loaded");
}

/* The model of the path; pair with dk_model_release. */
static dk_status acquire_model(const struct dk_http_request *request, struct dk_model **out,
                               struct dk_error *error)
{
    dk_status status = check_loaded(request, error);
    if (status != DK_OK) {
        return status;
    }
    *out = dk_models_acquire(request->daemon->models, request->parameters.model);
    return *out != NULL ? DK_OK : dk_fail(error, DK_NOT_FOUND, "no model \"%s\"", request->parameters.model);
}

static enum MHD_Result reply_about_model(struct dk_http_request *request,
                                         void (*write)(struct dk_json_text *text,
                                                       const struct dk_oip_model *model))
{
    struct dk_error error;
    struct dk_model *model;
    if (acquire_model(request, &model, &error) != DK_OK) {
        return dk_http_reply_error(request, &error);
    }
    struct dk_infer_model described;
    struct dk_json_text text = {0};
    dk_infer_model_init(&described, request->daemon, model);
    write(&text, &described.oip);
    dk_model_release(model);
    return dk_http_reply_text(request, MHD_HTTP_OK, DK_MEDIA_JSON, NULL, &text);
}

enum MHD_Result dk_oip_model(struct dk_http_request *request)
{
    return reply_about_model(request, dk_oip_model_metadata);
}

enum MHD_Result dk_oip_config(struct dk_http_request *request)
{
    return reply_about_model(request, dk_oip_model_config);
}

static void write_ready(struct dk_json_text *text, const struct dk_oip_model *model)
{
    (void)model;
    dk_json_text_raw(text, "{\"ready\":true}\n");
}

enum MHD_Result dk_oip_model_ready(struct dk_http_request *request)
{
    struct dk_error error;
    if (dk_daemon_get_state(request->daemon) == DK_DAEMON_READY) {
        return reply_about_model(request, write_ready);
    }
    (void)dk_fail(&error, DK_UNAVAILABLE, "the server is %s",
                  dk_daemon_get_state(request->daemon) == DK_DAEMON_LOADING ? "loading models" : "stopping");
    return dk_http_reply_error(request, &error);
}

/* One model's numbers, with room for what they point to. */
struct entry {
    struct dk_model *model;
    struct dk_oip_batch_stats batches[DK_STATISTICS_BATCHES];
    struct dk_oip_memory_usage memory;
};

static void fill(struct entry *entry, struct dk_oip_model_stats *stats, const struct dk_daemon *daemon)
{
    const struct dk_engine_info *info = dk_engine_get_info(daemon->engine);
    uint32_t bucket_rows[DK_STATISTICS_BATCHES], count = 0;
    for (; count < info->bucket_count && count < DK_STATISTICS_BATCHES; count++) {
        bucket_rows[count] = dk_engine_bucket_rows(daemon->engine, count);
    }
    dk_statistics_read(dk_metrics_statistics(daemon->metrics, entry->model->metrics_model), bucket_rows,
                       count, stats, entry->batches);
    bool is_gpu = info->backend[1] == 'u'; /* "cuda", not "cpu" */
    entry->memory = (struct dk_oip_memory_usage){.type = is_gpu ? "GPU" : "CPU",
                                                 .id = is_gpu ? daemon->config->device_index : 0,
                                                 .byte_size = dk_weights_bytes(entry->model->weights)};
    stats->name = entry->model->name;
    stats->memory = &entry->memory;
    stats->memory_count = 1;
}

/* Takes the references of `entries`, and frees both arrays. */
static enum MHD_Result reply_stats(struct dk_http_request *request, struct entry *entries,
                                   struct dk_oip_model_stats *stats, size_t count)
{
    struct dk_json_text text = {0};
    for (size_t i = 0; i < count; i++) {
        fill(&entries[i], &stats[i], request->daemon);
    }
    dk_oip_stats(&text, stats, count);
    for (size_t i = 0; i < count; i++) {
        dk_model_release(entries[i].model);
    }
    free(entries);
    free(stats);
    return dk_http_reply_text(request, MHD_HTTP_OK, DK_MEDIA_JSON, NULL, &text);
}

static enum MHD_Result reply_no_memory(struct dk_http_request *request, struct entry *entries,
                                       struct dk_oip_model_stats *stats)
{
    struct dk_error error;
    free(entries);
    free(stats);
    (void)dk_fail(&error, DK_NO_MEMORY, "out of memory for the statistics");
    return dk_http_reply_error(request, &error);
}

enum MHD_Result dk_oip_model_stats(struct dk_http_request *request)
{
    struct dk_error error;
    struct entry *entry = calloc(1, sizeof *entry);
    struct dk_oip_model_stats *stats = calloc(1, sizeof *stats);
    if (entry == NULL || stats == NULL) {
        return reply_no_memory(request, entry, stats);
    }
    if (acquire_model(request, &entry->model, &error) != DK_OK) {
        free(entry);
        free(stats);
        return dk_http_reply_error(request, &error);
    }
    return reply_stats(request, entry, stats, 1);
}

enum MHD_Result dk_oip_all_stats(struct dk_http_request *request)
{
    struct dk_error error;
    if (check_loaded(request, &error) != DK_OK) {
        return dk_http_reply_error(request, &error);
    }
    /* Models that come meanwhile are for the next time. */
    size_t count = 0, cursor = 0, count_max = dk_models_count(request->daemon->models) + 1;
    struct entry *entries = calloc(count_max, sizeof *entries);
    struct dk_oip_model_stats *stats = calloc(count_max, sizeof *stats);
    if (entries == NULL || stats == NULL) {
        return reply_no_memory(request, entries, stats);
    }
    while (count < count_max &&
           (entries[count].model = dk_models_next(request->daemon->models, &cursor)) != NULL) {
        count++;
    }
    return reply_stats(request, entries, stats, count);
}
