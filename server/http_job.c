/* http_job.c: hand-over to the executor and back. */
#include "server/http_job.h"

#include <string.h>

#include "server/clock.h"
#include "server/daemon.h"
#include "server/http_connection.h"
#include "server/job.h"
#include "server/models.h"
#include "server/queue.h"

/* Label t_bucket: by all rows of the request, not by the last piece; more than the largest counts there. */
static uint32_t bucket_of(const struct dk_engine *engine, uint64_t rows)
{
    uint32_t max_tokens = dk_engine_get_info(engine)->max_tokens;
    return rows == 0 ? 0 : dk_engine_bucket_index(engine, rows < max_tokens ? rows : max_tokens);
}

void dk_http_job_refused(struct dk_http_request *request, int metrics_model, enum dk_transport transport,
                         dk_status status)
{
    struct dk_metrics_sample sample = {.shape = DK_METRICS_SHAPE_OTHER,
                                       .model = metrics_model,
                                       .transport = transport,
                                       .outcome = dk_metrics_outcome(status),
                                       .request_ns = dk_clock_now_ns() - request->arrived_ns};
    dk_metrics_record(request->daemon->metrics, &sample);
}

void dk_http_job_record(struct dk_http_request *request, const struct dk_job *job,
                        enum dk_transport transport, uint64_t now_ns)
{
    bool has_run = job->error.status == DK_OK;
    struct dk_metrics_sample sample = {
        .shape = job->model != NULL ? job->model->metrics_shape : DK_METRICS_SHAPE_OTHER,
        .model = job->model != NULL ? job->model->metrics_model : -1,
        .bucket_index = bucket_of(request->daemon->engine, job->gemm.m),
        .transport = transport,
        .outcome = dk_metrics_outcome(job->error.status),
        .rows = job->gemm.m,
        .piece_count = job->piece_count,
        .intake_ns = job->queued_ns - job->arrived_ns,
        .queue_ns = job->started_ns - job->queued_ns,
        .copy_ns = job->copy_ns,
        .kernel_ns = job->kernel_ns,
        .answer_ns = has_run ? now_ns - job->finished_ns : 0,
        .request_ns = now_ns - job->arrived_ns,
        .has_times = has_run && job->gemm.m > 0,
    };
    const char *traceparent = request->head.traceparent;
    if (sample.has_times && traceparent != NULL) {
        (void)dk_traceparent_parse(traceparent, strlen(traceparent), &sample.trace);
    }
    dk_metrics_record(request->daemon->metrics, &sample);
}

/* Thread: executor. The resumed connection comes back to its route's finish() on its own thread. */
static void on_complete(struct dk_job *job)
{
    MHD_resume_connection(job->context);
}

enum MHD_Result dk_http_job_submit(struct dk_http_request *request, struct dk_job *job)
{
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
