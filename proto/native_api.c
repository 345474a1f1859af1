/* native_api.c: what a /v1/matmul request says, from a JSON skeleton or from query parameters. */
#include "proto/native_api.h"

#include <cjson/cJSON.h>
#include <string.h>

#include "proto/utf8.h"

const char *const dk_native_paths[DK_NATIVE_TENSOR_COUNT] = {
    [DK_NATIVE_X] = "x", [DK_NATIVE_A] = "a", [DK_NATIVE_B] = "b", [DK_NATIVE_BIAS] = "bias"};

enum { VALUE_SHOWN = 80 }; /* bytes of a value in a message */

bool dk_model_name_is_valid(const char *name, size_t length)
{
    if (length == 0 || length > DK_MODEL_NAME_BYTES) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        char c = name[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        bool is_other = (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
        if (!is_letter && !is_other) {
            return false;
        }
    }
    return !(length <= 2 && memcmp(name, "..", length) == 0);
}

bool dk_request_id_is_valid(const char *id, size_t length, size_t size)
{
    if (length == 0 || length >= size) {
        return false;
    }
    for (size_t i = 0; i < length;) {
        size_t sequence = dk_utf8_sequence(id + i, length - i);
        bool is_c1 = (unsigned char)id[i] == 0xC2 && sequence == 2 && (unsigned char)id[i + 1] < 0xA0;
        if (sequence == 0 || is_c1 || (unsigned char)id[i] < 0x20 || id[i] == 0x7F) {
            return false;
        }
        i += sequence;
    }
    return true;
}

/* Setters: `value` is a string of the request. Each names the member, what is expected, and the value. */

static dk_status set_model(struct dk_matmul_request *request, const char *value, struct dk_error *error)
{
    size_t length = strlen(value);
    if (!dk_model_name_is_valid(value, length)) {
        return dk_fail(error, DK_BAD_VALUE, "model: expected 1 to %d of [A-Za-z0-9._-], found \"%.*s\"",
                       (int)DK_MODEL_NAME_BYTES, VALUE_SHOWN, value);
    }
    memcpy(request->model, value, length + 1);
    request->has_model = true;
    return DK_OK;
}

static dk_status parse_float_dtype(const char *name, const char *value, dk_dtype *out, struct dk_error *error)
{
    dk_dtype dtype;
    if (dk_dtype_parse(value, strlen(value), DK_DIALECT_NATIVE, &dtype) != DK_OK ||
        !dk_dtype_is_float(dtype)) {
        return dk_fail(error, DK_BAD_DTYPE, "%s: expected fp32, bf16 or fp16, found \"%.*s\"", name,
                       VALUE_SHOWN, value);
    }
    *out = dtype;
    return DK_OK;
}

static dk_status set_dtype(struct dk_matmul_request *request, const char *value, struct dk_error *error)
{
    dk_status status = parse_float_dtype("dtype", value, &request->dtype, error);
    request->has_dtype = status == DK_OK;
    return status;
}

static dk_status set_out_dtype(struct dk_matmul_request *request, const char *value, struct dk_error *error)
{
    dk_status status = parse_float_dtype("out_dtype", value, &request->out_dtype, error);
    request->has_out_dtype = status == DK_OK;
    return status;
}

static dk_status set_epilogue(struct dk_matmul_request *request, const char *value, struct dk_error *error)
{
    if (dk_epilogue_parse(value, strlen(value), &request->epilogue) != DK_OK) {
        return dk_fail(error, DK_BAD_VALUE, "epilogue: expected none, relu or sigmoid, found \"%.*s\"",
                       VALUE_SHOWN, value);
    }
    request->has_epilogue = true;
    return DK_OK;
}

static dk_status set_b_layout(struct dk_matmul_request *request, const char *value, struct dk_error *error)
{
    if (dk_layout_parse(value, strlen(value), &request->b_layout) != DK_OK) {
        return dk_fail(error, DK_BAD_VALUE, "b_layout: expected kn or nk, found \"%.*s\"", VALUE_SHOWN,
                       value);
    }
    request->has_b_layout = true;
    return DK_OK;
}

static dk_status set_id(struct dk_matmul_request *request, const char *value, struct dk_error *error)
{
    size_t length = strlen(value);
    if (!dk_request_id_is_valid(value, length, sizeof request->id)) {
        return dk_fail(error, DK_BAD_VALUE,
                       "id: expected 1 to %zu bytes of UTF-8 without control characters, found \"%.*s\"",
                       sizeof request->id - 1, VALUE_SHOWN, value);
    }
    memcpy(request->id, value, length + 1);
    return DK_OK;
}

static const struct {
    const char *name;
    dk_status (*set)(struct dk_matmul_request *request, const char *value, struct dk_error *error);
    bool is_query; /* also a query parameter of a raw request */
} members[] = {
    {"model", set_model, true},       {"dtype", set_dtype, true},        {"out_dtype", set_out_dtype, true},
    {"epilogue", set_epilogue, true}, {"b_layout", set_b_layout, false}, {"id", set_id, true},
};
enum { MEMBER_COUNT = sizeof members / sizeof members[0] };

static size_t find_member(const char *name)
{
    size_t i = 0;
    while (i < MEMBER_COUNT && strcmp(members[i].name, name) != 0) {
        i++;
    }
    return i;
}

/* Index in dk_native_paths, or DK_NATIVE_TENSOR_COUNT. */
static unsigned find_tensor(const char *name)
{
    unsigned i = 0;
    while (i < DK_NATIVE_TENSOR_COUNT && strcmp(dk_native_paths[i], name) != 0) {
        i++;
    }
    return i;
}

/* The value as it goes into a message; not cJSON's printer, which asks the locale. */
static void describe(const cJSON *item, struct dk_json_text *text)
{
    if (cJSON_IsString(item)) {
        dk_json_text_string(text, item->valuestring, strlen(item->valuestring));
    } else if (cJSON_IsNumber(item)) {
        dk_json_text_double(text, item->valuedouble);
    } else if (cJSON_IsBool(item)) {
        dk_json_text_raw(text, cJSON_IsTrue(item) ? "true" : "false");
    } else {
        dk_json_text_raw(text, cJSON_IsNull(item) ? "null" : cJSON_IsObject(item) ? "an object" : "an array");
    }
}

static dk_status fail_with_item(struct dk_error *error, dk_status status, const cJSON *item,
                                const char *expected)
{
    struct dk_json_text text = {0};
    describe(item, &text);
    dk_status result = dk_fail(error, status, "%.64s: expected %s, found %.*s", item->string, expected,
                               VALUE_SHOWN, text.failed ? "something else" : text.data);
    dk_json_text_free(&text);
    return result;
}

static dk_status parse_member(struct dk_matmul_request *request, const cJSON *item, unsigned *tensors,
                              struct dk_error *error)
{
    unsigned tensor = find_tensor(item->string);
    if (tensor != DK_NATIVE_TENSOR_COUNT) {
        *tensors |= 1U << tensor;
        /* The reader put null where it took an array. */
        return cJSON_IsNull(item) ? DK_OK : fail_with_item(error, DK_BAD_SHAPE, item, "an array of numbers");
    }
    size_t member = find_member(item->string);
    if (member == MEMBER_COUNT) {
        return dk_fail(error, DK_BAD_REQUEST,
                       "unknown member \"%.*s\"; known are model, x, a, b, bias, dtype, out_dtype, epilogue, "
                       "b_layout and id",
                       VALUE_SHOWN, item->string);
    }
    if (!cJSON_IsString(item)) {
        return fail_with_item(error, DK_BAD_REQUEST, item, "a string");
    }
    return members[member].set(request, item->valuestring, error);
}

/* Either model and x, or a and b. */
static dk_status check_form(const struct dk_matmul_request *request, unsigned tensors, struct dk_error *error)
{
    bool has_x = (tensors >> DK_NATIVE_X & 1U) != 0;
    bool has_a = (tensors >> DK_NATIVE_A & 1U) != 0;
    bool has_b = (tensors >> DK_NATIVE_B & 1U) != 0;
    if (request->has_model) {
        if (has_a || has_b || request->has_b_layout) {
            return dk_fail(error, DK_BAD_REQUEST, "%s belongs to a product without model, found model \"%s\"",
                           has_a   ? "a"
                           : has_b ? "b"
                                   : "b_layout",
                           request->model);
        }
        return has_x ? DK_OK
                     : dk_fail(error, DK_BAD_REQUEST, "x is missing for model \"%s\"", request->model);
    }
    if (has_x) {
        return dk_fail(error, DK_BAD_REQUEST, "model is missing: x is multiplied with a model's weights");
    }
    if (!has_a && !has_b) {
        return dk_fail(error, DK_BAD_REQUEST, "neither model and x nor a and b are given");
    }
    if (!has_a || !has_b) {
        return dk_fail(error, DK_BAD_REQUEST, "%s is missing: without a model a and b are needed",
                       has_a ? "b" : "a");
    }
    return DK_OK;
}

dk_status dk_matmul_request_parse(const char *skeleton, size_t length, struct dk_matmul_request *out,
                                  struct dk_error *error)
{
    cJSON *root = cJSON_ParseWithLength(skeleton, length);
    if (root == NULL) {
        /* The reader has checked the text already. */
        return dk_fail(error, DK_NO_MEMORY, "no memory for the structure of %zu bytes of JSON", length);
    }
    struct dk_matmul_request request = {0};
    unsigned tensors = 0;
    dk_status status = DK_OK;
    const cJSON *item;
    cJSON_ArrayForEach(item, root)
    {
        status = parse_member(&request, item, &tensors, error);
        if (status != DK_OK) {
            break;
        }
    }
    cJSON_Delete(root);
    if (status == DK_OK) {
        status = check_form(&request, tensors, error);
    }
    if (status == DK_OK) {
        *out = request;
    }
    return status;
}

static bool is_set(const struct dk_matmul_request *request, size_t member)
{
    const bool flags[MEMBER_COUNT] = {request->has_model,    request->has_dtype,    request->has_out_dtype,
                                      request->has_epilogue, request->has_b_layout, request->id[0] != '\0'};
    return flags[member];
}

dk_status dk_matmul_request_set(struct dk_matmul_request *request, const char *name, const char *value,
                                struct dk_error *error)
{
    size_t member = find_member(name);
    if (member == MEMBER_COUNT || !members[member].is_query) {
        return dk_fail(error, DK_BAD_REQUEST,
                       "unknown parameter \"%.*s\"; known are model, dtype, out_dtype, epilogue and id",
                       VALUE_SHOWN, name);
    }
    if (value == NULL) {
        return dk_fail(error, DK_BAD_REQUEST, "parameter \"%s\" has no value", name);
    }
    if (is_set(request, member)) {
        return dk_fail(error, DK_BAD_REQUEST, "parameter \"%s\" is given twice, then as \"%.*s\"", name,
                       VALUE_SHOWN, value);
    }
    return members[member].set(request, value, error);
}

dk_status dk_matmul_rows(const struct dk_json_tensor *tensor, uint64_t k, uint64_t *rows,
                         struct dk_error *error)
{
    const char *name = dk_native_paths[tensor->path_index];
    if (tensor->rank == 1 && tensor->shape[0] == 0) {
        *rows = 0;
        return DK_OK;
    }
    if (tensor->rank > 2) {
        return dk_fail(error, DK_BAD_SHAPE,
                       "%s: expected a list of rows of %llu numbers, found %u levels of lists", name,
                       (unsigned long long)k, (unsigned)tensor->rank);
    }
    uint64_t found = tensor->shape[tensor->rank - 1];
    if (found != k) {
        return dk_fail(error, DK_BAD_SHAPE, "%s: expected %llu numbers in a row, found %llu", name,
                       (unsigned long long)k, (unsigned long long)found);
    }
    *rows = tensor->rank == 1 ? 1 : tensor->shape[0];
    return DK_OK;
}
