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
