/* oip_input.c: one input tensor of an infer request: name, type, shape, and exactly one source of its data.
 */
#include "proto/oip_tensor.h"

#include <stdio.h>
#include <string.h>

#include "proto/gemm.h"

_Static_assert((int)DK_OIP_MAX_RANK == 8 && (int)DK_JSON_MAX_TENSOR_RANK == 8, "said in messages");

enum { SHAPE_TEXT_BYTES = 192 }; /* 8 numbers of 20 digits */

struct input_context {
    struct dk_oip_input *input;
    struct dk_oip_parameters parameters;
    const struct dk_json_tensor *tensor; /* the JSON data; NULL: none */
    bool has_name, has_dtype, has_shape;
};

dk_status dk_oip_read_dtype(const struct dk_oip_member *member, dk_dtype *out, struct dk_error *error)
{
    char name[DK_OIP_MAX_STRING_BYTES + 1];
    dk_dtype dtype;
    dk_status status = dk_oip_read_string(member, name, sizeof name, error);
    if (status != DK_OK) {
        return status;
    }
    if (dk_dtype_parse(name, strlen(name), DK_DIALECT_OIP, &dtype) != DK_OK || !dk_dtype_is_float(dtype)) {
        return dk_oip_fail(member, DK_BAD_DTYPE, "\"FP32\", \"BF16\" or \"FP16\"", error);
    }
    *out = dtype;
    return DK_OK;
}

static dk_status read_name(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    struct input_context *reading = context;
    reading->has_name = true;
    return dk_oip_read_string(member, reading->input->name, sizeof reading->input->name, error);
}

static dk_status read_datatype(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    struct input_context *reading = context;
    reading->has_dtype = true;
    return dk_oip_read_dtype(member, &reading->input->dtype, error);
}

static dk_status read_dimension(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    struct dk_oip_input *input = context;
    if (member->index == DK_OIP_MAX_RANK) {
        return dk_oip_fail(member->parent, DK_BAD_SHAPE, "at most 8 dimensions", error);
    }
    input->rank++;
    return dk_oip_read_u64(member, &input->shape[member->index], error);
}

static dk_status read_shape(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    struct input_context *reading = context;
    reading->has_shape = true;
    dk_status status =
        dk_oip_read_array(member, "an array of unsigned integers", read_dimension, reading->input, error);
    if (status == DK_OK && reading->input->rank == 0) {
        char path[DK_OIP_PATH_BYTES];
        return dk_fail(error, DK_BAD_SHAPE, "%s: expected 1 to 8 dimensions, found 0",
                       dk_oip_member_path(member, path));
    }
    return status;
}

static dk_status read_parameters(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    struct input_context *reading = context;
    return dk_oip_input_parameters(member, &reading->parameters, error);
}

/* The reader took the array away and left null; any other value is not data. */
static dk_status read_data(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    const struct input_context *reading = context;
    if (reading->tensor != NULL) {
        return DK_OK;
    }
    return dk_oip_fail(member, DK_BAD_SHAPE, "an array of numbers", error);
}

static const struct dk_oip_field fields[] = {{"name", read_name},
                                             {"datatype", read_datatype},
                                             {"shape", read_shape},
                                             {"parameters", read_parameters},
                                             {"data", read_data}};

static const struct dk_json_tensor *find_data(const struct dk_json_reader *reader, size_t index)
{
    size_t count = dk_json_reader_tensor_count(reader);
    for (size_t i = 0; i < count; i++) {
        const struct dk_json_tensor *tensor = dk_json_reader_tensor(reader, i);
        if (tensor->indices[0] == index) {
            return tensor;
        }
    }
    return NULL;
}

static const char *shape_text(const uint64_t *shape, uint32_t rank, char out[SHAPE_TEXT_BYTES])
{
    size_t length = 0;
    for (uint32_t i = 0; i < rank; i++) {
        length += (size_t)snprintf(out + length, SHAPE_TEXT_BYTES - length, "%c%llu", i == 0 ? '[' : ',',
                                   (unsigned long long)shape[i]);
    }
    (void)snprintf(out + length, SHAPE_TEXT_BYTES - length, "]");
    return out;
}

/* Product of the shape, in elements and bytes. */
static dk_status count_elements(const struct dk_oip_member *member, struct dk_oip_input *input,
                                struct dk_error *error)
{
    size_t count = 1;
    bool fits = true;
    for (uint32_t i = 0; i < input->rank && fits; i++) {
        fits = input->shape[i] <= SIZE_MAX && dk_size_mul(count, (size_t)input->shape[i], &count);
    }
    size_t bytes;
    if (!fits || !dk_size_mul(count, dk_dtype_bytes(input->dtype), &bytes)) {
        char path[DK_OIP_PATH_BYTES];
        char shape[SHAPE_TEXT_BYTES];
        return dk_fail(error, DK_BAD_SHAPE, "%s.shape: expected a tensor below 2^64 bytes, found %s",
                       dk_oip_member_path(member, path), shape_text(input->shape, input->rank, shape));
    }
    input->count = count;
    input->bytes = bytes;
    return DK_OK;
}

static dk_status check_source(const struct dk_oip_member *member, struct input_context *reading,
                              struct dk_error *error)
{
    const char *names[3];
    size_t count = 0;
    if (reading->tensor != NULL) {
        names[count++] = "data";
        reading->input->source = DK_OIP_SOURCE_JSON;
    }
    if (reading->parameters.has_binary_size) {
        names[count++] = "binary_data_size";
        reading->input->source = DK_OIP_SOURCE_BINARY;
    }
    if (reading->parameters.has_region) {
        names[count++] = "shared_memory_region";
        reading->input->source = DK_OIP_SOURCE_SHARED_MEMORY;
    }
    if (count == 1) {
        return DK_OK;
    }
    char path[DK_OIP_PATH_BYTES];
    const char *where = dk_oip_member_path(member, path);
    if (count == 0) {
        return dk_fail(error, DK_BAD_REQUEST,
                       "%s \"%s\": expected data, binary_data_size or shared_memory_region, found none",
                       where, reading->input->name);
    }
    return dk_fail(error, DK_BAD_REQUEST, "%s \"%s\": expected one source of data, found %s and %s", where,
                   reading->input->name, names[0], names[1]);
}

/* Flat, or nested exactly as the shape. */
static dk_status check_data(const struct dk_oip_member *member, const struct dk_oip_input *input,
                            const struct dk_json_tensor *tensor, struct dk_error *error)
{
    bool is_flat = tensor->rank == 1 && tensor->count == input->count;
    bool is_nested = tensor->rank == input->rank &&
                     memcmp(tensor->shape, input->shape, input->rank * sizeof input->shape[0]) == 0;
    if (is_flat || is_nested) {
        return DK_OK;
    }
    char path[DK_OIP_PATH_BYTES];
    char expected[SHAPE_TEXT_BYTES];
    const char *where = dk_oip_member_path(member, path);
    (void)shape_text(input->shape, input->rank, expected);
    if (tensor->count != input->count) {
        return dk_fail(error, DK_BAD_SHAPE,
                       "%s.data of \"%s\": expected %zu numbers for shape %s, found %llu", where, input->name,
                       input->count, expected, (unsigned long long)tensor->count);
    }
    char found[SHAPE_TEXT_BYTES];
    return dk_fail(error, DK_BAD_SHAPE,
                   "%s.data of \"%s\": expected a flat list or lists nested as %s, found %s", where,
                   input->name, expected, shape_text(tensor->shape, tensor->rank, found));
}

static dk_status check_size(const struct dk_oip_member *member, const struct dk_oip_input *input,
                            const char *key, uint64_t announced, struct dk_error *error)
{
    if (announced == input->bytes) {
        return DK_OK;
    }
    char path[DK_OIP_PATH_BYTES];
    char shape[SHAPE_TEXT_BYTES];
    return dk_fail(error, DK_BAD_SHAPE,
                   "%s.parameters.%s of \"%s\": expected %zu bytes for %s of shape %s, found %llu",
                   dk_oip_member_path(member, path), key, input->name, input->bytes,
                   dk_dtype_name(input->dtype, DK_DIALECT_OIP), shape_text(input->shape, input->rank, shape),
                   (unsigned long long)announced);
}

static dk_status check_amount(const struct dk_oip_member *member, const struct input_context *reading,
                              struct dk_error *error)
{
    const struct dk_oip_input *input = reading->input;
    switch (input->source) {
    case DK_OIP_SOURCE_JSON:
        return check_data(member, input, reading->tensor, error);
    case DK_OIP_SOURCE_BINARY:
        return check_size(member, input, "binary_data_size", reading->parameters.binary_size, error);
    default:
        return check_size(member, input, "shared_memory_byte_size", input->shared_memory.byte_size, error);
    }
}

dk_status dk_oip_input_parse(const struct dk_oip_member *member, const struct dk_json_reader *reader,
                             struct dk_oip_input *out, struct dk_error *error)
{
    struct dk_oip_input input = {0};
    struct input_context reading = {.input = &input, .tensor = find_data(reader, member->index)};
    dk_status status =
        dk_oip_read_object(member, fields, sizeof fields / sizeof fields[0], NULL, &reading, error);
    if (status != DK_OK) {
        return status;
    }
    if (!reading.has_name || !reading.has_dtype || !reading.has_shape) {
        const char *missing = !reading.has_name ? "name" : !reading.has_dtype ? "datatype" : "shape";
        return dk_oip_fail_missing(member, missing, error);
    }
    input.shared_memory = reading.parameters.shared_memory;
    status = count_elements(member, &input, error);
    if (status == DK_OK) {
        status = check_source(member, &reading, error);
    }
    if (status == DK_OK) {
        status = check_amount(member, &reading, error);
    }
    if (status == DK_OK) {
        *out = input;
    }
    return status;
}
