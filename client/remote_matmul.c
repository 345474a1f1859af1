/* remote_matmul.c: POST /v1/matmul, raw or JSON, and the check of its answer. */
#include "client/remote.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_reader.h"
#include "proto/json_writer.h"

static const char raw_type[] = "application/octet-stream";
static const char json_type[] = "application/json";

/* What a raw answer cannot say in its body (PROTOCOL.md, "raw bodies"). */
#define SHAPE_HEADER  "X-Decomposek-Shape"
#define DTYPE_HEADER  "X-Decomposek-Dtype"
#define TIMING_HEADER "X-Decomposek-Timing-Us"
#define PLAN_HEADER   "X-Decomposek-Plan"

/* --- the request --------------------------------------------------------------------------------------- */

static void append_member(struct dk_json_text *text, const char *name, const char *value)
{
    dk_json_text_raw(text, "\"");
    dk_json_text_raw(text, name);
    dk_json_text_raw(text, "\":");
    dk_json_text_string(text, value, strlen(value));
    dk_json_text_raw(text, ",");
}

/* Names go before "x", so that the server knows the model when the values arrive. */
static dk_status make_json_body(const struct dk_remote_request *request, struct dk_json_text *text,
                                struct dk_error *error)
{
    dk_json_text_raw(text, "{");
    append_member(text, "model", request->model->name);
    append_member(text, "dtype", dk_dtype_name(request->dtype, DK_DIALECT_NATIVE));
    append_member(text, "out_dtype", dk_dtype_name(request->out_dtype, DK_DIALECT_NATIVE));
    if (request->has_epilogue)
        append_member(text, "epilogue", dk_epilogue_name(request->epilogue));
    dk_json_text_raw(text, "\"x\":");
    struct dk_json_tensor_writer writer;
    dk_json_tensor_writer_init(&writer, request->x, request->dtype, request->rows, request->model->k,
                               request->rows > 0);
    char part[4096 + 1];
    for (size_t length; (length = dk_json_tensor_writer_next(&writer, part, sizeof part - 1)) > 0;) {
        part[length] = 0;
        dk_json_text_raw(text, part);
    }
    dk_json_text_raw(text, "}");
    if (text->failed)
        return dk_fail(error, DK_NO_MEMORY, "no memory for a JSON body of %llu rows",
                       (unsigned long long)request->rows);
    if (writer.non_finite_count > 0)
        return dk_fail(error, DK_BAD_VALUE, "x holds %llu NaN or infinite values: JSON cannot carry them",
                       (unsigned long long)writer.non_finite_count);
    return DK_OK;
}

dk_status dk_remote_call_init(const struct dk_remote_request *request, struct dk_remote_call *out,
                              struct dk_error *error)
{
    struct dk_remote_call call = {.request = *request};
    if (request->is_json) {
        struct dk_json_text text = {0};
        dk_status status = make_json_body(request, &text, error);
        if (status != DK_OK) {
            dk_json_text_free(&text);
            return status;
        }
        call.json_body = text.data;
        call.json_bytes = text.length;
        call.path = strdup("/v1/matmul");
    } else if (asprintf(&call.path, "/v1/matmul?model=%s&dtype=%s&out_dtype=%s%s%s", request->model->name,
                        dk_dtype_name(request->dtype, DK_DIALECT_NATIVE),
                        dk_dtype_name(request->out_dtype, DK_DIALECT_NATIVE),
                        request->has_epilogue ? "&epilogue=" : "",
                        request->has_epilogue ? dk_epilogue_name(request->epilogue) : "") < 0) {
        call.path = NULL;
    }
    if (!call.path) {
        dk_remote_call_deinit(&call);
        return dk_fail(error, DK_NO_MEMORY, "no memory for a request");
    }
    *out = call;
    return DK_OK;
}

void dk_remote_call_deinit(struct dk_remote_call *call)
{
    free(call->path);
    free(call->json_body);
    *call = (struct dk_remote_call){0};
}

/* --- the raw answer ------------------------------------------------------------------------------------ */

/* The value of `key` in a list like "queue=1.5,kernel=20" (separators: comma, semicolon, space). */
static bool find_in_list(const char *list, const char *key, char *out, size_t size)
{
    static const char separators[] = ",; ";
    size_t key_length = strlen(key);
    while (list && *list) {
        list += strspn(list, separators);
        size_t length = strcspn(list, separators);
        if (length > key_length && list[key_length] == '=' && strncmp(list, key, key_length) == 0 &&
            length - key_length - 1 < size) {
            memcpy(out, list + key_length + 1, length - key_length - 1);
            out[length - key_length - 1] = 0;
            return true;
        }
        list += length;
    }
    return false;
}

static double listed_number(const char *list, const char *key)
{
    char text[64];
    double value;
    return find_in_list(list, key, text, sizeof text) && dk_json_parse_number(text, strlen(text), &value)
               ? value
               : NAN;
}

static uint64_t listed_count(const char *list, const char *key)
{
    double value = listed_number(list, key);
    return value >= 0 && value < 0x1p53 ? (uint64_t)value : 0;
}

/* "17,256" and nothing else. */
static bool read_shape(const char *text, uint64_t *rows, uint64_t *n)
{
    uint64_t values[2] = {0};
    for (int i = 0; i < 2; i++) {
        const char *begin = text;
        for (; *text >= '0' && *text <= '9' && text - begin < 18; text++)
            values[i] = values[i] * 10 + (uint64_t)(*text - '0');
        if (text == begin || *text++ != (i == 0 ? ',' : 0))
            return false;
    }
    *rows = values[0];
    *n = values[1];
    return true;
}

static dk_status check_raw_shape(struct dk_http_client *client, const struct dk_http_response *response,
                                 const struct dk_remote_reply *reply, struct dk_error *error)
{
    const char *type = dk_http_client_header(client, "Content-Type");
    if (!type || strcmp(type, raw_type) != 0)
        return dk_fail(error, DK_UNSUPPORTED_MEDIA, "the answer's content type is '%s', expected '%s'",
                       type ? type : "", raw_type);
    const char *dtype = dk_http_client_header(client, DTYPE_HEADER);
    if (dtype && strcmp(dtype, dk_dtype_name(reply->dtype, DK_DIALECT_NATIVE)) != 0)
        return dk_fail(error, DK_BAD_DTYPE, "the answer's type is %s, expected %s", dtype,
                       dk_dtype_name(reply->dtype, DK_DIALECT_NATIVE));
    const char *shape = dk_http_client_header(client, SHAPE_HEADER);
    uint64_t rows, n;
    if (shape && (!read_shape(shape, &rows, &n) || rows != reply->rows || n != reply->n))
        return dk_fail(error, DK_BAD_SHAPE, "the answer's shape is [%s], expected [%llu,%llu]", shape,
                       (unsigned long long)reply->rows, (unsigned long long)reply->n);
    if (response->body_bytes != reply->y_bytes)
        return dk_fail(error, DK_BAD_SHAPE, "the answer has %zu bytes, its shape [%llu, %llu] %s needs %zu",
                       response->body_bytes, (unsigned long long)reply->rows, (unsigned long long)reply->n,
                       dk_dtype_name(reply->dtype, DK_DIALECT_NATIVE), reply->y_bytes);
    return DK_OK;
}

/* Takes the body of `response`: it is y. */
static dk_status take_raw_answer(struct dk_http_client *client, struct dk_http_response *response,
                                 struct dk_remote_reply *reply, struct dk_error *error)
{
    dk_status status = check_raw_shape(client, response, reply, error);
    if (status != DK_OK)
        return status;
    const char *timing = dk_http_client_header(client, TIMING_HEADER);
    reply->timing.queue_us = listed_number(timing, "queue");
    reply->timing.kernel_us = listed_number(timing, "kernel");
    reply->timing.total_us = listed_number(timing, "total");
    const char *plan = dk_http_client_header(client, PLAN_HEADER);
    reply->plan.bucket = listed_count(plan, "bucket");
    reply->plan.split_k = listed_count(plan, "split_k");
    reply->plan.pieces = listed_count(plan, "pieces");
    find_in_list(plan, "variant", reply->plan.variant, sizeof reply->plan.variant);
    find_in_list(plan, "backend", reply->plan.backend, sizeof reply->plan.backend);
    reply->y = response->body;
    response->body = NULL;
    return DK_OK;
}

/* --- the JSON answer ----------------------------------------------------------------------------------- */

static double number_or_nan(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

static uint64_t count_or_zero(const cJSON *object, const char *name)
{
    double value = number_or_nan(object, name);
    return value >= 0 && value < 0x1p53 ? (uint64_t)value : 0;
}

static void copy_text(const cJSON *object, const char *name, char *out, size_t size)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (cJSON_IsString(item))
        snprintf(out, size, "%s", item->valuestring);
}

/* One row of "y" into `to`; null stands for a value that is not finite. */
static bool read_row(const cJSON *row, uint64_t n, dk_dtype dtype, unsigned char *to)
{
    uint64_t count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, row)
    {
        if (count++ == n || !(cJSON_IsNumber(item) || cJSON_IsNull(item)))
            return false;
        double value = cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
        dk_convert_from_double(&value, to, dtype, 1);
        to += dk_dtype_bytes(dtype);
    }
    return cJSON_IsArray(row) && count == n;
}

static dk_status read_json_values(const cJSON *y, struct dk_remote_reply *reply, struct dk_error *error)
{
    size_t row_bytes = (size_t)reply->n * dk_dtype_bytes(reply->dtype);
    unsigned char *to = reply->y;
    uint64_t row_count = 0;
    const cJSON *row;
    cJSON_ArrayForEach(row, y)
    {
        if (row_count == reply->rows || !read_row(row, reply->n, reply->dtype, to))
            return dk_fail(
                error, DK_BAD_SHAPE, "row %llu of the answer's y does not fit its shape [%llu, %llu]",
                (unsigned long long)row_count, (unsigned long long)reply->rows, (unsigned long long)reply->n);
        to += row_bytes;
        row_count++;
    }
    if (!cJSON_IsArray(y) || row_count != reply->rows)
        return dk_fail(error, DK_BAD_SHAPE, "the answer's y has %llu rows, its shape says %llu",
                       (unsigned long long)row_count, (unsigned long long)reply->rows);
    return DK_OK;
}

static dk_status read_json_reply(const cJSON *answer, const struct dk_remote_request *request,
                                 struct dk_remote_reply *reply, struct dk_error *error)
{
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(answer, "shape");
    const cJSON *rows = cJSON_GetArrayItem(shape, 0), *n = cJSON_GetArrayItem(shape, 1);
    if (cJSON_GetArraySize(shape) != 2 || !cJSON_IsNumber(rows) || !cJSON_IsNumber(n) ||
        rows->valuedouble != (double)request->rows || n->valuedouble != (double)request->model->n)
        return dk_fail(error, DK_BAD_SHAPE, "the answer's shape is [%.0f, %.0f], expected [%llu, %llu]",
                       cJSON_IsNumber(rows) ? rows->valuedouble : -1, cJSON_IsNumber(n) ? n->valuedouble : -1,
                       (unsigned long long)request->rows, (unsigned long long)request->model->n);
    const cJSON *timing = cJSON_GetObjectItemCaseSensitive(answer, "timing_us");
    reply->timing.queue_us = number_or_nan(timing, "queue");
    reply->timing.kernel_us = number_or_nan(timing, "kernel");
    reply->timing.total_us = number_or_nan(timing, "total");
    const cJSON *plan = cJSON_GetObjectItemCaseSensitive(answer, "plan");
    reply->plan.bucket = count_or_zero(plan, "bucket");
    reply->plan.split_k = count_or_zero(plan, "split_k");
    reply->plan.pieces = count_or_zero(plan, "pieces");
    copy_text(plan, "variant", reply->plan.variant, sizeof reply->plan.variant);
    copy_text(plan, "backend", reply->plan.backend, sizeof reply->plan.backend);
    return read_json_values(cJSON_GetObjectItemCaseSensitive(answer, "y"), reply, error);
}

static dk_status take_json_answer(const struct dk_http_response *response,
                                  const struct dk_remote_request *request, struct dk_remote_reply *reply,
                                  struct dk_error *error)
{
    const char *end;
    cJSON *answer = cJSON_ParseWithLengthOpts(response->body, response->body_bytes + 1, &end, true);
    if (!cJSON_IsObject(answer)) {
        cJSON_Delete(answer);
        return dk_fail(error, DK_BAD_JSON, "the answer is not a JSON object");
    }
    reply->y = malloc(reply->y_bytes + 1);
    dk_status status = reply->y ? read_json_reply(answer, request, reply, error)
                                : dk_fail(error, DK_NO_MEMORY, "no memory for the answer");
    cJSON_Delete(answer);
    return status;
}

/* --- the exchange -------------------------------------------------------------------------------------- */

dk_status dk_remote_matmul_request(const struct dk_remote_call *call, struct dk_http_request *out,
                                   struct dk_error *error)
{
    const struct dk_remote_request *request = &call->request;
    size_t x_items, y_items, x_bytes, text_bytes;
    if (!dk_size_mul(request->rows, request->model->k, &x_items) ||
        !dk_size_mul(x_items, dk_dtype_bytes(request->dtype), &x_bytes) ||
        !dk_size_mul(request->rows, request->model->n, &y_items) ||
        !dk_size_mul(y_items, DK_JSON_NUMBER_BYTES, &text_bytes))
        return dk_fail(error, DK_BAD_SHAPE, "%llu rows are too many", (unsigned long long)request->rows);
    *out = (struct dk_http_request){.method = "POST",
                                    .path = call->path,
                                    .content_type = request->is_json ? json_type : raw_type,
                                    .accept = request->is_json ? json_type : raw_type,
                                    .body = request->is_json ? call->json_body : request->x,
                                    .body_bytes = request->is_json ? call->json_bytes : x_bytes,
                                    .max_answer_bytes = request->is_json
                                                            ? text_bytes + 65536
                                                            : y_items * dk_dtype_bytes(request->out_dtype)};
    return DK_OK;
}

dk_status dk_remote_matmul_reply(struct dk_http_client *client, const struct dk_remote_call *call,
                                 struct dk_http_response *response, struct dk_remote_reply *out,
                                 struct dk_error *error)
{
    const struct dk_remote_request *request = &call->request;
    struct dk_remote_reply reply = {.rows = request->rows,
                                    .n = request->model->n,
                                    .dtype = request->out_dtype,
                                    .timing = {NAN, NAN, NAN, (double)response->round_trip_ns / 1000.0}};
    reply.y_bytes = (size_t)(reply.rows * reply.n) * dk_dtype_bytes(reply.dtype);
    dk_status status = request->is_json ? take_json_answer(response, request, &reply, error)
                                        : take_raw_answer(client, response, &reply, error);
    dk_http_response_deinit(response);
    if (status != DK_OK) {
        dk_remote_reply_deinit(&reply);
        return status;
    }
    *out = reply;
    return DK_OK;
}

dk_status dk_remote_matmul(struct dk_http_client *client, const struct dk_remote_call *call,
                           struct dk_remote_reply *out, struct dk_error *error)
{
    struct dk_http_request http;
    struct dk_http_response response;
    dk_status status = dk_remote_matmul_request(call, &http, error);
    if (status == DK_OK)
        status = dk_http_client_send(client, &http, &response, error);
    if (status != DK_OK)
        return status;
    return dk_remote_matmul_reply(client, call, &response, out, error);
}

void dk_remote_reply_deinit(struct dk_remote_reply *reply)
{
    free(reply->y);
    reply->y = NULL;
}
