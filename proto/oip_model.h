/* oip_model.h: what a v2 client is told about the server and a model: metadata and configuration. */
#ifndef DK_PROTO_OIP_MODEL_H
#define DK_PROTO_OIP_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "proto/dtype.h"
#include "proto/json_writer.h"

/* The only version a model has. */
#define DK_OIP_VERSION "1"

enum { DK_OIP_MAX_OUTPUTS = 8 }; /* of a model, and so of a request */

/* One input or output: [rows, row_length], rows as the request says. */
struct dk_oip_tensor_spec {
    const char *name;
    dk_dtype dtype; /* announced; of a raw request; of an output that the request asks no other type for */
    uint64_t row_length;
};

/* Plain view, borrows everything. Today: one input "x" and the output "logits". */
struct dk_oip_model {
    const char *name;
    const char *platform;
    struct dk_oip_tensor_spec input;
    const struct dk_oip_tensor_spec *outputs;
    size_t output_count;     /* 1..DK_OIP_MAX_OUTPUTS */
    uint64_t max_batch_size; /* largest T that is computed in one piece */
};

/* {"name","version","extensions":[...]} */
void dk_oip_server_metadata(struct dk_json_text *text, const char *name, const char *version,
                            const char *const *extensions, size_t extension_count);
/* {"name","versions":["1"],"platform","inputs":[{"name","datatype","shape":[-1,K]}],"outputs":[...]} */
void dk_oip_model_metadata(struct dk_json_text *text, const struct dk_oip_model *model);
/* The model configuration; dims without the rows, data types as "TYPE_BF16". */
void dk_oip_model_config(struct dk_json_text *text, const struct dk_oip_model *model);

#endif
