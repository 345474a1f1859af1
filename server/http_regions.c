/* http_regions.c: the shared-memory extensions of /v2: register, unregister, status. */
#include <stdlib.h>

#include "proto/json_reader.h"
#include "server/daemon.h"
#include "server/http_reply.h"
#include "server/http_routes.h"
#include "server/metrics.h"
#include "server/regions.h"

static dk_status check_allowed(const struct dk_http_request *request, struct dk_error *error)
{
    if (!request->daemon->config->allow_client_shm) {
        return dk_fail(error, DK_FORBIDDEN,
                       "shared memory of clients is switched off (--allow-client-shm switches it on)");
    }
    return dk_daemon_takes_work(request->daemon) ? DK_OK : dk_fail(error, DK_UNAVAILABLE, "not serving");
}

static enum MHD_Result reply_empty(struct dk_http_request *request, const char *json)
{
    struct dk_json_text text = {0};
    dk_json_text_raw(&text, json);
    return dk_http_reply_text(request, MHD_HTTP_OK, DK_MEDIA_JSON, NULL, &text);
}

dk_status dk_oip_register_begin(struct dk_http_request *request, struct dk_error *error)
{
    dk_status status = check_allowed(request, error);
    if (status != DK_OK) {
        return status;
    }
    struct dk_json_reader *reader;
    status = dk_json_reader_new(NULL, 0, NULL, &reader);
    if (status != DK_OK) {
        return dk_fail(error, status, "out of memory for another JSON body");
    }
    request->route_state = reader;
    return DK_OK;
}

dk_status dk_oip_register_body(struct dk_http_request *request, const char *bytes, size_t length,
                               struct dk_error *error)
{
    return dk_json_reader_feed(request->route_state, bytes, length, error);
}

enum MHD_Result dk_oip_register_finish(struct dk_http_request *request)
{
    struct dk_error error;
    struct dk_oip_system_region wanted;
    const char *skeleton;
    size_t length;
    dk_status status = dk_json_reader_finish(request->route_state, &skeleton, &length, &error);
    if (status == DK_OK) {
        status = dk_oip_system_region_parse(skeleton, length, &wanted, &error);
    }
    if (status == DK_OK) {
        status = dk_regions_register(request->daemon->regions, request->parameters.region, &wanted, &error);
    }
    if (status != DK_OK) {
        dk_metrics_add(request->daemon->metrics, DK_METRIC_HTTP_REFUSED, 1);
        return dk_http_reply_error(request, &error);
    }
    return reply_empty(request, "{}\n");
}

void dk_oip_register_end(struct dk_http_request *request)
{
    dk_json_reader_free(request->route_state);
    request->route_state = NULL;
}

enum MHD_Result dk_oip_unregister(struct dk_http_request *request)
{
    struct dk_error error;
    if (check_allowed(request, &error) != DK_OK) {
        return dk_http_reply_error(request, &error);
    }
    if (request->parameters.region[0] != '\0') {
        dk_regions_unregister(request->daemon->regions, request->parameters.region);
    } else {
        dk_regions_unregister_all(request->daemon->regions);
    }
    return reply_empty(request, "{}\n");
}

enum MHD_Result dk_oip_region_status(struct dk_http_request *request)
{
    struct dk_error error;
    struct dk_region_info *list = NULL;
    size_t count = 0;
    const char *name = request->parameters.region[0] != '\0' ? request->parameters.region : NULL;
    dk_status status = check_allowed(request, &error);
    if (status == DK_OK) {
        status = dk_regions_list(request->daemon->regions, name, &list, &count, &error);
    }
    if (status == DK_OK && name != NULL && count == 0) {
        status = dk_fail(&error, DK_NOT_FOUND, "no region \"%s\"", name);
    }
    struct dk_oip_system_status *entries = status == DK_OK ? calloc(count + 1, sizeof *entries) : NULL;
    if (status == DK_OK && entries == NULL) {
        status = dk_fail(&error, DK_NO_MEMORY, "out of memory for a list of regions");
    }
    if (status != DK_OK) {
        free(list);
        return dk_http_reply_error(request, &error);
    }
    for (size_t i = 0; i < count; i++) {
        entries[i] = (struct dk_oip_system_status){.name = list[i].name,
                                                   .key = list[i].key,
                                                   .offset = list[i].offset,
                                                   .byte_size = list[i].byte_size};
    }
    struct dk_json_text text = {0};
    dk_oip_system_regions(&text, entries, count);
    free(entries);
    free(list);
    return dk_http_reply_text(request, MHD_HTTP_OK, DK_MEDIA_JSON, NULL, &text);
}

/* GPU memory of clients goes over the native way in; here there is never a region of it. */
enum MHD_Result dk_oip_cuda_register(struct dk_http_request *request)
{
    struct dk_error error;
    (void)dk_fail(&error, DK_UNSUPPORTED, "CUDA shared memory cannot be registered over HTTP");
    return dk_http_reply_error(request, &error);
}

enum MHD_Result dk_oip_cuda_unregister(struct dk_http_request *request)
{
    return reply_empty(request, "{}\n");
}

enum MHD_Result dk_oip_cuda_status(struct dk_http_request *request)
{
    if (request->parameters.region[0] != '\0') {
        struct dk_error error;
        (void)dk_fail(&error, DK_NOT_FOUND, "no region \"%s\"", request->parameters.region);
        return dk_http_reply_error(request, &error);
    }
    return reply_empty(request, "[]\n");
}
