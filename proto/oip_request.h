/* oip_request.h: what the body of POST /v2/models/{m}/infer says. */
#ifndef DK_PROTO_OIP_REQUEST_H
#define DK_PROTO_OIP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/dtype.h"
#include "proto/json_reader.h"
#include "proto/native_api.h"
#include "proto/oip_framing.h"
#include "proto/oip_model.h"
#include "proto/status.h"

enum {
    DK_OIP_MAX_INPUTS = 8,
    DK_OIP_MAX_ID_BYTES = 256,
    DK_OIP_MAX_NAME_BYTES = 64, /* of tensors and regions; regions follow dk_model_name_is_valid */
    DK_OIP_MAX_RANK = 8
};

/* The paths for dk_json_reader_new: {"inputs[].data"}. tensor.indices[0] is the index of the input. */
enum { DK_OIP_PATH_COUNT = 1 };
extern const char *const dk_oip_paths[DK_OIP_PATH_COUNT];

struct dk_oip_shared_memory {
    char region[DK_OIP_MAX_NAME_BYTES + 1];
    uint64_t offset, byte_size; /* the sum fits in 64 bits; nothing is known about the region here */
};

enum dk_oip_source { DK_OIP_SOURCE_JSON, DK_OIP_SOURCE_BINARY, DK_OIP_SOURCE_SHARED_MEMORY };

struct dk_oip_input {
    char name[DK_OIP_MAX_NAME_BYTES + 1];
    dk_dtype dtype; /* FP32, BF16 or FP16 */
    uint32_t rank;  /* 1..DK_OIP_MAX_RANK */
    uint64_t shape[DK_OIP_MAX_RANK];
    size_t count, bytes; /* product of shape; times the item size: equal to what the source announces */
    enum dk_oip_source source;
    uint64_t binary_offset; /* BINARY: of the first byte, from the end of the JSON part */
    struct dk_oip_shared_memory shared_memory;
};

enum dk_oip_output_kind { DK_OIP_OUTPUT_JSON, DK_OIP_OUTPUT_BINARY, DK_OIP_OUTPUT_SHARED_MEMORY };

struct dk_oip_requested_output {
    char name[DK_OIP_MAX_NAME_BYTES + 1];
    enum dk_oip_output_kind kind;
    struct dk_oip_shared_memory shared_memory;
    /* Set by dk_oip_request_check. */
    size_t index;   /* in model->outputs */
    dk_dtype dtype; /* of the answer */
    size_t bytes;   /* rows * row_length * item size; fits in shared_memory.byte_size */
};

struct dk_oip_request {
    bool has_id;
    char id[DK_OIP_MAX_ID_BYTES + 1];
    uint64_t priority;     /* 0: none was given */
    uint64_t timeout_us;   /* 0: none was given */
    bool is_output_binary; /* parameters.binary_data_output */
    bool has_output_dtype; /* parameters.output_datatype, ours: type of float outputs */
    dk_dtype output_dtype;
    size_t input_count; /* 1..DK_OIP_MAX_INPUTS */
    struct dk_oip_input inputs[DK_OIP_MAX_INPUTS];
    size_t binary_bytes; /* of all binary inputs: what has to follow the JSON part */
    size_t output_count; /* 0: all. After dk_oip_request_check: the outputs to return, in this order */
    struct dk_oip_requested_output outputs[DK_OIP_MAX_OUTPUTS];
    uint64_t rows; /* T; set by dk_oip_request_check */
};

/* Finish `reader` (made with dk_oip_paths, fed with the JSON part) and read what it met. Members the
 * protocol does not name are ignored; those it names must have their type. Checked as well: names used twice,
 * exactly one data source per input, sizes against shapes, the count and nesting of JSON data. Every message
 * names the member, what is expected and what is found. DK_BAD_JSON, DK_BAD_REQUEST, DK_BAD_SHAPE,
 * DK_BAD_DTYPE, DK_BAD_VALUE, DK_TOO_LARGE, DK_UNSUPPORTED (classification). *out is untouched on failure. */
dk_status dk_oip_request_parse(struct dk_json_reader *reader, struct dk_oip_request *out,
                               struct dk_error *error);
/* The binary part: `body_bytes` is the length of the whole body. DK_BAD_REQUEST when the header is missing,
 * DK_BAD_SHAPE when bytes are missing or left over. May be called before the body has arrived, when its
 * length is known. */
dk_status dk_oip_request_check_binary(const struct dk_oip_request *request,
                                      const struct dk_oip_framing *framing, uint64_t body_bytes,
                                      struct dk_error *error);
/* Against the model: input x, shape [T, K] with T <= DK_MAX_M, outputs that exist, shared memory large enough
 * for them. Sets rows and completes the list of outputs. DK_BAD_REQUEST, DK_BAD_SHAPE, DK_BAD_VALUE. */
dk_status dk_oip_request_check(struct dk_oip_request *request, const struct dk_oip_model *model,
                               struct dk_error *error);
/* A raw body of `body_bytes`: the model's input in its announced type, all outputs binary. Already checked.
 * DK_BAD_SHAPE unless the body is a whole number of rows. */
dk_status dk_oip_request_init_raw(struct dk_oip_request *out, const struct dk_oip_model *model,
                                  uint64_t body_bytes, struct dk_error *error);

/* From a sink's `begin`: the datatype of input `index`, when it stands before the data. False otherwise. */
bool dk_oip_peek_datatype(const struct dk_json_reader *reader, uint32_t index, dk_dtype *out);

#endif
