/* oip_parameters.c: parameters of inputs and outputs: where a tensor comes from or goes to. */
#include "proto/oip_tensor.h"

#include <string.h>

static dk_status read_binary_size(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    struct dk_oip_parameters *parameters = context;
    parameters->has_binary_size = true;
    return dk_oip_read_u64(member, &parameters->binary_size, error);
}

static dk_status read_binary_data(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    struct dk_oip_parameters *parameters = context;
    parameters->has_binary_data = true;
    return dk_oip_read_bool(member, &parameters->is_binary, error);
}

static dk_status read_region(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    struct dk_oip_parameters *parameters = context;
    char *region = parameters->shared_memory.region;
    dk_status status = dk_oip_read_string(member, region, sizeof parameters->shared_memory.region, error);
    if (status == DK_OK && !dk_model_name_is_valid(region, strlen(region))) {
        return dk_oip_fail(member, DK_BAD_VALUE, "a region name, 1 to 64 of [A-Za-z0-9._-]", error);
    }
    parameters->has_region = true;
    return status;
}

static dk_status read_byte_size(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    struct dk_oip_parameters *parameters = context;
    parameters->has_byte_size = true;
    return dk_oip_read_u64(member, &parameters->shared_memory.byte_size, error);
}

static dk_status read_offset(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    struct dk_oip_parameters *parameters = context;
    parameters->has_offset = true;
    return dk_oip_read_u64(member, &parameters->shared_memory.offset, error);
}

/* Class labels instead of values: silently sending values would be a wrong answer. 0 asks for none. */
static dk_status read_classification(void *context, const struct dk_oip_member *member,
                                     struct dk_error *error)
{
    (void)context;
    uint64_t count = 0;
    dk_status status = dk_oip_read_u64(member, &count, error);
    if (status == DK_OK && count > 0) {
        return dk_oip_fail(member, DK_UNSUPPORTED, "0, as the classification extension is not supported",
                           error);
    }
    return status;
}

static const struct dk_oip_field input_fields[] = {{"binary_data_size", read_binary_size},
                                                   {"shared_memory_region", read_region},
                                                   {"shared_memory_byte_size", read_byte_size},
                                                   {"shared_memory_offset", read_offset}};
static const struct dk_oip_field output_fields[] = {{"binary_data", read_binary_data},
                                                    {"classification", read_classification},
                                                    {"shared_memory_region", read_region},
                                                    {"shared_memory_byte_size", read_byte_size},
                                                    {"shared_memory_offset", read_offset}};

/* Region and byte size come together; an offset only with them. */
static dk_status check_shared_memory(const struct dk_oip_member *member,
                                     const struct dk_oip_parameters *parameters, struct dk_error *error)
{
    const struct dk_oip_shared_memory *memory = &parameters->shared_memory;
    uint64_t end;
    if (!parameters->has_region && (parameters->has_byte_size || parameters->has_offset)) {
        return dk_oip_fail_missing(member, "shared_memory_region", error);
    }
    if (parameters->has_region && !parameters->has_byte_size) {
        return dk_oip_fail_missing(member, "shared_memory_byte_size", error);
    }
    if (__builtin_add_overflow(memory->offset, memory->byte_size, &end)) {
        char path[DK_OIP_PATH_BYTES];
        return dk_fail(error, DK_BAD_VALUE,
                       "%s: expected shared_memory_offset + shared_memory_byte_size below 2^64, found %llu + "
                       "%llu",
                       dk_oip_member_path(member, path), (unsigned long long)memory->offset,
                       (unsigned long long)memory->byte_size);
    }
    return DK_OK;
}

static dk_status read_parameters(const struct dk_oip_member *member, const struct dk_oip_field *fields,
                                 size_t field_count, struct dk_oip_parameters *out, struct dk_error *error)
{
    struct dk_oip_parameters parameters = {0};
    dk_status status =
        dk_oip_read_object(member, fields, field_count, dk_oip_read_other_parameter, &parameters, error);
    if (status == DK_OK) {
        status = check_shared_memory(member, &parameters, error);
    }
    if (status == DK_OK) {
        *out = parameters;
    }
    return status;
}

dk_status dk_oip_input_parameters(const struct dk_oip_member *member, struct dk_oip_parameters *out,
                                  struct dk_error *error)
{
    return read_parameters(member, input_fields, sizeof input_fields / sizeof input_fields[0], out, error);
}

dk_status dk_oip_output_parameters(const struct dk_oip_member *member, struct dk_oip_parameters *out,
                                   struct dk_error *error)
{
    return read_parameters(member, output_fields, sizeof output_fields / sizeof output_fields[0], out, error);
}
