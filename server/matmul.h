/* matmul.h: POST /v1/matmul without its transport: a body becomes a job. */
#ifndef DK_SERVER_MATMUL_H
#define DK_SERVER_MATMUL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/json_reader.h"
#include "proto/native_api.h"
#include "server/intake.h"

struct dk_body_reader;
struct dk_daemon;
struct dk_job;
struct dk_model;

extern const struct dk_json_sink dk_matmul_sink; /* for dk_body_readers_new with dk_native_paths */

/* One request. Thread: the connection's HTTP thread. */
struct dk_matmul {
    struct dk_daemon *daemon; /* NULL: nothing is held */
    bool is_raw;              /* the body is the bytes of x */
    bool wants_raw;           /* so shall the answer be */
    struct dk_matmul_request request;
    struct dk_body_reader *reader; /* JSON bodies */
    struct dk_model *model;        /* acquired once its name is known */
    struct dk_intake tensors[DK_NATIVE_TENSOR_COUNT];
    struct dk_job *job; /* from dk_matmul_finish on */
};

/* Body follows. `query` (may be "") belongs to raw bodies: model is required there and looked up at once;
 * `content_length` UINT64_MAX when unknown, else checked against whole rows. After a failure dk_matmul_end is
 * still due. DK_UNAVAILABLE (not serving), DK_NOT_FOUND, DK_BAD_SHAPE, ... */
dk_status dk_matmul_begin(struct dk_matmul *matmul, struct dk_daemon *daemon, bool is_raw, const char *query,
                          uint64_t content_length, struct dk_error *error);
/* Next bytes of the body, any split. */
dk_status dk_matmul_feed(struct dk_matmul *matmul, const char *bytes, size_t length, struct dk_error *error);
/* Body complete: checks shapes and makes matmul->job, ready for the queue but for complete, context and
 * stamps. */
dk_status dk_matmul_finish(struct dk_matmul *matmul, struct dk_error *error);
/* Releases whatever is still held. Idempotent. */
void dk_matmul_end(struct dk_matmul *matmul);

#endif
