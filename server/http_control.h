/* http_control.h: handlers of model control, for the route table. All but GET of a model need
 * --allow-model-control (else 403). */
#ifndef DK_SERVER_HTTP_CONTROL_H
#define DK_SERVER_HTTP_CONTROL_H

#include <microhttpd.h>

#include "server/http_request.h"

/* POST /v2/repository/index, /v2/repository/models/{model}/load and .../unload */
dk_status dk_repository_begin(struct dk_http_request *request, struct dk_error *error);
dk_status dk_repository_body(struct dk_http_request *request, const char *bytes, size_t length,
                             struct dk_error *error);
enum MHD_Result dk_repository_index(struct dk_http_request *request);
enum MHD_Result dk_repository_load(struct dk_http_request *request);
enum MHD_Result dk_repository_unload(struct dk_http_request *request);
/* GET, PUT and DELETE /v1/models/{model} */
dk_status dk_model_begin(struct dk_http_request *request, struct dk_error *error);
dk_status dk_model_body(struct dk_http_request *request, const char *bytes, size_t length,
                        struct dk_error *error);
enum MHD_Result dk_model_finish(struct dk_http_request *request);
/* Both */
void dk_control_end(struct dk_http_request *request);

#endif
