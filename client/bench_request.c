/* bench_request.c: /v1 and /v2 requests as prepared bytes. */
#include "client/bench_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/json_add.h"
#include "client/random.h"

void *dk_bench_make_rows(uint64_t rows, uint64_t k, dk_dtype dtype, uint64_t seed)
{
    size_t count, bytes;
    if (!dk_size_mul(rows, k, &count) || !dk_size_mul(count, dk_dtype_bytes(dtype), &bytes))
        return NULL;
    char *data = malloc(bytes > 0 ? bytes : 1);
    struct dk_random random;
    dk_random_init(&random, seed, 0);
    for (size_t i = 0; data && i < count; i++) {
        float value = (float)dk_random_normal(&random);
        dk_convert_from_float(&value, data + i * dk_dtype_bytes(dtype), dtype, 1);
    }
    return data;
}

/* --- tensor names -------------------------------------------------------------------------------------- */

static dk_status take_name(const cJSON *list, const char *kind, const char *model, char out[65],
                           struct dk_error *error)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(list, 0), "name");
    if (!cJSON_IsString(name) || strlen(name->valuestring) == 0 || strlen(name->valuestring) > 64)
        return dk_fail(error, DK_BAD_JSON, "the metadata of model '%s' names no %s", model, kind);
    memcpy(out, name->valuestring, strlen(name->valuestring) + 1);
    return DK_OK;
}

dk_status dk_bench_tensor_names_get(struct dk_http_client *client, const char *model,
                                    struct dk_bench_tensor_names *out, struct dk_error *error)
{
    char path[128];
    cJSON *answer;
    (void)snprintf(path, sizeof path, "/v2/models/%s", model);
    dk_status status = dk_remote_get(client, path, &answer, error);
    if (status != DK_OK)
        return status;
    struct dk_bench_tensor_names names = {0};
    const cJSON *inputs = cJSON_GetObjectItemCaseSensitive(answer, "inputs");
    const cJSON *outputs = cJSON_GetObjectItemCaseSensitive(answer, "outputs");
    if (cJSON_GetArraySize(inputs) != 1)
        status = dk_fail(error, DK_UNSUPPORTED, "model '%s' has %d inputs, expected 1", model,
                         cJSON_GetArraySize(inputs));
    else
        status = take_name(inputs, "input", model, names.input, error);
    if (status == DK_OK)
        status = take_name(outputs, "output", model, names.output, error);
    if (status == DK_OK)
        *out = names;
    cJSON_Delete(answer);
    return status;
}

/* --- requests ------------------------------------------------------------------------------------------ */

/* The JSON that stands before the binary tensor. */
static void make_inference_header(const struct dk_remote_model *model,
                                  const struct dk_bench_tensor_names *names, uint64_t rows, dk_dtype dtype,
                                  uint64_t body_bytes, struct dk_json_text *text)
{
    dk_json_add_text(text, "{\"inputs\":[{\"name\":", names->input);
    dk_json_add_u64(text, ",\"shape\":[", rows);
    dk_json_add_u64(text, ",", model->k);
    dk_json_add_text(text, "],\"datatype\":", dk_dtype_name(dtype, DK_DIALECT_OIP));
    dk_json_add_u64(text, ",\"parameters\":{\"binary_data_size\":", body_bytes);
    dk_json_add_text(text, "}}],\"outputs\":[{\"name\":", names->output);
    dk_json_text_raw(text, ",\"parameters\":{\"binary_data\":true}}]}");
}

static void begin_head(struct dk_json_text *head, const struct dk_load_http_target *target)
{
    dk_json_text_raw(head, " HTTP/1.1\r\nHost: ");
    dk_json_text_raw(head, target->host);
    dk_json_text_raw(head, "\r\nUser-Agent: decomposek/" DK_VERSION
                           "\r\nContent-Type: application/octet-stream\r\n");
    if (target->api_key) {
        dk_json_text_raw(head, "Authorization: Bearer ");
        dk_json_text_raw(head, target->api_key);
        dk_json_text_raw(head, "\r\n");
    }
}

static void make_v1_head(struct dk_json_text *head, const struct dk_load_http_target *target,
                         const struct dk_remote_model *model, dk_dtype dtype)
{
    dk_json_text_raw(head, "POST ");
    dk_json_text_raw(head, target->prefix);
    dk_json_text_raw(head, "/v1/matmul?model=");
    dk_json_text_raw(head, model->name);
    dk_json_text_raw(head, "&dtype=");
    dk_json_text_raw(head, dk_dtype_name(dtype, DK_DIALECT_NATIVE));
    dk_json_text_raw(head, "&out_dtype=fp32");
    begin_head(head, target);
    dk_json_text_raw(head, "Accept: application/octet-stream\r\n");
}

static void make_v2_head(struct dk_json_text *head, const struct dk_load_http_target *target,
                         const struct dk_remote_model *model, size_t json_bytes)
{
    dk_json_text_raw(head, "POST ");
    dk_json_text_raw(head, target->prefix);
    dk_json_text_raw(head, "/v2/models/");
    dk_json_text_raw(head, model->name);
    dk_json_text_raw(head, "/infer");
    begin_head(head, target);
    dk_json_text_raw(head, "Inference-Header-Content-Length: ");
    dk_json_text_u64(head, json_bytes);
    dk_json_text_raw(head, "\r\n");
}

dk_status dk_bench_request_init(const struct dk_load_http_target *target, enum dk_bench_protocol protocol,
                                const struct dk_remote_model *model,
                                const struct dk_bench_tensor_names *names, uint64_t rows, dk_dtype dtype,
                                const void *x, struct dk_bench_request *out, struct dk_error *error)
{
    struct dk_json_text head = {0}, json = {0};
    size_t x_count, x_bytes, y_count, y_bytes;
    dk_status status = DK_NO_MEMORY;
    if (dk_size_mul(rows, model->k, &x_count) && dk_size_mul(x_count, dk_dtype_bytes(dtype), &x_bytes) &&
        dk_size_mul(rows, model->n, &y_count) && dk_size_mul(y_count, sizeof(float), &y_bytes)) {
        if (protocol == DK_BENCH_V2) {
            make_inference_header(model, names, rows, dtype, x_bytes, &json);
            make_v2_head(&head, target, model, json.length);
        } else {
            make_v1_head(&head, target, model, dtype);
        }
        dk_json_add_u64(&head, "Content-Length: ", json.length + x_bytes);
        dk_json_text_raw(&head, "\r\n\r\n");
        if (json.length > 0)
            dk_json_text_raw(&head, json.data);
        char *bytes = head.failed || json.failed ? NULL : malloc(head.length + x_bytes);
        if (bytes) {
            memcpy(bytes, head.data, head.length);
            memcpy(bytes + head.length, x, x_bytes);
            *out = (struct dk_bench_request){bytes, head.length + x_bytes, y_bytes};
            status = DK_OK;
        }
    }
    dk_json_text_free(&head);
    dk_json_text_free(&json);
    if (status != DK_OK)
        dk_fail(error, status, "no memory for a request of %llu rows", (unsigned long long)rows);
    return status;
}

void dk_bench_request_deinit(struct dk_bench_request *request)
{
    free(request->bytes);
    *request = (struct dk_bench_request){0};
}
