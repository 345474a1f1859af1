/* http_native.c: POST /v1/matmul over HTTP: intake, hand-over to the executor, answer. */
#include "server/http_native.h"

#include "server/clock.h"
#include "server/daemon.h"
#include "server/http_job.h"
#include "server/http_reply.h"
#include "server/http_routes.h"
#include "server/job.h"
#include "server/metrics.h"

/* Raw if the client prefers it: named, and not ranked below JSON; a tie goes to what stands there by name. */
static bool prefers_raw(const char *accept)
{
    bool raw_is_named, json_is_named;
    unsigned raw = dk_accept_quality(accept, DK_MEDIA_RAW, &raw_is_named);
    unsigned json = dk_accept_quality(accept, DK_MEDIA_JSON, &json_is_named);
    return raw_is_named && raw > 0 && (raw > json || (raw == json && !json_is_named));
}

dk_status dk_native_begin(struct dk_http_request *request, struct dk_error *error)
{
    enum dk_body_kind kind;
    dk_status status = dk_body_kind_parse(request->head.content_type, &kind, error);
    if (status != DK_OK) {
        return status;
    }
    status = dk_matmul_begin(&request->matmul, request->daemon, kind == DK_BODY_RAW, request->target.query,
                             dk_http_plain_length(request), error);
    request->matmul.wants_raw = prefers_raw(request->head.accept);
    if (status != DK_OK) {
        dk_matmul_end(&request->matmul);
    }
    return status;
}

dk_status dk_native_body(struct dk_http_request *request, const char *bytes, size_t length,
                         struct dk_error *error)
{
    dk_status status;
    if (request->plain_bytes > request->daemon->max_body_bytes) {
        status = dk_fail(error, DK_TOO_LARGE, "the body has more than %llu bytes, the limit",
                         (unsigned long long)request->daemon->max_body_bytes);
    } else {
        status = dk_matmul_feed(&request->matmul, bytes, length, error);
    }
    if (status != DK_OK) {
        dk_matmul_end(&request->matmul); /* the rest of the body is dropped: hold nothing meanwhile */
    }
    return status;
}

static enum dk_transport transport_of(const struct dk_http_request *request)
{
    return request->matmul.is_raw ? DK_TRANSPORT_HTTP_RAW : DK_TRANSPORT_HTTP_JSON;
}

void dk_native_refused(struct dk_http_request *request, dk_status status)
{
    dk_http_job_refused(request, -1, transport_of(request), status);
}

static enum MHD_Result answer(struct dk_http_request *request)
{
    struct dk_matmul *matmul = &request->matmul;
    struct dk_job *job = matmul->job;
    if (job->error.status != DK_OK) {
        dk_http_job_record(request, job, transport_of(request), dk_clock_now_ns());
        struct dk_error error = job->error;
        dk_matmul_end(matmul);
        return dk_http_reply_error(request, &error);
    }
    uint64_t answered_ns = dk_clock_now_ns();
    dk_http_job_record(request, job, transport_of(request), answered_ns);
    return matmul->wants_raw ? dk_native_reply_raw(request, answered_ns)
                             : dk_native_reply_json(request, answered_ns);
}

enum MHD_Result dk_native_finish(struct dk_http_request *request)
{
    if (request->stage == DK_STAGE_WORK) {
        return answer(request);
    }
    struct dk_error error;
    dk_status status = dk_matmul_finish(&request->matmul, &error);
    if (status != DK_OK) {
        dk_matmul_end(&request->matmul);
        dk_metrics_add(request->daemon->metrics, DK_METRIC_HTTP_REFUSED, 1);
        dk_native_refused(request, status);
        return dk_http_reply_error(request, &error);
    }
    return dk_http_job_submit(request, request->matmul.job);
}

void dk_native_end(struct dk_http_request *request)
{
    dk_matmul_end(&request->matmul);
}
