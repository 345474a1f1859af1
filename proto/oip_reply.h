/* oip_reply.h: the answer of POST /v2/models/{m}/infer: JSON, then the bytes of the binary outputs. */
#ifndef DK_PROTO_OIP_REPLY_H
#define DK_PROTO_OIP_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/dtype.h"
#include "proto/json_writer.h"
#include "proto/oip_model.h"
#include "proto/oip_request.h"

struct dk_oip_output {
    const char *name;
    dk_dtype dtype;
    uint64_t rows, row_length; /* shape [rows, row_length] */
    const void *data;          /* row-major; borrowed until the writer is done; not read for SHARED_MEMORY */
    enum dk_oip_output_kind kind;
};

struct dk_oip_reply {
    const char *model_name;
    const char *id; /* NULL when none was sent */
    const struct dk_oip_output *outputs;
    size_t output_count; /* 0..DK_OIP_MAX_OUTPUTS */
};

/* Bytes behind the JSON part. 0: the answer is application/json without Inference-Header-Content-Length; else
 * it is application/octet-stream with that header. */
size_t dk_oip_reply_binary_bytes(const struct dk_oip_reply *reply);
/* The JSON part as one text, for answers without DK_OIP_OUTPUT_JSON outputs: the caller can send the binary
 * outputs from where they lie. */
void dk_oip_reply_json(struct dk_json_text *text, const struct dk_oip_reply *reply);

/* Resumable writer of {"model_name","model_version","id"?,"outputs":[{"name","datatype","shape",
 * "parameters":{"binary_data_size"} | "data":[flat] | neither (shared memory)}]} and the binary outputs in
 * the same order. NaN and infinities are `null` in JSON and exact in binary. Memory use does not grow with
 * the outputs. The reply's outputs and strings are borrowed until the writer is done. */
struct dk_oip_reply_writer {
    struct dk_oip_reply reply;
    struct dk_json_tensor_writer tensor;
    struct dk_json_text text; /* what stands between two tensors */
    size_t text_offset;
    size_t output; /* being written */
    size_t data_offset;
    int stage;
};
void dk_oip_reply_writer_init(struct dk_oip_reply_writer *writer, const struct dk_oip_reply *reply);
/* Returns bytes written (<= size), 0 when done, or SIZE_MAX when memory ran out. `size` >= 256. */
size_t dk_oip_reply_writer_next(struct dk_oip_reply_writer *writer, char *out, size_t size);
void dk_oip_reply_writer_deinit(struct dk_oip_reply_writer *writer);

/* Length of the JSON part, for Inference-Header-Content-Length. Writes it once to nowhere, so with large JSON
 * outputs beside binary ones it costs as much as sending them. SIZE_MAX when memory ran out. */
size_t dk_oip_reply_json_bytes(const struct dk_oip_reply *reply);

#endif
