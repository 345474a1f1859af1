/* http_routes.h: the one table of routes: dispatch, Allow headers and the index page all read it. */
#ifndef DK_SERVER_HTTP_ROUTES_H
#define DK_SERVER_HTTP_ROUTES_H

#include <microhttpd.h>
#include <stddef.h>

#include "server/http_request.h"

struct dk_route {
    unsigned methods; /* of enum dk_http_method; GET implies HEAD, OPTIONS is always answered */
    const char *path; /* a pattern of http_pattern.h */
    /* Head complete: refuse early, before the body is read. NULL: nothing to check. */
    dk_status (*begin)(struct dk_http_request *request, struct dk_error *error);
    /* Next bytes of the body; bounded work. NULL: a body is read and ignored. */
    dk_status (*body)(struct dk_http_request *request, const char *bytes, size_t length,
                      struct dk_error *error);
    /* Body complete, or resumed after a suspend: answer, or suspend. */
    enum MHD_Result (*finish)(struct dk_http_request *request);
    /* The request is over, however it ended. NULL: holds nothing. */
    void (*end)(struct dk_http_request *request);
    /* Told of refusals that this layer answers itself (metrics). NULL: none. */
    void (*refused)(struct dk_http_request *request, dk_status status);
    bool is_open; /* needs no API key */
    const char *help;
};

extern const struct dk_route dk_routes[];
extern const size_t dk_route_count;

/* The first route of the table that matches, so literal paths stand before patterns; NULL when none does. */
const struct dk_route *dk_route_find(const char *path, struct dk_path_parameters *parameters);
/* "GET, HEAD, OPTIONS" of a route; `size` >= 64. */
void dk_route_allow(const struct dk_route *route, char *out, size_t size);

struct dk_json_text;
struct dk_model;

/* What GET /v1/models says of one model. */
void dk_admin_model_json(struct dk_json_text *text, const struct dk_model *model);

/* Handlers: http_admin.c */
enum MHD_Result dk_page_index(struct dk_http_request *request);
enum MHD_Result dk_page_style(struct dk_http_request *request);
enum MHD_Result dk_page_script(struct dk_http_request *request);
enum MHD_Result dk_admin_models(struct dk_http_request *request);
enum MHD_Result dk_admin_plans(struct dk_http_request *request);
enum MHD_Result dk_admin_metrics(struct dk_http_request *request);
enum MHD_Result dk_admin_live(struct dk_http_request *request);
enum MHD_Result dk_admin_ready(struct dk_http_request *request);
/* http_native.c */
dk_status dk_native_begin(struct dk_http_request *request, struct dk_error *error);
dk_status dk_native_body(struct dk_http_request *request, const char *bytes, size_t length,
                         struct dk_error *error);
enum MHD_Result dk_native_finish(struct dk_http_request *request);
void dk_native_end(struct dk_http_request *request);
void dk_native_refused(struct dk_http_request *request, dk_status status);

/* http_infer.c */
dk_status dk_oip_infer_begin(struct dk_http_request *request, struct dk_error *error);
dk_status dk_oip_infer_body(struct dk_http_request *request, const char *bytes, size_t length,
                            struct dk_error *error);
enum MHD_Result dk_oip_infer_finish(struct dk_http_request *request);
void dk_oip_infer_end(struct dk_http_request *request);
void dk_oip_infer_refused(struct dk_http_request *request, dk_status status);
/* http_oip.c */
enum MHD_Result dk_oip_server(struct dk_http_request *request);
enum MHD_Result dk_oip_model(struct dk_http_request *request);
enum MHD_Result dk_oip_config(struct dk_http_request *request);
enum MHD_Result dk_oip_model_ready(struct dk_http_request *request);
enum MHD_Result dk_oip_model_stats(struct dk_http_request *request);
enum MHD_Result dk_oip_all_stats(struct dk_http_request *request);
/* http_regions.c */
dk_status dk_oip_register_begin(struct dk_http_request *request, struct dk_error *error);
dk_status dk_oip_register_body(struct dk_http_request *request, const char *bytes, size_t length,
                               struct dk_error *error);
enum MHD_Result dk_oip_register_finish(struct dk_http_request *request);
void dk_oip_register_end(struct dk_http_request *request);
enum MHD_Result dk_oip_unregister(struct dk_http_request *request);
enum MHD_Result dk_oip_region_status(struct dk_http_request *request);
enum MHD_Result dk_oip_cuda_register(struct dk_http_request *request);
enum MHD_Result dk_oip_cuda_unregister(struct dk_http_request *request);
enum MHD_Result dk_oip_cuda_status(struct dk_http_request *request);

#endif
