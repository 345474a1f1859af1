/* http_native.c: POST /v1/matmul over HTTP: intake, hand-over to the executor, answer. */
#include "server/http_native.h"

#include "server/clock.h"
#include "server/daemon.h"
#include "server/http_connection.h"
#include "server/http_reply.h"
#include "server/http_routes.h"
#include "server/job.h"
#include "server/metrics.h"
#include "server/models.h"
#include "server/queue.h"

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
    uint64_t length = request->head.has_content_length ? request->head.content_length
                      : request->head.is_chunked       ? UINT64_MAX
                                                       : 0;
    status = dk_matmul_begin(&request->matmul, request->daemon, kind == DK_BODY_RAW, request->target.query,
                             length, error);
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
    if (request->body_bytes > request->daemon->max_body_bytes) {
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
    struct dk_metrics_sample sample = {.shape = DK_METRICS_SHAPE_OTHER,
                                       .model = -1,
                                       .transport = transport_of(request),
                                       .outcome = dk_metrics_outcome(status)};
    dk_metrics_record(request->daemon->metrics, &sample);
}

/* Label t_bucket: by all rows of the request, not by the last piece; more than the largest counts there. */
static uint32_t bucket_of(const struct dk_engine *engine, uint64_t rows)
{
    uint32_t max_tokens = dk_engine_get_info(engine)->max_tokens;
    return rows == 0 ? 0 : dk_engine_bucket_index(engine, rows < max_tokens ? rows : max_tokens);
}

/* Once per job, from its stamps. */
static void record(struct dk_http_request *request, const struct dk_job *job, uint64_t now_ns)
{
    struct dk_metrics_sample sample = {
        .shape = job->model != NULL ? job->model->metrics_shape : DK_METRICS_SHAPE_OTHER,
        .model = job->model != NULL ? job->model->metrics_model : -1,
        .bucket_index = bucket_of(request->daemon->engine, job->gemm.m),
        .transport = transport_of(request),
        .outcome = dk_metrics_outcome(job->error.status),
        .rows = job->gemm.m,
        .queue_ns = job->started_ns - job->queued_ns,
        .copy_ns = job->copy_ns,
        .kernel_ns = job->kernel_ns,
        .request_ns = now_ns - job->arrived_ns,
        .has_times = job->error.status == DK_OK && job->gemm.m > 0,
    };
    dk_metrics_record(request->daemon->metrics, &sample);
}

static enum MHD_Result answer(struct dk_http_request *request)
{
    struct dk_matmul *matmul = &request->matmul;
    struct dk_job *job = matmul->job;
    if (job->error.status != DK_OK) {
        record(request, job, dk_clock_now_ns());
        struct dk_error error = job->error;
        dk_matmul_end(matmul);
        return dk_http_reply_error(request, &error);
    }
    uint64_t answered_ns = dk_clock_now_ns();
    record(request, job, answered_ns);
    return matmul->wants_raw ? dk_native_reply_raw(request, answered_ns)
                             : dk_native_reply_json(request, answered_ns);
}

/* Thread: executor. The resumed connection comes back to dk_native_finish on its own thread. */
static void on_complete(struct dk_job *job)
{
    MHD_resume_connection(job->context);
}

static enum MHD_Result submit(struct dk_http_request *request)
{
    struct dk_job *job = request->matmul.job;
    job->arrived_ns = request->arrived_ns;
    job->client_fd = request->connection->fd;
    job->complete = on_complete;
    job->context = request->mhd;
    request->stage = DK_STAGE_WORK;
    /* Suspended before it can be completed: the executor may be faster than we are. */
    MHD_suspend_connection(request->mhd);
    dk_metrics_add(request->daemon->metrics, DK_METRIC_QUEUE_DEPTH, 1);
    job->queued_ns = job->started_ns = dk_clock_now_ns();
    struct dk_error error;
    if (dk_queue_push(request->daemon->queue, job, &error) != DK_OK) {
        dk_metrics_add(request->daemon->metrics, DK_METRIC_QUEUE_DEPTH, -1);
        job->error = error;
        MHD_resume_connection(request->mhd);
    }
    return MHD_YES;
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
    return submit(request);
}

void dk_native_end(struct dk_http_request *request)
{
    dk_matmul_end(&request->matmul);
}
