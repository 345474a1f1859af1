/* oip_tensor.h: one element of "inputs" or "outputs" of an infer request, and the parameters both may have.
 */
#ifndef DK_PROTO_OIP_TENSOR_H
#define DK_PROTO_OIP_TENSOR_H

#include "proto/oip_member.h"
#include "proto/oip_request.h"

struct dk_oip_parameters {
    bool has_binary_size, has_binary_data, has_region, has_byte_size, has_offset;
    uint64_t binary_size;
    bool is_binary;
    struct dk_oip_shared_memory shared_memory;
};

/* {"binary_data_size","shared_memory_region","shared_memory_byte_size","shared_memory_offset"} */
dk_status dk_oip_input_parameters(const struct dk_oip_member *member, struct dk_oip_parameters *out,
                                  struct dk_error *error);
/* {"binary_data","shared_memory_region","shared_memory_byte_size","shared_memory_offset"} */
dk_status dk_oip_output_parameters(const struct dk_oip_member *member, struct dk_oip_parameters *out,
                                   struct dk_error *error);

/* "inputs[i]", i = member->index. Sets all but binary_offset. */
dk_status dk_oip_input_parse(const struct dk_oip_member *member, const struct dk_json_reader *reader,
                             struct dk_oip_input *out, struct dk_error *error);
/* "outputs[i]". Sets name, kind and shared_memory. */
dk_status dk_oip_output_parse(const struct dk_oip_member *member, struct dk_oip_requested_output *out,
                              struct dk_error *error);
/* A float type by its v2 name. DK_BAD_DTYPE. */
dk_status dk_oip_read_dtype(const struct dk_oip_member *member, dk_dtype *out, struct dk_error *error);

#endif
