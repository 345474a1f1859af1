/* http_infer_reply.c: answers of /v2 infer: one buffer, compressed if asked; large JSON as a stream. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/daemon.h"
#include "server/http_gzip.h"
#include "server/http_infer.h"
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
    STREAM_BLOCK_BYTES = 64 * 1024,
    /* Compressing costs about 20 ns a byte: worth it neither for a packet's worth nor for what would keep the
     * other connections of the thread waiting. */
    COMPRESS_BYTES_MIN = 1024,
    COMPRESS_BYTES_MAX = 256 * 1024
};

/* What outlives the request: a buffer, or a stream over the job's or a copied tensor. */
struct result {
    struct dk_daemon *daemon;
    size_t budget_bytes; /* taken from the daemon's budget of copies */
    void *copy;          /* buffer, or copy of the tensor */
    struct dk_job *job;  /* NULL unless the tensor still lies in its slab */
    char model[DK_MODEL_NAME_BYTES + 1], id[DK_OIP_MAX_ID_BYTES + 1];
    char name[DK_OIP_MAX_NAME_BYTES + 1];
    struct dk_oip_output output;
    struct dk_oip_reply reply;
    struct dk_oip_reply_writer writer;
    bool has_writer;
};

static void result_free(void *context)
{
    struct result *result = context;
    if (result->has_writer) {
        dk_oip_reply_writer_deinit(&result->writer);
    }
    atomic_fetch_sub(&result->daemon->answer_bytes, result->budget_bytes);
    free(result->copy);
    dk_job_release(result->daemon->jobs, result->job);
    free(result);
}

/* False: the copies that are being sent are too many already. */
static bool take_budget(struct result *result, size_t bytes)
{
    size_t before = atomic_fetch_add(&result->daemon->answer_bytes, bytes);
    if (before + bytes > DK_ANSWER_BYTES_MAX) {
        atomic_fetch_sub(&result->daemon->answer_bytes, bytes);
        return false;
    }
    result->budget_bytes = bytes;
    return true;
}

static enum MHD_Result out_of_memory(struct dk_http_request *request)
{
    struct dk_error error;
    (void)dk_fail(&error, DK_NO_MEMORY, "out of memory while answering");
    return dk_http_reply_error(request, &error);
}

/* Everything the answer says, borrowed from infer. */
static void describe(const struct dk_infer *infer, struct dk_oip_output *output, struct dk_oip_reply *reply)
{
    const struct dk_oip_request *request = &infer->request;
    const struct dk_job *job = infer->job;
    *output = (struct dk_oip_output){.name = request->outputs[0].name,
                                     .dtype = job->gemm.c_dtype,
                                     .rows = job->gemm.m,
                                     .row_length = job->gemm.n,
                                     .data = job->c,
                                     .kind = request->outputs[0].kind};
    *reply = (struct dk_oip_reply){.model_name = job->model->name,
                                   .id = request->has_id ? request->id : NULL,
                                   .outputs = output,
                                   .output_count = 1};
}

/* Adds what all answers of this route have, and sends. Takes `response`, which may be NULL. */
static enum MHD_Result send_response(struct dk_http_request *request, struct MHD_Response *response,
                                     bool is_binary, size_t json_bytes, enum dk_coding coding)
{
    if (response == NULL) {
        return out_of_memory(request);
    }
    if (is_binary) {
        char value[24];
        (void)snprintf(value, sizeof value, "%zu", json_bytes);
        (void)MHD_add_response_header(response, DK_OIP_HEADER_LENGTH, value);
    }
    if (coding != DK_CODING_IDENTITY) {
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_ENCODING, dk_coding_name(coding));
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_VARY, "Accept-Encoding");
    }
    return dk_http_reply(request, MHD_HTTP_OK, is_binary ? DK_MEDIA_RAW : DK_MEDIA_JSON, response);
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

static void write_json(struct dk_json_text *text, const struct dk_oip_reply *reply)
{
    const struct dk_oip_output *output = &reply->outputs[0];
    struct dk_oip_reply_writer writer;
    dk_oip_reply_writer_init(&writer, reply);
    size_t capacity = TEXT_BYTES_AROUND + output->rows * output->row_length * NUMBER_BYTES_GUESS;
    size_t written = 1;
    while (written > 0 && !text->failed) {
        if (text->capacity - text->length < TEXT_BYTES_AROUND && !reserve(text, text->capacity + capacity)) {
            break;
        }
        written = dk_oip_reply_writer_next(&writer, text->data + text->length, text->capacity - text->length);
        text->failed = written == SIZE_MAX;
        text->length += text->failed ? 0 : written;
    }
    dk_oip_reply_writer_deinit(&writer);
}

/* The whole answer in one buffer; *json_bytes of it are JSON. */
static void write_all(struct dk_json_text *text, const struct dk_oip_reply *reply, size_t *json_bytes)
{
    size_t binary_bytes = dk_oip_reply_binary_bytes(reply);
    if (reply->outputs[0].kind == DK_OIP_OUTPUT_JSON) {
        write_json(text, reply);
    } else {
        dk_oip_reply_json(text, reply);
    }
    *json_bytes = text->length;
    if (!text->failed && binary_bytes > 0 && reserve(text, text->length + binary_bytes)) {
        memcpy(text->data + text->length, reply->outputs[0].data, binary_bytes);
        text->length += binary_bytes;
    }
}

/* Takes `result`; the job is released before anything is sent. */
static enum MHD_Result reply_one_buffer(struct dk_http_request *request, struct dk_infer *infer,
                                        struct result *result)
{
    struct dk_oip_output output;
    struct dk_oip_reply reply;
    struct dk_json_text text = {0};
    size_t json_bytes;
    describe(infer, &output, &reply);
    write_all(&text, &reply, &json_bytes);
    bool is_binary = dk_oip_reply_binary_bytes(&reply) > 0;
    dk_infer_end(infer);
    enum dk_coding coding = text.length >= COMPRESS_BYTES_MIN && text.length <= COMPRESS_BYTES_MAX
                                ? dk_coding_choose(request->head.accept_encoding)
                                : DK_CODING_IDENTITY;
    if (text.failed) {
        dk_json_text_free(&text);
        result_free(result);
        return out_of_memory(request);
    }
    if (!dk_compress_text(&text, coding)) {
        coding = DK_CODING_IDENTITY;
    }
    result->copy = text.data;
    struct MHD_Response *response =
        MHD_create_response_from_buffer_with_free_callback_cls(text.length, text.data, result_free, result);
    if (response == NULL) {
        result_free(result);
    } else {
        dk_metrics_add(request->daemon->metrics, DK_METRIC_HTTP_SENT_BYTES, (int64_t)text.length);
    }
    return send_response(request, response, is_binary, json_bytes, coding);
}

static ssize_t stream_next(void *context, uint64_t position, char *out, size_t size)
{
    (void)position;
    struct result *result = context;
    size_t written = dk_oip_reply_writer_next(&result->writer, out, size);
    if (written == SIZE_MAX) {
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    dk_metrics_add(result->daemon->metrics, DK_METRIC_HTTP_SENT_BYTES, (int64_t)written);
    return written == 0 ? MHD_CONTENT_READER_END_OF_STREAM : (ssize_t)written;
}

/* Takes the job, or a copy of its tensor so that a client that does not read holds no slab. */
static void keep(struct result *result, struct dk_infer *infer)
{
    describe(infer, &result->output, &result->reply);
    (void)snprintf(result->model, sizeof result->model, "%s", result->reply.model_name);
    (void)snprintf(result->name, sizeof result->name, "%s", result->output.name);
    if (result->reply.id != NULL) {
        (void)snprintf(result->id, sizeof result->id, "%s", result->reply.id);
        result->reply.id = result->id;
    }
    result->reply.model_name = result->model;
    result->output.name = result->name;
    size_t bytes = infer->request.outputs[0].bytes;
    result->copy = take_budget(result, bytes) ? malloc(bytes) : NULL;
    if (result->copy != NULL) {
        memcpy(result->copy, result->output.data, bytes);
        result->output.data = result->copy;
    } else {
        result->job = infer->job;
        infer->job = NULL;
    }
    dk_infer_end(infer);
}

static enum MHD_Result reply_stream(struct dk_http_request *request, struct dk_infer *infer,
                                    struct result *result)
{
    keep(result, infer);
    bool is_binary = dk_oip_reply_binary_bytes(&result->reply) > 0;
    size_t json_bytes = is_binary ? dk_oip_reply_json_bytes(&result->reply) : 0;
    uint64_t total = is_binary ? json_bytes + dk_oip_reply_binary_bytes(&result->reply) : MHD_SIZE_UNKNOWN;
    dk_oip_reply_writer_init(&result->writer, &result->reply);
    result->has_writer = true;
    struct MHD_Response *response = NULL;
    if (json_bytes != SIZE_MAX) {
        response =
            MHD_create_response_from_callback(total, STREAM_BLOCK_BYTES, stream_next, result, result_free);
    }
    if (response == NULL) {
        result_free(result);
    }
    return send_response(request, response, is_binary, json_bytes, DK_CODING_IDENTITY);
}

enum MHD_Result dk_http_infer_reply(struct dk_http_request *request, struct dk_infer *infer)
{
    struct result *result = calloc(1, sizeof *result);
    if (result == NULL) {
        dk_infer_end(infer);
        return out_of_memory(request);
    }
    result->daemon = request->daemon;
    const struct dk_oip_requested_output *output = &infer->request.outputs[0];
    uint64_t number_count = infer->job->gemm.m * infer->job->gemm.n;
    bool is_large_json = output->kind == DK_OIP_OUTPUT_JSON && number_count > ONE_BUFFER_NUMBERS;
    bool is_over_budget =
        output->kind == DK_OIP_OUTPUT_BINARY && !take_budget(result, output->bytes + TEXT_BYTES_AROUND);
    return is_large_json || is_over_budget ? reply_stream(request, infer, result)
                                           : reply_one_buffer(request, infer, result);
}
