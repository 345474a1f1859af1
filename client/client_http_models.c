/* client_http_models.c: GET /v1/models as descriptions of models. */
#include <string.h>

#include "client/client_http.h"

static uint32_t left_ms(uint64_t deadline_ns)
{
    uint64_t now_ns = dk_client_now_ns();
    uint64_t ms = deadline_ns > now_ns ? (deadline_ns - now_ns) / 1000000 : 0;
    return ms == 0 ? 1 : ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

static bool read_count(const cJSON *object, const char *name, uint64_t max, uint64_t *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 1 && item->valuedouble <= (double)max) ||
        item->valuedouble != (double)(uint64_t)item->valuedouble)
        return false;
    *out = (uint64_t)item->valuedouble;
    return true;
}

static dk_status read_model(const cJSON *entry, struct dk_client_model_info *out, struct dk_error *error)
{
    struct dk_client_model_info info = {0};
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(entry, "name");
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(entry, "dtype");
    const cJSON *epilogue = cJSON_GetObjectItemCaseSensitive(entry, "epilogue");
    if (!cJSON_IsString(name) || !dk_model_name_is_valid(name->valuestring, strlen(name->valuestring)))
        return dk_fail(error, DK_BAD_JSON, "the server lists a model without a usable name");
    strcpy(info.name, name->valuestring);
    if (!read_count(entry, "n", DK_MAX_N, &info.n) || !read_count(entry, "k", DK_MAX_K, &info.k) ||
        !cJSON_IsString(dtype) || !cJSON_IsString(epilogue) ||
        dk_dtype_parse(dtype->valuestring, strlen(dtype->valuestring), DK_DIALECT_NATIVE, &info.dtype) !=
            DK_OK ||
        dk_epilogue_parse(epilogue->valuestring, strlen(epilogue->valuestring), &info.epilogue) != DK_OK)
        return dk_fail(error, DK_BAD_JSON,
                       "the server's entry for model '%s' has no usable n, k, dtype, epilogue", info.name);
    info.has_bias = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(entry, "has_bias"));
    read_count(entry, "version", UINT64_C(1) << 53, &info.version); /* 0 when the server does not say */
    *out = info;
    return DK_OK;
}

dk_status dk_http_list_models(struct dk_client *client, uint64_t deadline_ns,
                              struct dk_client_model_info *out, size_t capacity, size_t *out_count,
                              struct dk_error *error)
{
    struct dk_http_session *session = client->session;
    dk_http_client_set_timeout(session->control, left_ms(deadline_ns));
    cJSON *answer;
    dk_status status = dk_remote_get(session->control, "/v1/models", &answer, error);
    if (status != DK_OK)
        return status;
    const cJSON *models = cJSON_GetObjectItemCaseSensitive(answer, "models"), *entry;
    if (!cJSON_IsArray(models))
        status =
            dk_fail(error, DK_BAD_JSON, "the answer to GET /v1/models has no list; is this decomposekd?");
    size_t count = 0;
    cJSON_ArrayForEach(entry, models)
    {
        struct dk_client_model_info info;
        status = read_model(entry, &info, error);
        if (status != DK_OK)
            break;
        if (count < capacity)
            out[count] = info;
        count++;
    }
    cJSON_Delete(answer);
    if (status == DK_OK)
        *out_count = count;
    return status;
}

dk_status dk_http_find_model(struct dk_client *client, uint64_t deadline_ns, const char *name,
                             struct dk_client_model_info *out, uint64_t *out_remote_id,
                             struct dk_error *error)
{
    struct dk_http_session *session = client->session;
    dk_http_client_set_timeout(session->control, left_ms(deadline_ns));
    cJSON *answer;
    dk_status status = dk_remote_get(session->control, "/v1/models", &answer, error);
    if (status != DK_OK)
        return status;
    const cJSON *entry, *found = NULL;
    cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(answer, "models"))
    {
        const cJSON *other = cJSON_GetObjectItemCaseSensitive(entry, "name");
        if (cJSON_IsString(other) && strcmp(other->valuestring, name) == 0)
            found = entry;
    }
    status = found ? read_model(found, out, error)
                   : dk_fail(error, DK_NOT_FOUND, "the daemon has no model '%s'", name);
    cJSON_Delete(answer);
    if (status == DK_OK)
        *out_remote_id = 0; /* HTTP goes by names */
    return status;
}
