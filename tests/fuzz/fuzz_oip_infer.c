/* fuzz_oip_infer.c: any bytes as an infer request: the text of the header up to the first line feed, then the
 * body, fed as the daemon does it, at once and in pieces. Both must say the same; what is accepted must keep
 * the promises of oip_request.h, and the answer to it must be JSON of the length that was announced.
 */
#include <cjson/cJSON.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/gemm.h"
#include "proto/oip.h"

static void require(int condition, const char *text)
{
    if (!condition) {
        fprintf(stderr, "violated: %s\n", text);
        abort();
    }
}
#define REQUIRE(condition) require(condition, #condition)

enum { MAX_VALUE = 64, MAX_ROWS = 16 };

static const struct dk_oip_tensor_spec model_outputs[] = {
    {.name = "logits", .dtype = DK_FP32, .row_length = 3},
    {.name = "topk_ids", .dtype = DK_INT32, .row_length = 2},
};
static const struct dk_oip_model model = {.name = "m",
                                          .platform = "decomposek",
                                          .input = {.name = "x", .dtype = DK_BF16, .row_length = 4},
                                          .outputs = model_outputs,
                                          .output_count = 2,
                                          .max_batch_size = 4096};

struct outcome {
    dk_status status;
    char message[DK_MESSAGE_BYTES];
    struct dk_oip_request request; /* valid when status is DK_OK */
};

/* Parts of 1..limit bytes, lengths from a generator; limit 0: one part. Each in a block of its own size. */
static void feed(struct dk_json_reader *reader, const uint8_t *bytes, size_t length, uint64_t seed,
                 size_t limit, struct dk_error *error)
{
    for (size_t at = 0; at < length;) {
        seed = seed * 6364136223846793005U + 1442695040888963407U;
        size_t part = limit == 0 ? length : 1 + (size_t)(seed >> 33) % limit;
        part = part < length - at ? part : length - at;
        char *block = malloc(part);
        dk_dtype dtype;
        REQUIRE(block != NULL);
        memcpy(block, bytes + at, part);
        (void)dk_json_reader_feed(reader, block, part, error);
        free(block);
        if ((seed >> 62) == 0) {
            (void)dk_oip_peek_datatype(reader, (uint32_t)(seed >> 60), &dtype);
        }
        at += part;
    }
}

static dk_status run_json(const struct dk_oip_framing *framing, const uint8_t *body, size_t length,
                          uint64_t seed, size_t limit, struct dk_oip_request *request, struct dk_error *error)
{
    struct dk_json_reader *reader;
    size_t json_bytes = framing->kind == DK_OIP_ALL_JSON ? length : (size_t)framing->json_bytes;
    REQUIRE(dk_json_reader_new(dk_oip_paths, DK_OIP_PATH_COUNT, NULL, &reader) == DK_OK);
    feed(reader, body, json_bytes, seed, limit, error);
    dk_status status = dk_oip_request_parse(reader, request, error);
    dk_json_reader_free(reader);
    if (status == DK_OK) {
        status = dk_oip_request_check_binary(request, framing, length, error);
    }
    return status == DK_OK ? dk_oip_request_check(request, &model, error) : status;
}

static void run(const char *value, const uint8_t *body, size_t length, uint64_t seed, size_t limit,
                struct outcome *outcome)
{
    struct dk_error error = {0};
    struct dk_oip_framing framing;
    memset(outcome, 0, sizeof *outcome);
    dk_status status = dk_oip_framing_parse(value, &framing, &error);
    if (status == DK_OK) {
        status = dk_oip_framing_check(&framing, length, &error);
    }
    if (status == DK_OK && framing.kind == DK_OIP_RAW) {
        status = dk_oip_request_init_raw(&outcome->request, &model, length, &error);
    } else if (status == DK_OK) {
        status = run_json(&framing, body, length, seed, limit, &outcome->request, &error);
    }
    outcome->status = status;
    if (status != DK_OK) {
        REQUIRE(error.status == status && error.message[0] != '\0');
        REQUIRE(dk_status_http(status) < 500 || status == DK_UNSUPPORTED);
        memcpy(outcome->message, error.message, sizeof error.message);
    }
}

static int is_same_memory(const struct dk_oip_shared_memory *a, const struct dk_oip_shared_memory *b)
{
    return strcmp(a->region, b->region) == 0 && a->offset == b->offset && a->byte_size == b->byte_size;
}

/* Field by field: padding may differ. */
static int is_same(const struct dk_oip_request *a, const struct dk_oip_request *b)
{
    int same = a->has_id == b->has_id && strcmp(a->id, b->id) == 0 && a->priority == b->priority &&
               a->timeout_us == b->timeout_us && a->is_output_binary == b->is_output_binary &&
               a->has_output_dtype == b->has_output_dtype && a->output_dtype == b->output_dtype &&
               a->input_count == b->input_count && a->binary_bytes == b->binary_bytes &&
               a->output_count == b->output_count && a->rows == b->rows;
    const struct dk_oip_input *x = &a->inputs[0];
    const struct dk_oip_input *y = &b->inputs[0];
    same = same && x->dtype == y->dtype && x->source == y->source &&
           memcmp(x->shape, y->shape, sizeof x->shape) == 0 &&
           is_same_memory(&x->shared_memory, &y->shared_memory);
    for (size_t i = 0; same && i < a->output_count; i++) {
        same = a->outputs[i].index == b->outputs[i].index && a->outputs[i].kind == b->outputs[i].kind &&
               a->outputs[i].dtype == b->outputs[i].dtype && a->outputs[i].bytes == b->outputs[i].bytes &&
               is_same_memory(&a->outputs[i].shared_memory, &b->outputs[i].shared_memory);
    }
    return same;
}

static void check_request(const struct dk_oip_request *request)
{
    const struct dk_oip_input *input = &request->inputs[0];
    REQUIRE(request->input_count == 1 && strcmp(input->name, "x") == 0);
    REQUIRE(input->rank == 2 && input->shape[1] == 4 && input->shape[0] == request->rows);
    REQUIRE(request->rows <= DK_MAX_M && input->count == request->rows * 4);
    REQUIRE(input->bytes == input->count * dk_dtype_bytes(input->dtype) && dk_dtype_is_float(input->dtype));
    REQUIRE(input->source == DK_OIP_SOURCE_BINARY ? request->binary_bytes == input->bytes
                                                  : request->binary_bytes == 0);
    REQUIRE(input->source != DK_OIP_SOURCE_SHARED_MEMORY || input->shared_memory.byte_size == input->bytes);
    REQUIRE(request->output_count >= 1 && request->output_count <= 2);
    for (size_t i = 0; i < request->output_count; i++) {
        const struct dk_oip_requested_output *output = &request->outputs[i];
        REQUIRE(strcmp(output->name, model_outputs[output->index].name) == 0);
        REQUIRE(output->bytes ==
                request->rows * model_outputs[output->index].row_length * dk_dtype_bytes(output->dtype));
        REQUIRE(output->kind != DK_OIP_OUTPUT_SHARED_MEMORY ||
                output->shared_memory.byte_size >= output->bytes);
    }
}

/* The answer to the request, with data taken from the body so that it holds anything. */
static void check_reply(const struct dk_oip_request *request, const uint8_t *body, size_t length)
{
    static unsigned char data[MAX_ROWS * 3 * 4];
    static char answer[16 * 1024];
    struct dk_oip_output outputs[DK_OIP_MAX_OUTPUTS];
    struct dk_oip_reply_writer writer;
    uint64_t rows = request->rows < MAX_ROWS ? request->rows : MAX_ROWS;
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = length == 0 ? 0xFF : body[(length + i * 7) % length];
    }
    for (size_t i = 0; i < request->output_count; i++) {
        const struct dk_oip_requested_output *output = &request->outputs[i];
        outputs[i] = (struct dk_oip_output){.name = output->name,
                                            .dtype = output->dtype,
                                            .rows = rows,
                                            .row_length = model_outputs[output->index].row_length,
                                            .data = data,
                                            .kind = output->kind};
    }
    const struct dk_oip_reply reply = {.model_name = "m",
                                       .id = request->has_id ? request->id : NULL,
                                       .outputs = outputs,
                                       .output_count = request->output_count};
    size_t total = 0;
    size_t written;
    dk_oip_reply_writer_init(&writer, &reply);
    do {
        written = dk_oip_reply_writer_next(&writer, answer + total, 256 + length % 500);
        REQUIRE(written <= 256 + length % 500);
        total += written;
    } while (written > 0);
    dk_oip_reply_writer_deinit(&writer);
    size_t json_bytes = dk_oip_reply_json_bytes(&reply);
    REQUIRE(json_bytes + dk_oip_reply_binary_bytes(&reply) == total);
    struct dk_json_reader *reader; /* strict: NaN must not get out */
    struct dk_error error;
    REQUIRE(dk_json_reader_new(NULL, 0, NULL, &reader) == DK_OK);
    REQUIRE(dk_json_reader_feed(reader, answer, json_bytes, &error) == DK_OK);
    const char *skeleton;
    size_t skeleton_length;
    REQUIRE(dk_json_reader_finish(reader, &skeleton, &skeleton_length, &error) == DK_OK);
    cJSON *root = cJSON_ParseWithLength(skeleton, skeleton_length);
    REQUIRE((size_t)cJSON_GetArraySize(cJSON_GetObjectItem(root, "outputs")) == request->output_count);
    REQUIRE((cJSON_GetObjectItem(root, "id") != NULL) == request->has_id);
    cJSON_Delete(root);
    dk_json_reader_free(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct outcome whole;
    static struct outcome split;
    char value[MAX_VALUE + 1];
    const uint8_t *end = size == 0 ? NULL : memchr(data, '\n', size);
    size_t value_length = end == NULL ? 0 : (size_t)(end - data);
    if (end == NULL || value_length > MAX_VALUE) {
        return 0; /* no header: nothing to learn from */
    }
    memcpy(value, data, value_length);
    value[value_length] = '\0';
    const char *header = strcmp(value, "none") == 0 ? NULL : value;
    const uint8_t *body = end + 1;
    size_t length = size - value_length - 1;
    uint64_t seed = size;
    for (size_t i = 0; i < size; i++) {
        seed = (seed ^ data[i]) * 0x100000001B3U;
    }
    run(header, body, length, seed, 0, &whole);
    run(header, body, length, seed, 1 + seed % 13, &split);
    REQUIRE(whole.status == split.status && strcmp(whole.message, split.message) == 0);
    if (whole.status == DK_OK) {
        REQUIRE(is_same(&whole.request, &split.request));
        check_request(&whole.request);
        check_reply(&whole.request, body, length);
    }
    return 0;
}
