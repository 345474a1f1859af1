/* http_job.h: a request's job: to the executor, back to the connection, and into the metrics. */
#ifndef DK_SERVER_HTTP_JOB_H
#define DK_SERVER_HTTP_JOB_H

#include <microhttpd.h>

#include "server/http_request.h"
#include "server/metrics.h"

struct dk_job;

/* Suspends the connection and pushes the job; the route's finish() is called again with request->stage
 * DK_STAGE_WORK when job->error and its results are there, also when the queue did not take it. Thread: HTTP.
 */
enum MHD_Result dk_http_job_submit(struct dk_http_request *request, struct dk_job *job);
/* Metrics and statistics of a finished job, once, from its stamps; `now_ns`: its answer is ready. */
void dk_http_job_record(struct dk_http_request *request, const struct dk_job *job,
                        enum dk_transport transport, uint64_t now_ns);
/* A request for `metrics_model` (-1: unknown) that was refused before it became a job. */
void dk_http_job_refused(struct dk_http_request *request, int metrics_model, enum dk_transport transport,
                         dk_status status);

#endif
