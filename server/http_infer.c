/* http_infer.c: POST /v2/models/{m}/infer over HTTP: intake, hand-over to the executor, answer. */
#include "server/http_infer.h"

#include <stdlib.h>

#include "server/clock.h"
#include "server/daemon.h"
#include "server/http_body.h"
#include "server/http_job.h"
#include "server/http_reply.h"
#include "server/http_routes.h"
#include "server/job.h"
#include "server/models.h"

static enum dk_transport transport_of(const struct dk_infer *infer)
{
    if (infer->framing.kind == DK_OIP_RAW) {
        return DK_TRANSPORT_HTTP_OIP_BINARY;
    }
    if (!infer->is_parsed) {
        return DK_TRANSPORT_HTTP_OIP_JSON;
    }
    enum dk_oip_source source = infer->request.inputs[0].source;
    if (source == DK_OIP_SOURCE_SHARED_MEMORY ||
        infer->request.outputs[0].kind == DK_OIP_OUTPUT_SHARED_MEMORY) {
        return DK_TRANSPORT_HTTP_OIP_SHM;
    }
    return source == DK_OIP_SOURCE_BINARY ? DK_TRANSPORT_HTTP_OIP_BINARY : DK_TRANSPORT_HTTP_OIP_JSON;
}

dk_status dk_oip_infer_begin(struct dk_http_request *request, struct dk_error *error)
{
    struct dk_http_infer *state = malloc(sizeof *state);
    if (state == NULL) {
        return dk_fail(error, DK_NO_MEMORY, "out of memory for another request");
    }
    request->route_state = state;
    state->metrics_model = -1;
    state->is_admitted = false;
    dk_status status = dk_infer_begin(&state->infer, request->daemon, request->parameters.model,
                                      request->head.json_length, dk_http_plain_length(request), error);
    if (state->infer.model != NULL) {
        state->metrics_model = state->infer.model->metrics_model;
    }
    if (status != DK_OK) {
        dk_infer_end(&state->infer);
    }
    return status;
}

dk_status dk_oip_infer_body(struct dk_http_request *request, const char *bytes, size_t length,
                            struct dk_error *error)
{
    struct dk_http_infer *state = request->route_state;
    dk_status status = dk_infer_feed(&state->infer, bytes, length, error);
    if (status != DK_OK) {
        dk_infer_end(&state->infer); /* the rest of the body is dropped: hold nothing meanwhile */
    }
    return status;
}

void dk_oip_infer_refused(struct dk_http_request *request, dk_status status)
{
    const struct dk_http_infer *state = request->route_state; /* NULL: refused before begin */
    dk_http_job_refused(request, state != NULL ? state->metrics_model : -1,
                        state != NULL ? transport_of(&state->infer) : DK_TRANSPORT_HTTP_OIP_JSON, status);
}

/* The job is done. Called again for each turn of copying the answer to shared memory. */
static enum MHD_Result answer(struct dk_http_request *request, struct dk_infer *infer)
{
    struct dk_job *job = infer->job;
    bool is_stored = true;
    if (job->error.status == DK_OK) {
        job->error.status = dk_infer_store(infer, &is_stored, &job->error);
    }
    if (job->error.status == DK_OK && !is_stored) {
        dk_http_yield(request);
        return MHD_YES;
    }
    dk_http_job_record(request, job, transport_of(infer), dk_clock_now_ns());
    if (job->error.status == DK_OK) {
        return dk_http_infer_reply(request, infer);
    }
    struct dk_error error = job->error;
    dk_infer_end(infer);
    return dk_http_reply_error(request, &error);
}

enum MHD_Result dk_oip_infer_finish(struct dk_http_request *request)
{
    struct dk_http_infer *state = request->route_state;
    struct dk_infer *infer = &state->infer;
    if (request->stage == DK_STAGE_WORK) {
        return answer(request, infer);
    }
    struct dk_error error;
    bool is_loaded = true;
    dk_status status = state->is_admitted ? DK_OK : dk_infer_finish(infer, request->arrived_ns, &error);
    state->is_admitted = status == DK_OK;
    if (status == DK_OK) {
        status = dk_infer_load(infer, &is_loaded, &error);
    }
    if (status != DK_OK) {
        dk_metrics_add(request->daemon->metrics, DK_METRIC_HTTP_REFUSED, 1);
        dk_oip_infer_refused(request, status);
        dk_infer_end(infer);
        return dk_http_reply_error(request, &error);
    }
    if (!is_loaded) {
        dk_http_yield(request);
        return MHD_YES;
    }
    return dk_http_job_submit(request, infer->job);
}

void dk_oip_infer_end(struct dk_http_request *request)
{
    struct dk_http_infer *state = request->route_state;
    if (state != NULL) {
        dk_infer_end(&state->infer);
        free(state);
        request->route_state = NULL;
    }
}
