/* remote.h: the daemon's /v1 routes as calls: lists as JSON trees, one product as an answer struct. */
#ifndef DK_CLIENT_REMOTE_H
#define DK_CLIENT_REMOTE_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/http_client.h"
#include "proto/dtype.h"
#include "proto/gemm.h"
#include "proto/native_api.h"
#include "proto/status.h"

/* GET `path` and parse the body strictly. Caller frees with cJSON_Delete. DK_BAD_JSON when the answer is not
 * one JSON object; else as dk_http_client_send. */
dk_status dk_remote_get(struct dk_http_client *client, const char *path, cJSON **out, struct dk_error *error);

/* What GET /v1/models says of one model and a request needs. */
struct dk_remote_model {
    char name[DK_MODEL_NAME_BYTES + 1];
    uint64_t n, k;
    dk_dtype dtype; /* of the weights; the default for x */
};
/* DK_NOT_FOUND lists the names that are served. */
dk_status dk_remote_find_model(struct dk_http_client *client, const char *name, struct dk_remote_model *out,
                               struct dk_error *error);

struct dk_remote_request {
    const struct dk_remote_model *model;
    uint64_t rows;
    const void *x; /* [rows, model->k] of dtype, row-major, borrowed */
    dk_dtype dtype, out_dtype;
    bool has_epilogue; /* false: the model's own */
    dk_epilogue epilogue;
    bool is_json; /* send and take JSON instead of raw values */
};

/* Times in microseconds; NaN where the server did not say. */
struct dk_remote_timing {
    double queue_us, kernel_us, total_us; /* measured by the server */
    double round_trip_us;                 /* measured here */
};
/* Empty texts and zeros where the server did not say. */
struct dk_remote_plan {
    uint64_t bucket, split_k, pieces;
    char variant[64], backend[32];
};
struct dk_remote_reply {
    uint64_t rows, n;
    dk_dtype dtype;
    void *y; /* [rows, n] of dtype; caller frees with dk_remote_reply_deinit */
    size_t y_bytes;
    struct dk_remote_timing timing;
    struct dk_remote_plan plan;
};

/* A prepared request: path and body are made once and may be sent many times. Borrows request->x. */
struct dk_remote_call {
    struct dk_remote_request request;
    char *path;
    char *json_body; /* NULL for a raw body */
    size_t json_bytes;
};
dk_status dk_remote_call_init(const struct dk_remote_request *request, struct dk_remote_call *out,
                              struct dk_error *error);
void dk_remote_call_deinit(struct dk_remote_call *call);

/* The HTTP exchange of a call, for those that run it themselves; valid as long as `call`. */
dk_status dk_remote_matmul_request(const struct dk_remote_call *call, struct dk_http_request *out,
                                   struct dk_error *error);
/* And its answer; takes the body of `response`. `client` still holds the headers. Errors as below. */
dk_status dk_remote_matmul_reply(struct dk_http_client *client, const struct dk_remote_call *call,
                                 struct dk_http_response *response, struct dk_remote_reply *out,
                                 struct dk_error *error);
/* POST /v1/matmul. The answer's size must be that of the shape the server announces, and the shape
 * [rows, model->n], else DK_BAD_SHAPE. */
dk_status dk_remote_matmul(struct dk_http_client *client, const struct dk_remote_call *call,
                           struct dk_remote_reply *out, struct dk_error *error);
void dk_remote_reply_deinit(struct dk_remote_reply *reply);

#endif
