/* infer.h: POST /v2/models/{m}/infer without its transport: a body becomes a job. */
#ifndef DK_SERVER_INFER_H
#define DK_SERVER_INFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/json_reader.h"
#include "proto/oip.h"
#include "server/intake.h"

struct dk_body_reader;
struct dk_daemon;
struct dk_job;
struct dk_model;
struct dk_region;

extern const struct dk_json_sink dk_infer_sink; /* for dk_body_readers_new with dk_oip_paths */

/* What clients are told about a model. Keeps pointers into the model and itself: not to be copied. */
struct dk_infer_model {
    struct dk_oip_model oip;
    struct dk_oip_tensor_spec output;
};
void dk_infer_model_init(struct dk_infer_model *out, const struct dk_daemon *daemon,
                         const struct dk_model *model);

/* One request. Thread: the connection's HTTP thread. */
struct dk_infer {
    struct dk_daemon *daemon; /* NULL: nothing is held */
    struct dk_model *model;   /* acquired */
    struct dk_infer_model described;
    struct dk_oip_framing framing;
    uint64_t plain_length;         /* of the body; UINT64_MAX: not known yet */
    uint64_t body_bytes;           /* fed */
    struct dk_body_reader *reader; /* NULL once the JSON part is parsed, and for raw bodies */
    bool is_parsed;                /* `request` is valid */
    struct dk_oip_request request;
    struct dk_intake x;
    struct dk_region *x_region, *y_region; /* acquired; NULL: not in shared memory */
    uint64_t copied_bytes;                 /* of x from, then of the answer to its region */
    struct dk_job *job;                    /* from dk_infer_finish on */
};

/* Shared memory is copied in turns of at most so much, about 1 ms. */
enum { DK_INFER_TURN_BYTES = 4 * 1024 * 1024 };

/* Body follows. `model_name` is what the path says; `json_length` the text of
 * Inference-Header-Content-Length, NULL when absent; `plain_length` UINT64_MAX when unknown. After a failure
 * dk_infer_end is still due. DK_UNAVAILABLE (not serving), DK_NOT_FOUND, DK_BAD_VALUE, DK_TOO_LARGE, ... */
dk_status dk_infer_begin(struct dk_infer *infer, struct dk_daemon *daemon, const char *model_name,
                         const char *json_length, uint64_t plain_length, struct dk_error *error);
/* Next bytes of the body, any split. The tensor's bytes go to the start of a slab of its own, wherever the
 * JSON part ends. */
dk_status dk_infer_feed(struct dk_infer *infer, const char *bytes, size_t length, struct dk_error *error);
/* Body complete: checks it, takes the regions it names, and makes infer->job, ready for the queue but for
 * complete, context and stamps, once dk_infer_load is done. */
dk_status dk_infer_finish(struct dk_infer *infer, uint64_t arrived_ns, struct dk_error *error);
/* Next turn of copying x from its region; *is_done when there is nothing left (or never was). */
dk_status dk_infer_load(struct dk_infer *infer, bool *is_done, struct dk_error *error);
/* The job has succeeded: next turn of copying the answer to its region. */
dk_status dk_infer_store(struct dk_infer *infer, bool *is_done, struct dk_error *error);
/* Releases whatever is still held. Idempotent. */
void dk_infer_end(struct dk_infer *infer);

#endif
