/* native_api.h: the bodies of /v1: what a request says (skeleton -> struct) and what an answer says (struct
 * -> text). */
#ifndef DK_PROTO_NATIVE_API_H
#define DK_PROTO_NATIVE_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/gemm.h"
#include "proto/json_reader.h"
#include "proto/json_writer.h"
#include "proto/status.h"

enum { DK_MODEL_NAME_BYTES = 64 }; /* [A-Za-z0-9._-]{1,64}; arrays hold one more for NUL */

/* Order of dk_native_paths and the values of dk_json_tensor.path_index for /v1/matmul. */
enum dk_native_tensor { DK_NATIVE_X, DK_NATIVE_A, DK_NATIVE_B, DK_NATIVE_BIAS, DK_NATIVE_TENSOR_COUNT };
extern const char *const dk_native_paths[DK_NATIVE_TENSOR_COUNT]; /* {"x","a","b","bias"} */

/* One parsed POST /v1/matmul, from JSON skeleton or from query string + headers of a raw body. */
struct dk_matmul_request {
    char model[DK_MODEL_NAME_BYTES + 1]; /* empty: ad hoc product */
    bool has_model, has_dtype, has_out_dtype, has_epilogue, has_b_layout;
    dk_dtype dtype;       /* of x / a and b; default: the model's weight type; ad hoc: fp32 */
    dk_dtype out_dtype;   /* default fp32 */
    dk_epilogue epilogue; /* default: the model's own (none) */
    dk_layout b_layout;   /* ad hoc only; default kn */
    char id[65];          /* optional caller's id, echoed */
};

/* Reads members model, dtype, out_dtype, epilogue, b_layout, id. Unknown members are DK_BAD_REQUEST naming
 * the member (a typing mistake must not pass silently); x/a/b/bias that are not arrays are DK_BAD_SHAPE.
 * `skeleton` comes from dk_json_reader_finish. */
dk_status dk_matmul_request_parse(const char *skeleton, size_t length, struct dk_matmul_request *out,
                                  struct dk_error *error);
/* One query parameter of a raw request: model, dtype, out_dtype, epilogue, id. Unknown names: DK_BAD_REQUEST.
 * `value` may be NULL (no '='). */
dk_status dk_matmul_request_set(struct dk_matmul_request *request, const char *name, const char *value,
                                struct dk_error *error);
/* Checks [A-Za-z0-9._-]{1,64}, and not "." or "..". */
bool dk_model_name_is_valid(const char *name, size_t length);
/* Checks 1 to size - 1 bytes of UTF-8 without control characters: ids are echoed into answers and logs. */
bool dk_request_id_is_valid(const char *id, size_t length, size_t size);

/* Logical shape of x from a tensor the reader met: rank 2 as is, rank 1 of length > 0 is one row, rank 1 of
 * length 0 is zero rows. `k` is the model's. DK_BAD_SHAPE names expected and found. */
dk_status dk_matmul_rows(const struct dk_json_tensor *tensor, uint64_t k, uint64_t *rows,
                         struct dk_error *error);

struct dk_matmul_reply {
    const char *model; /* NULL for ad hoc */
    const char *id;    /* NULL when none was sent */
    uint64_t rows, n;
    const void *y; /* [rows, n] of out_dtype, borrowed until the writer is done */
    dk_dtype out_dtype;
    uint64_t queue_ns, kernel_ns, total_ns;
    uint64_t bucket_rows; /* the plan used for the (last) piece; 0 when rows == 0 */
    uint32_t split_k, piece_count;
    const char *variant; /* static string, "" when rows == 0 */
    const char *backend; /* "cpu" or "cuda" */
};

/* Resumable writer of
 * {"model","id"?,"shape":[T,N],"dtype","y":[[...]],"timing_us":{"queue","kernel","total"},
 * "plan":{"bucket","variant","split_k","pieces","backend"},"non_finite"?:count}. Memory use does not grow
 * with T. */
struct dk_matmul_reply_writer {
    struct dk_matmul_reply reply;
    struct dk_json_tensor_writer tensor;
    int stage;
    size_t text_offset;
    struct dk_json_text text; /* head, then tail */
};
void dk_matmul_reply_writer_init(struct dk_matmul_reply_writer *writer, const struct dk_matmul_reply *reply);
/* Returns bytes written (<= size), 0 when done, or SIZE_MAX when memory ran out. `size` >= 256. */
size_t dk_matmul_reply_writer_next(struct dk_matmul_reply_writer *writer, char *out, size_t size);
void dk_matmul_reply_writer_deinit(struct dk_matmul_reply_writer *writer);

/* {"error": "<message>", "status": "<name>"} for every dialect. Caller frees the text. */
void dk_error_body(struct dk_json_text *text, const struct dk_error *error);

#endif
