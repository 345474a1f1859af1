/* oip_request.c: the top level of an infer request. */
#include "proto/oip_request.h"

#include <string.h>

#include "proto/gemm.h"
#include "proto/json_cursor.h"
#include "proto/json_string.h"
#include "proto/oip_tensor.h"

_Static_assert(DK_OIP_MAX_INPUTS == 8 && DK_OIP_MAX_OUTPUTS == 8, "said in messages");

const char *const dk_oip_paths[DK_OIP_PATH_COUNT] = {"inputs[].data"};

struct request_context {
    struct dk_oip_request request;
    const struct dk_json_reader *reader;
    bool has_inputs;
};

static dk_status read_id(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    struct dk_oip_request *request = &((struct request_context *)context)->request;
    dk_status status = dk_oip_read_string(member, request->id, sizeof request->id, error);
    if (status == DK_OK && request->id[0] != '\0' &&
        !dk_request_id_is_valid(request->id, strlen(request->id), sizeof request->id)) {
        return dk_oip_fail(member, DK_BAD_VALUE, "a string without control characters", error);
    }
    request->has_id = true;
    return status;
}

static dk_status read_priority(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    return dk_oip_read_u64(member, &((struct request_context *)context)->request.priority, error);
}

static dk_status read_timeout(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    return dk_oip_read_u64(member, &((struct request_context *)context)->request.timeout_us, error);
}

static dk_status read_binary_output(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    return dk_oip_read_bool(member, &((struct request_context *)context)->request.is_output_binary, error);
}

static dk_status read_output_datatype(void *context, const struct dk_oip_member *member,
                                      struct dk_error *error)
{
    struct dk_oip_request *request = &((struct request_context *)context)->request;
    request->has_output_dtype = true;
    return dk_oip_read_dtype(member, &request->output_dtype, error);
}

static const struct dk_oip_field parameter_fields[] = {{"priority", read_priority},
                                                       {"timeout", read_timeout},
                                                       {"binary_data_output", read_binary_output},
                                                       {"output_datatype", read_output_datatype}};

static dk_status read_parameters(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    return dk_oip_read_object(member, parameter_fields, sizeof parameter_fields / sizeof parameter_fields[0],
                              dk_oip_read_other_parameter, context, error);
}

static dk_status fail_duplicate(const struct dk_oip_member *member, const char *name, size_t first,
                                struct dk_error *error)
{
    char path[DK_OIP_PATH_BYTES];
    return dk_fail(error, DK_BAD_REQUEST, "%s: the name \"%s\" is used already by element %zu",
                   dk_oip_member_path(member, path), name, first);
}

static dk_status read_input(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    struct request_context *reading = context;
    struct dk_oip_request *request = &reading->request;
    if (member->index == DK_OIP_MAX_INPUTS) {
        return dk_oip_fail(member->parent, DK_BAD_REQUEST, "at most 8 inputs", error);
    }
    struct dk_oip_input *input = &request->inputs[member->index];
    dk_status status = dk_oip_input_parse(member, reading->reader, input, error);
    if (status != DK_OK) {
        return status;
    }
    for (size_t i = 0; i < member->index; i++) {
        if (strcmp(request->inputs[i].name, input->name) == 0) {
            return fail_duplicate(member, input->name, i, error);
        }
    }
    request->input_count++;
    if (input->source != DK_OIP_SOURCE_BINARY) {
        return DK_OK;
    }
    input->binary_offset = request->binary_bytes;
    if (!dk_size_add(request->binary_bytes, input->bytes, &request->binary_bytes)) {
        return dk_oip_fail(member->parent, DK_BAD_SHAPE, "binary tensors below 2^64 bytes", error);
    }
    return DK_OK;
}

static dk_status read_inputs(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    struct request_context *reading = context;
    reading->has_inputs = true;
    return dk_oip_read_array(member, "an array of inputs", read_input, context, error);
}

static dk_status read_output(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    struct dk_oip_request *request = &((struct request_context *)context)->request;
    if (member->index == DK_OIP_MAX_OUTPUTS) {
        return dk_oip_fail(member->parent, DK_BAD_REQUEST, "at most 8 outputs", error);
    }
    struct dk_oip_requested_output *output = &request->outputs[member->index];
    dk_status status = dk_oip_output_parse(member, output, error);
    if (status != DK_OK) {
        return status;
    }
    for (size_t i = 0; i < member->index; i++) {
        if (strcmp(request->outputs[i].name, output->name) == 0) {
            return fail_duplicate(member, output->name, i, error);
        }
    }
    request->output_count++;
    return DK_OK;
}

static dk_status read_outputs(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    return dk_oip_read_array(member, "an array of outputs", read_output, context, error);
}

static const struct dk_oip_field fields[] = {
    {"id", read_id}, {"parameters", read_parameters}, {"inputs", read_inputs}, {"outputs", read_outputs}};

dk_status dk_oip_request_parse(struct dk_json_reader *reader, struct dk_oip_request *out,
                               struct dk_error *error)
{
    const char *skeleton;
    size_t length;
    dk_status status = dk_json_reader_finish(reader, &skeleton, &length, error);
    if (status != DK_OK) {
        return status;
    }
    struct dk_oip_member body = dk_oip_body(skeleton, length);
    struct request_context reading = {.reader = reader};
    status = dk_oip_read_object(&body, fields, sizeof fields / sizeof fields[0], NULL, &reading, error);
    if (status != DK_OK) {
        return status;
    }
    if (!reading.has_inputs) {
        return dk_oip_fail_missing(&body, "inputs", error);
    }
    if (reading.request.input_count == 0) {
        return dk_fail(error, DK_BAD_REQUEST, "inputs: expected at least one input, found none");
    }
    *out = reading.request;
    return DK_OK;
}

/* Walk `cursor`, behind the bracket of an object that may be cut off, to the value of `key`. */
static bool find_member(struct dk_json_cursor *cursor, const char *key)
{
    enum { MAX_RAW_BYTES = 64 };
    const char *raw;
    size_t raw_length;
    while (dk_json_cursor_string(cursor, &raw, &raw_length) && dk_json_cursor_take(cursor, ':')) {
        char decoded[MAX_RAW_BYTES];
        size_t length = raw_length <= sizeof decoded ? dk_json_string_decode(raw, raw_length, decoded) : 0;
        if (length == strlen(key) && memcmp(decoded, key, length) == 0) {
            return true;
        }
        if (!dk_json_cursor_skip(cursor) || !dk_json_cursor_take(cursor, ',')) {
            return false;
        }
    }
    return false;
}

bool dk_oip_peek_datatype(const struct dk_json_reader *reader, uint32_t index, dk_dtype *out)
{
    size_t length;
    const char *skeleton = dk_json_reader_peek_skeleton(reader, &length);
    if (length == 0) {
        return false; /* the text may be NULL */
    }
    struct dk_json_cursor cursor = {skeleton, skeleton + length};
    if (!dk_json_cursor_take(&cursor, '{') || !find_member(&cursor, "inputs") ||
        !dk_json_cursor_take(&cursor, '[')) {
        return false;
    }
    for (uint32_t i = 0; i < index; i++) {
        if (!dk_json_cursor_skip(&cursor) || !dk_json_cursor_take(&cursor, ',')) {
            return false;
        }
    }
    const char *raw;
    size_t raw_length;
    dk_dtype dtype;
    if (!dk_json_cursor_take(&cursor, '{') || !find_member(&cursor, "datatype") ||
        !dk_json_cursor_string(&cursor, &raw, &raw_length) ||
        dk_dtype_parse(raw, raw_length, DK_DIALECT_OIP, &dtype) != DK_OK || !dk_dtype_is_float(dtype)) {
        return false;
    }
    *out = dtype;
    return true;
}
