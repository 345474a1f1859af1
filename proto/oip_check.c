/* oip_check.c: an infer request against the binary part of its body and against the model. */
#include "proto/oip_request.h"

#include <assert.h>
#include <string.h>

#include "proto/gemm.h"

dk_status dk_oip_request_check_binary(const struct dk_oip_request *request,
                                      const struct dk_oip_framing *framing, uint64_t body_bytes,
                                      struct dk_error *error)
{
    if (framing->kind == DK_OIP_ALL_JSON) {
        if (request->binary_bytes == 0) {
            return DK_OK;
        }
        return dk_fail(error, DK_BAD_REQUEST,
                       "binary_data_size announces %zu bytes, but the header " DK_OIP_HEADER_LENGTH
                       ", which says where they begin, is missing",
                       request->binary_bytes);
    }
    dk_status status = dk_oip_framing_check(framing, body_bytes, error);
    if (status != DK_OK) {
        return status;
    }
    uint64_t found = body_bytes - framing->json_bytes;
    if (found == request->binary_bytes) {
        return DK_OK;
    }
    return dk_fail(error, DK_BAD_SHAPE,
                   "expected %zu bytes of binary tensors behind the %llu bytes of JSON, found %llu",
                   request->binary_bytes, (unsigned long long)framing->json_bytes, (unsigned long long)found);
}

static dk_status check_input(const struct dk_oip_request *request, const struct dk_oip_model *model,
                             struct dk_error *error)
{
    const struct dk_oip_tensor_spec *spec = &model->input;
    const struct dk_oip_input *input = &request->inputs[0];
    if (request->input_count != 1) {
        return dk_fail(error, DK_BAD_REQUEST, "inputs: expected 1 input, \"%s\", for model \"%s\", found %zu",
                       spec->name, model->name, request->input_count);
    }
    if (strcmp(input->name, spec->name) != 0) {
        return dk_fail(error, DK_BAD_REQUEST,
                       "inputs[0].name: expected \"%s\", the input of model \"%s\", found \"%s\"", spec->name,
                       model->name, input->name);
    }
    if (input->rank != 2) {
        return dk_fail(error, DK_BAD_SHAPE, "inputs[0].shape of \"%s\": expected [rows,%llu], found %u %s",
                       input->name, (unsigned long long)spec->row_length, (unsigned)input->rank,
                       input->rank == 1 ? "dimension" : "dimensions");
    }
    if (input->shape[1] != spec->row_length) {
        return dk_fail(error, DK_BAD_SHAPE,
                       "inputs[0].shape of \"%s\": expected [rows,%llu], found [%llu,%llu]", input->name,
                       (unsigned long long)spec->row_length, (unsigned long long)input->shape[0],
                       (unsigned long long)input->shape[1]);
    }
    if (input->shape[0] > DK_MAX_M) {
        return dk_fail(error, DK_BAD_SHAPE, "inputs[0].shape of \"%s\": expected at most %d rows, found %llu",
                       input->name, (int)DK_MAX_M, (unsigned long long)input->shape[0]);
    }
    return DK_OK;
}

static size_t find_output(const struct dk_oip_model *model, const char *name)
{
    size_t i = 0;
    while (i < model->output_count && strcmp(model->outputs[i].name, name) != 0) {
        i++;
    }
    return i;
}

static dk_status check_output(const struct dk_oip_request *request, const struct dk_oip_model *model,
                              uint64_t rows, struct dk_oip_requested_output *output, struct dk_error *error)
{
    size_t index = find_output(model, output->name);
    if (index == model->output_count) {
        return dk_fail(error, DK_BAD_REQUEST,
                       "outputs: expected outputs of model \"%s\", as \"%s\", found \"%s\"", model->name,
                       model->outputs[0].name, output->name);
    }
    const struct dk_oip_tensor_spec *spec = &model->outputs[index];
    output->index = index;
    output->dtype =
        request->has_output_dtype && dk_dtype_is_float(spec->dtype) ? request->output_dtype : spec->dtype;
    size_t count;
    if (!dk_size_mul((size_t)rows, (size_t)spec->row_length, &count) ||
        !dk_size_mul(count, dk_dtype_bytes(output->dtype), &output->bytes)) {
        return dk_fail(error, DK_BAD_SHAPE, "output \"%s\" of %llu rows is too large", output->name,
                       (unsigned long long)rows);
    }
    if (output->kind == DK_OIP_OUTPUT_SHARED_MEMORY && output->shared_memory.byte_size < output->bytes) {
        return dk_fail(error, DK_BAD_VALUE,
                       "shared_memory_byte_size of output \"%s\": expected at least %zu for %llu rows, found "
                       "%llu",
                       output->name, output->bytes, (unsigned long long)rows,
                       (unsigned long long)output->shared_memory.byte_size);
    }
    return DK_OK;
}

/* None listed means all. */
static void list_all_outputs(struct dk_oip_requested_output *outputs, const struct dk_oip_model *model,
                             enum dk_oip_output_kind kind)
{
    for (size_t i = 0; i < model->output_count; i++) {
        outputs[i] = (struct dk_oip_requested_output){.kind = kind};
        assert(strlen(model->outputs[i].name) < sizeof outputs[i].name);
        memcpy(outputs[i].name, model->outputs[i].name, strlen(model->outputs[i].name));
    }
}

dk_status dk_oip_request_check(struct dk_oip_request *request, const struct dk_oip_model *model,
                               struct dk_error *error)
{
    assert(model->output_count > 0 && model->output_count <= DK_OIP_MAX_OUTPUTS);
    dk_status status = check_input(request, model, error);
    if (status != DK_OK) {
        return status;
    }
    if (request->output_count == 0) {
        list_all_outputs(request->outputs, model,
                         request->is_output_binary ? DK_OIP_OUTPUT_BINARY : DK_OIP_OUTPUT_JSON);
        request->output_count = model->output_count;
    }
    request->rows = request->inputs[0].shape[0];
    for (size_t i = 0; i < request->output_count && status == DK_OK; i++) {
        status = check_output(request, model, request->rows, &request->outputs[i], error);
    }
    return status;
}

dk_status dk_oip_request_init_raw(struct dk_oip_request *out, const struct dk_oip_model *model,
                                  uint64_t body_bytes, struct dk_error *error)
{
    const struct dk_oip_tensor_spec *spec = &model->input;
    uint64_t row_bytes = spec->row_length * dk_dtype_bytes(spec->dtype);
    if (body_bytes % row_bytes != 0 || body_bytes / row_bytes > DK_MAX_M || body_bytes > SIZE_MAX) {
        return dk_fail(error, DK_BAD_SHAPE,
                       "raw body: expected up to %d rows of %llu bytes (%llu of %s) for model \"%s\", found "
                       "%llu bytes",
                       (int)DK_MAX_M, (unsigned long long)row_bytes, (unsigned long long)spec->row_length,
                       dk_dtype_name(spec->dtype, DK_DIALECT_OIP), model->name,
                       (unsigned long long)body_bytes);
    }
    uint64_t rows = body_bytes / row_bytes;
    struct dk_oip_request request = {.is_output_binary = true, .input_count = 1};
    struct dk_oip_input *input = &request.inputs[0];
    *input = (struct dk_oip_input){.dtype = spec->dtype,
                                   .rank = 2,
                                   .shape = {rows, spec->row_length},
                                   .count = (size_t)(rows * spec->row_length),
                                   .bytes = (size_t)body_bytes,
                                   .source = DK_OIP_SOURCE_BINARY};
    assert(strlen(spec->name) < sizeof input->name);
    memcpy(input->name, spec->name, strlen(spec->name));
    request.binary_bytes = (size_t)body_bytes;
    dk_status status = dk_oip_request_check(&request, model, error);
    if (status == DK_OK) {
        *out = request;
    }
    return status;
}
