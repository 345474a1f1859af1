/* remote.c: the lists of the daemon: GET a route, find a model. */
#include "client/remote.h"

#include <stdio.h>
#include <string.h>

enum { MAX_LIST_BYTES = 64 * 1024 * 1024 };

dk_status dk_remote_get(struct dk_http_client *client, const char *path, cJSON **out, struct dk_error *error)
{
    const struct dk_http_request request = {
        .method = "GET", .path = path, .accept = "application/json", .max_answer_bytes = MAX_LIST_BYTES};
    struct dk_http_response response;
    dk_status status = dk_http_client_send(client, &request, &response, error);
    if (status != DK_OK)
        return status;
    const char *end;
    cJSON *tree = cJSON_ParseWithLengthOpts(response.body, response.body_bytes + 1, &end, true);
    dk_http_response_deinit(&response);
    if (!cJSON_IsObject(tree)) {
        cJSON_Delete(tree);
        return dk_fail(error, DK_BAD_JSON, "the answer to GET %s is not a JSON object; is this decomposekd?",
                       path);
    }
    *out = tree;
    return DK_OK;
}

/* True when `item` is a whole number that binary64 holds exactly. */
static bool read_extent(const cJSON *item, uint64_t max, uint64_t *out)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 1 && item->valuedouble <= (double)max) ||
        item->valuedouble != (double)(uint64_t)item->valuedouble)
        return false;
    *out = (uint64_t)item->valuedouble;
    return true;
}

static dk_status read_model(const cJSON *entry, const char *name, struct dk_remote_model *out,
                            struct dk_error *error)
{
    struct dk_remote_model model = {0};
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(entry, "dtype");
    if (!read_extent(cJSON_GetObjectItemCaseSensitive(entry, "n"), DK_MAX_N, &model.n) ||
        !read_extent(cJSON_GetObjectItemCaseSensitive(entry, "k"), DK_MAX_K, &model.k))
        return dk_fail(error, DK_BAD_JSON, "the server's entry for model '%s' has no usable n and k", name);
    if (!cJSON_IsString(dtype) || dk_dtype_parse(dtype->valuestring, strlen(dtype->valuestring),
                                                 DK_DIALECT_NATIVE, &model.dtype) != DK_OK)
        return dk_fail(error, DK_BAD_JSON, "the server's entry for model '%s' has no usable dtype", name);
    strcpy(model.name, name); /* the caller checked the length */
    *out = model;
    return DK_OK;
}

static dk_status fail_unknown_model(const cJSON *models, const char *name, struct dk_error *error)
{
    char names[200] = "";
    size_t length = 0;
    const cJSON *entry;
    cJSON_ArrayForEach(entry, models)
    {
        const cJSON *other = cJSON_GetObjectItemCaseSensitive(entry, "name");
        if (!cJSON_IsString(other))
            continue;
        int put =
            snprintf(names + length, sizeof names - length, "%s%s", length ? ", " : "", other->valuestring);
        if (put < 0 || (size_t)put >= sizeof names - length) {
            strcpy(names + (length < sizeof names - 6 ? length : sizeof names - 6), ", ...");
            break;
        }
        length += (size_t)put;
    }
    return dk_fail(error, DK_NOT_FOUND, "no model '%s'; served: %s", name, names[0] ? names : "none");
}

dk_status dk_remote_find_model(struct dk_http_client *client, const char *name, struct dk_remote_model *out,
                               struct dk_error *error)
{
    if (!dk_model_name_is_valid(name, strlen(name)))
        return dk_fail(error, DK_BAD_VALUE, "model name '%s' is not [A-Za-z0-9._-]{1,64}", name);
    cJSON *answer;
    dk_status status = dk_remote_get(client, "/v1/models", &answer, error);
    if (status != DK_OK)
        return status;
    const cJSON *models = cJSON_GetObjectItemCaseSensitive(answer, "models"), *entry, *found = NULL;
    cJSON_ArrayForEach(entry, models)
    {
        const cJSON *other = cJSON_GetObjectItemCaseSensitive(entry, "name");
        if (cJSON_IsString(other) && strcmp(other->valuestring, name) == 0)
            found = entry;
    }
    status = found ? read_model(found, name, out, error) : fail_unknown_model(models, name, error);
    cJSON_Delete(answer);
    return status;
}
