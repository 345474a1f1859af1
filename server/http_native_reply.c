/* http_native_reply.c: results as JSON (small: one buffer; large: a stream) or as bytes. */
#include "server/http_native.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/daemon.h"
#include "server/http_reply.h"
#include "server/job.h"
#include "server/metrics.h"
#include "server/models.h"

enum {
    /* Up to so many numbers are written at once into one buffer with Content-Length (under 1 ms); more are
     * streamed, so that memory stays bounded and other connections get their turn. */
    ONE_BUFFER_NUMBERS = 16 * 1024,
    NUMBER_BYTES_GUESS = 14,
    TEXT_BYTES_AROUND = 1024,
    STREAM_BLOCK_BYTES = 64 * 1024
};

/* A result that outlives its job. */
struct result {
    struct dk_daemon *daemon;
    struct dk_matmul_reply reply;
    char model[DK_MODEL_NAME_BYTES + 1];
    char id[sizeof((struct dk_matmul_request *)0)->id];
    size_t y_bytes;
    void *y_copy;                         /* NULL: y lies in the job's slab */
    struct dk_job *job;                   /* NULL once y is copied */
    struct dk_matmul_reply_writer writer; /* of a stream */
    bool has_writer;
};

static void result_free(void *context)
{
    struct result *result = context;
    if (result->has_writer) {
        dk_matmul_reply_writer_deinit(&result->writer);
    }
    if (result->y_copy != NULL) {
        atomic_fetch_sub(&result->daemon->answer_bytes, result->y_bytes);
        free(result->y_copy);
    }
    dk_job_release(result->daemon->jobs, result->job);
    free(result);
}

static void describe(struct result *result, const struct dk_http_request *request, uint64_t now_ns)
{
    const struct dk_job *job = request->matmul.job;
    if (job->model != NULL) {
        (void)snprintf(result->model, sizeof result->model, "%s", job->model->name);
    }
    (void)snprintf(result->id, sizeof result->id, "%s", request->matmul.request.id);
    result->daemon = request->daemon;
    result->y_bytes = job->gemm.m * job->gemm.n * dk_dtype_bytes(job->gemm.c_dtype);
    result->reply = (struct dk_matmul_reply){
        .model = job->model != NULL ? result->model : NULL,
        .id = result->id[0] != '\0' ? result->id : NULL,
        .rows = job->gemm.m,
        .n = job->gemm.n,
        .y = job->c,
        .out_dtype = job->gemm.c_dtype,
        .queue_ns = job->started_ns - job->queued_ns,
        .kernel_ns = job->kernel_ns,
        .total_ns = now_ns - job->arrived_ns,
        .bucket_rows = job->bucket_rows,
        .split_k = job->split_k,
        .piece_count = job->piece_count,
        .variant = job->variant,
        .backend = dk_engine_get_info(request->daemon->engine)->backend,
    };
}

/* Copies y and releases the job, if the budget of copies allows; else the result keeps the job. */
static void detach(struct result *result, struct dk_matmul *matmul)
{
    size_t before = atomic_fetch_add(&result->daemon->answer_bytes, result->y_bytes);
    if (before + result->y_bytes <= DK_ANSWER_BYTES_MAX) {
        result->y_copy = malloc(result->y_bytes + 1);
    }
    if (result->y_copy == NULL) {
        atomic_fetch_sub(&result->daemon->answer_bytes, result->y_bytes);
        result->job = matmul->job;
        matmul->job = NULL;
        return;
    }
    if (result->y_bytes > 0) {
        memcpy(result->y_copy, result->reply.y, result->y_bytes);
    }
    result->reply.y = result->y_copy;
    dk_matmul_end(matmul);
}

static struct result *result_new(struct dk_http_request *request, uint64_t now_ns)
{
    struct result *result = calloc(1, sizeof *result);
    if (result == NULL) {
        dk_matmul_end(&request->matmul);
        return NULL;
    }
    describe(result, request, now_ns);
    detach(result, &request->matmul);
    return result;
}

static bool reserve(struct dk_json_text *text, size_t capacity)
{
    char *data = realloc(text->data, capacity);
    if (data == NULL) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    return true;
}

static enum MHD_Result reply_one_buffer(struct dk_http_request *request, uint64_t now_ns)
{
    struct result result = {0};
    describe(&result, request, now_ns);
    struct dk_matmul_reply_writer writer;
    dk_matmul_reply_writer_init(&writer, &result.reply);
    struct dk_json_text text = {0};
    size_t capacity = TEXT_BYTES_AROUND + result.reply.rows * result.reply.n * NUMBER_BYTES_GUESS;
    size_t written = 1;
    while (written > 0 && !text.failed) {
        if ((text.data == NULL || text.capacity - text.length < TEXT_BYTES_AROUND) &&
            !reserve(&text, text.data == NULL ? capacity : text.capacity + capacity / 2)) {
            break;
        }
        written = dk_matmul_reply_writer_next(&writer, text.data + text.length, text.capacity - text.length);
        text.failed = written == SIZE_MAX;
        text.length += text.failed ? 0 : written;
    }
    dk_matmul_reply_writer_deinit(&writer);
    dk_matmul_end(&request->matmul);
    dk_metrics_add(request->daemon->metrics, DK_METRIC_HTTP_SENT_BYTES, (int64_t)text.length);
    return dk_http_reply_text(request, MHD_HTTP_OK, DK_MEDIA_JSON, NULL, &text);
}

static ssize_t stream_next(void *context, uint64_t position, char *out, size_t size)
{
    (void)position;
    struct result *result = context;
    size_t written = dk_matmul_reply_writer_next(&result->writer, out, size);
    if (written == SIZE_MAX) {
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    dk_metrics_add(result->daemon->metrics, DK_METRIC_HTTP_SENT_BYTES, (int64_t)written);
    return written == 0 ? MHD_CONTENT_READER_END_OF_STREAM : (ssize_t)written;
}

static enum MHD_Result out_of_memory(struct dk_http_request *request)
{
    struct dk_error error;
    (void)dk_fail(&error, DK_NO_MEMORY, "out of memory while answering");
    return dk_http_reply_error(request, &error);
}

static enum MHD_Result reply_stream(struct dk_http_request *request, uint64_t now_ns)
{
    struct result *result = result_new(request, now_ns);
    if (result == NULL) {
        return out_of_memory(request);
    }
    dk_matmul_reply_writer_init(&result->writer, &result->reply);
    result->has_writer = true;
    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES,
                                                                      stream_next, result, result_free);
    if (response == NULL) {
        result_free(result);
        return out_of_memory(request);
    }
    return dk_http_reply(request, MHD_HTTP_OK, DK_MEDIA_JSON, response);
}

enum MHD_Result dk_native_reply_json(struct dk_http_request *request, uint64_t now_ns)
{
    const struct dk_gemm *gemm = &request->matmul.job->gemm;
    return gemm->m * gemm->n <= ONE_BUFFER_NUMBERS ? reply_one_buffer(request, now_ns)
                                                   : reply_stream(request, now_ns);
}

/* Microseconds with three decimals, by integers: no locale. */
#define US_FORMAT        "%" PRIu64 ".%03" PRIu64
#define US_ARGUMENTS(ns) (ns) / 1000, (ns) % 1000

static void add_raw_headers(struct MHD_Response *response, const struct dk_matmul_reply *reply)
{
    char value[256];
    (void)snprintf(value, sizeof value, "%" PRIu64 ",%" PRIu64, reply->rows, reply->n);
    (void)MHD_add_response_header(response, "X-Decomposek-Shape", value);
    (void)MHD_add_response_header(response, "X-Decomposek-Dtype",
                                  dk_dtype_name(reply->out_dtype, DK_DIALECT_NATIVE));
    (void)snprintf(value, sizeof value, "queue=" US_FORMAT " kernel=" US_FORMAT " total=" US_FORMAT,
                   US_ARGUMENTS(reply->queue_ns), US_ARGUMENTS(reply->kernel_ns),
                   US_ARGUMENTS(reply->total_ns));
    (void)MHD_add_response_header(response, "X-Decomposek-Timing-Us", value);
    (void)snprintf(value, sizeof value, "bucket=%" PRIu64 " variant=%s split_k=%u pieces=%u backend=%s",
                   reply->bucket_rows, reply->variant, reply->split_k, reply->piece_count, reply->backend);
    (void)MHD_add_response_header(response, "X-Decomposek-Plan", value);
    if (reply->id != NULL) {
        (void)MHD_add_response_header(response, "X-Decomposek-Id", reply->id); /* refuses line breaks */
    }
}

enum MHD_Result dk_native_reply_raw(struct dk_http_request *request, uint64_t now_ns)
{
    struct result *result = result_new(request, now_ns);
    if (result == NULL) {
        return out_of_memory(request);
    }
    /* The cast drops const: libmicrohttpd only reads. */
    struct MHD_Response *response = MHD_create_response_from_buffer_with_free_callback_cls(
        result->y_bytes, (void *)result->reply.y, result_free, result);
    if (response == NULL) {
        result_free(result);
        return out_of_memory(request);
    }
    dk_metrics_add(request->daemon->metrics, DK_METRIC_HTTP_SENT_BYTES, (int64_t)result->y_bytes);
    add_raw_headers(response, &result->reply);
    return dk_http_reply(request, MHD_HTTP_OK, DK_MEDIA_RAW, response);
}
