/* bench_request.h: the bytes of one benchmark request, made once and sent many times. */
#ifndef DK_CLIENT_BENCH_REQUEST_H
#define DK_CLIENT_BENCH_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#include "client/load_http.h"
#include "client/remote.h"
#include "proto/dtype.h"
#include "proto/status.h"

enum dk_bench_protocol { DK_BENCH_V1, DK_BENCH_V2 };

/* Seeded normal values as [rows, k] of `dtype`; equal seeds give equal bits. Caller frees. NULL: no memory.
 */
void *dk_bench_make_rows(uint64_t rows, uint64_t k, dk_dtype dtype, uint64_t seed);

/* Tensor names of the Open Inference Protocol; from the model's metadata. */
struct dk_bench_tensor_names {
    char input[65], output[65];
};
/* GET /v2/models/{name}: one input, and the first output. DK_UNSUPPORTED when the model has another number of
 * inputs; DK_BAD_JSON; else as dk_remote_get. */
dk_status dk_bench_tensor_names_get(struct dk_http_client *client, const char *model,
                                    struct dk_bench_tensor_names *out, struct dk_error *error);

struct dk_bench_request {
    char *bytes; /* head and body */
    size_t length;
    uint64_t answer_bytes; /* of y, fp32 */
};
/* POST /v1/matmul with bytes, or POST /v2/models/{name}/infer with a binary tensor in and out. `x` is
 * [rows, model->k] of `dtype`, borrowed until return; `names` only for v2. DK_NO_MEMORY. */
dk_status dk_bench_request_init(const struct dk_load_http_target *target, enum dk_bench_protocol protocol,
                                const struct dk_remote_model *model,
                                const struct dk_bench_tensor_names *names, uint64_t rows, dk_dtype dtype,
                                const void *x, struct dk_bench_request *out, struct dk_error *error);
void dk_bench_request_deinit(struct dk_bench_request *request);

#endif
