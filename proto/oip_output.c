/* oip_output.c: one output that an infer request asks for: name, and how it is to be returned. */
#include "proto/oip_tensor.h"

struct output_context {
    struct dk_oip_requested_output *output;
    struct dk_oip_parameters parameters;
    bool has_name;
};

static dk_status read_name(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    struct output_context *reading = context;
    reading->has_name = true;
    return dk_oip_read_string(member, reading->output->name, sizeof reading->output->name, error);
}

static dk_status read_parameters(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    struct output_context *reading = context;
    return dk_oip_output_parameters(member, &reading->parameters, error);
}

static const struct dk_oip_field fields[] = {{"name", read_name}, {"parameters", read_parameters}};

dk_status dk_oip_output_parse(const struct dk_oip_member *member, struct dk_oip_requested_output *out,
                              struct dk_error *error)
{
    struct dk_oip_requested_output output = {0};
    struct output_context reading = {.output = &output};
    dk_status status =
        dk_oip_read_object(member, fields, sizeof fields / sizeof fields[0], NULL, &reading, error);
    if (status != DK_OK) {
        return status;
    }
    if (!reading.has_name) {
        return dk_oip_fail_missing(member, "name", error);
    }
    bool is_binary = reading.parameters.is_binary;
    if (is_binary && reading.parameters.has_region) {
        char path[DK_OIP_PATH_BYTES];
        return dk_fail(error, DK_BAD_REQUEST,
                       "%s.parameters: expected binary_data or shared_memory_region, found both",
                       dk_oip_member_path(member, path));
    }
    output.shared_memory = reading.parameters.shared_memory;
    output.kind = reading.parameters.has_region ? DK_OIP_OUTPUT_SHARED_MEMORY
                  : is_binary                   ? DK_OIP_OUTPUT_BINARY
                                                : DK_OIP_OUTPUT_JSON;
    *out = output;
    return DK_OK;
}
