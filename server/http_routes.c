/* http_routes.c: the route table. */
#include "server/http_routes.h"

#include <stdio.h>

const struct dk_route dk_routes[] = {
    {.methods = DK_METHOD_POST,
     .path = "/v1/matmul",
     .begin = dk_native_begin,
     .body = dk_native_body,
     .finish = dk_native_finish,
     .end = dk_native_end,
     .refused = dk_native_refused,
     .help = "Multiply x by a model's weights, or a by b; JSON or raw."},
    {.methods = DK_METHOD_GET,
     .path = "/v1/models",
     .finish = dk_admin_models,
     .help = "Loaded models: shape, type, source."},
    {.methods = DK_METHOD_GET,
     .path = "/v1/plans",
     .finish = dk_admin_plans,
     .help = "How each model is computed in each bucket of rows; the backend and why."},
    {.methods = DK_METHOD_GET,
     .path = "/metrics",
     .finish = dk_admin_metrics,
     .help = "Prometheus metrics (text or OpenMetrics)."},
    {.methods = DK_METHOD_GET,
     .path = "/v2/health/live",
     .finish = dk_admin_live,
     .is_open = true,
     .help = "200 while the process answers."},
    {.methods = DK_METHOD_GET,
     .path = "/v2/health/ready",
     .finish = dk_admin_ready,
     .is_open = true,
     .help = "200 while work is accepted, else 503."},
    {.methods = DK_METHOD_GET,
     .path = "/v2",
     .finish = dk_oip_server,
     .help = "Open Inference Protocol v2: name, version, extensions."},
    {.methods = DK_METHOD_GET,
     .path = "/v2/models/stats",
     .finish = dk_oip_all_stats,
     .help = "Statistics of all models."},
    {.methods = DK_METHOD_GET,
     .path = "/v2/models/{model}[/versions/{version}]",
     .finish = dk_oip_model,
     .help = "Inputs and outputs of a model."},
    {.methods = DK_METHOD_GET,
     .path = "/v2/models/{model}[/versions/{version}]/ready",
     .finish = dk_oip_model_ready,
     .help = "200 while the model takes work."},
    {.methods = DK_METHOD_GET,
     .path = "/v2/models/{model}[/versions/{version}]/config",
     .finish = dk_oip_config,
     .help = "Configuration of a model."},
    {.methods = DK_METHOD_GET,
     .path = "/v2/models/{model}[/versions/{version}]/stats",
     .finish = dk_oip_model_stats,
     .help = "Statistics of a model."},
    {.methods = DK_METHOD_POST,
     .path = "/v2/models/{model}[/versions/{version}]/infer",
     .begin = dk_oip_infer_begin,
     .body = dk_oip_infer_body,
     .finish = dk_oip_infer_finish,
     .end = dk_oip_infer_end,
     .refused = dk_oip_infer_refused,
     .help = "Multiply x by a model's weights; JSON, binary or raw, or in shared memory."},
    {.methods = DK_METHOD_GET,
     .path = "/v2/systemsharedmemory[/region/{region}]/status",
     .finish = dk_oip_region_status,
     .help = "Registered shared memory (with --allow-client-shm)."},
    {.methods = DK_METHOD_POST,
     .path = "/v2/systemsharedmemory/region/{region}/register",
     .begin = dk_oip_register_begin,
     .body = dk_oip_register_body,
     .finish = dk_oip_register_finish,
     .end = dk_oip_register_end,
     .help = "Register an object of /dev/shm (with --allow-client-shm)."},
    {.methods = DK_METHOD_POST,
     .path = "/v2/systemsharedmemory[/region/{region}]/unregister",
     .finish = dk_oip_unregister,
     .help = "Forget one region or all (with --allow-client-shm)."},
    {.methods = DK_METHOD_GET,
     .path = "/v2/cudasharedmemory[/region/{region}]/status",
     .finish = dk_oip_cuda_status,
     .help = "Always empty: there are no CUDA regions over HTTP."},
    {.methods = DK_METHOD_POST,
     .path = "/v2/cudasharedmemory/region/{region}/register",
     .finish = dk_oip_cuda_register,
     .help = "Not supported (501)."},
    {.methods = DK_METHOD_POST,
     .path = "/v2/cudasharedmemory[/region/{region}]/unregister",
     .finish = dk_oip_cuda_unregister,
     .help = "Does nothing: there are none."},
    {.methods = DK_METHOD_GET, .path = "/", .finish = dk_admin_index, .help = "This page."},
};
const size_t dk_route_count = sizeof dk_routes / sizeof dk_routes[0];

const struct dk_route *dk_route_find(const char *path, struct dk_path_parameters *parameters)
{
    for (size_t i = 0; i < dk_route_count; i++) {
        if (dk_pattern_match(dk_routes[i].path, path, parameters)) {
            return &dk_routes[i];
        }
    }
    return NULL;
}

void dk_route_allow(const struct dk_route *route, char *out, size_t size)
{
    (void)snprintf(out, size, "%s%s%s%sOPTIONS", (route->methods & DK_METHOD_GET) != 0 ? "GET, HEAD, " : "",
                   (route->methods & DK_METHOD_POST) != 0 ? "POST, " : "",
                   (route->methods & DK_METHOD_PUT) != 0 ? "PUT, " : "",
                   (route->methods & DK_METHOD_DELETE) != 0 ? "DELETE, " : "");
}
