/* fuzz_json_reader.c: any bytes through the JSON reader, twice: at once, and split at places taken from the
 * bytes. Both must say the same; what is accepted, cJSON must parse too, and what is a number, strtod reads.
 */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_reader.h"
#include "proto/native_api.h"

static void require(int condition, const char *text)
{
    if (!condition) {
        fprintf(stderr, "violated: %s\n", text);
        abort();
    }
}
#define REQUIRE(condition) require(condition, #condition)

/* Everything one run said, values as a running hash. */
struct outcome {
    dk_status status;
    char message[DK_MESSAGE_BYTES];
    uint64_t value_hash, value_count, in_tensor;
    size_t tensor_count, begin_count, end_count, skeleton_length;
    struct dk_json_tensor tensors[DK_JSON_MAX_TENSORS];
    char skeleton[DK_JSON_MAX_SKELETON_BYTES + 1];
};

static dk_status on_begin(void *context, const struct dk_json_tensor *tensor, struct dk_error *error)
{
    (void)tensor;
    (void)error;
    struct outcome *outcome = context;
    outcome->begin_count++;
    outcome->in_tensor = 0;
    return DK_OK;
}

static dk_status on_values(void *context, const struct dk_json_tensor *tensor, uint64_t offset,
                           const double *values, size_t count, struct dk_error *error)
{
    (void)tensor;
    (void)error;
    struct outcome *outcome = context;
    REQUIRE(count > 0 && offset == outcome->in_tensor);
    outcome->in_tensor += count;
    outcome->value_count += count;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits;
        REQUIRE(isfinite(values[i]));
        memcpy(&bits, &values[i], sizeof bits);
        outcome->value_hash = (outcome->value_hash ^ bits) * 0x100000001B3U;
    }
    return DK_OK;
}

static dk_status on_end(void *context, const struct dk_json_tensor *tensor, struct dk_error *error)
{
    (void)error;
    struct outcome *outcome = context;
    outcome->end_count++;
    uint64_t product = 1;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        product *= tensor->shape[i];
    }
    REQUIRE(tensor->rank >= 1 && tensor->rank <= DK_JSON_MAX_TENSOR_RANK);
    REQUIRE(tensor->count == product && tensor->count == outcome->in_tensor);
    return DK_OK;
}

/* Parts of 1..limit bytes, lengths from a generator; limit 0: one part. Each in a block of its own size. */
static void run(const uint8_t *bytes, size_t length, uint64_t seed, size_t limit, struct outcome *outcome)
{
    static const char *const paths[] = {"x", "a", "b", "bias", "inputs[].data"};
    const struct dk_json_sink sink = {outcome, on_begin, on_values, on_end};
    struct dk_json_reader *reader;
    struct dk_error error = {0};
    const char *skeleton;
    memset(outcome, 0, offsetof(struct outcome, skeleton));
    outcome->skeleton[0] = '\0';
    REQUIRE(dk_json_reader_new(paths, 5, &sink, &reader) == DK_OK);
    for (size_t at = 0; at < length;) {
        seed = seed * 6364136223846793005U + 1442695040888963407U;
        size_t part = limit == 0 ? length : 1 + (size_t)(seed >> 33) % limit;
        part = part < length - at ? part : length - at;
        char *block = malloc(part);
        char name[8];
        REQUIRE(block != NULL);
        memcpy(block, bytes + at, part);
        (void)dk_json_reader_feed(reader, block, part, &error);
        free(block);
        if ((seed >> 60) == 0) { /* now and then: it walks over the whole skeleton */
            (void)dk_json_reader_peek_string(reader, "model", name, sizeof name);
        }
        at += part;
    }
    outcome->status = dk_json_reader_finish(reader, &skeleton, &outcome->skeleton_length, &error);
    if (outcome->status == DK_OK) {
        memcpy(outcome->skeleton, skeleton, outcome->skeleton_length + 1);
    } else {
        REQUIRE(error.status == outcome->status);
        memcpy(outcome->message, error.message, sizeof error.message);
    }
    outcome->tensor_count = dk_json_reader_tensor_count(reader);
    for (size_t i = 0; i < outcome->tensor_count; i++) {
        outcome->tensors[i] = *dk_json_reader_tensor(reader, i);
    }
    dk_json_reader_free(reader);
}

static void check_number(const uint8_t *bytes, size_t length)
{
    char text[64];
    double value;
    if (length == 0 || length >= sizeof text || !dk_json_parse_number((const char *)bytes, length, &value)) {
        return;
    }
    memcpy(text, bytes, length);
    text[length] = '\0';
    char *end;
    double expected = strtod(text, &end);
    REQUIRE(*end == '\0' && memcmp(&value, &expected, sizeof value) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct outcome whole;
    static struct outcome split;
    uint64_t seed = size;
    for (size_t i = 0; i < size; i++) {
        seed = (seed ^ data[i]) * 0x100000001B3U;
    }
    run(data, size, seed, 0, &whole);
    run(data, size, seed, 1 + seed % 13, &split);
    REQUIRE(whole.status == split.status && strcmp(whole.message, split.message) == 0);
    REQUIRE(memcmp(&whole, &split, offsetof(struct outcome, skeleton)) == 0);
    REQUIRE(strcmp(whole.skeleton, split.skeleton) == 0);
    if (whole.status == DK_OK) {
        REQUIRE(whole.begin_count == whole.end_count && whole.end_count == whole.tensor_count);
        REQUIRE(strlen(whole.skeleton) == whole.skeleton_length);
        cJSON *root = cJSON_ParseWithLength(whole.skeleton, whole.skeleton_length);
        REQUIRE(cJSON_IsObject(root));
        cJSON_Delete(root);
        struct dk_matmul_request request;
        struct dk_error error = {0};
        dk_status status = dk_matmul_request_parse(whole.skeleton, whole.skeleton_length, &request, &error);
        REQUIRE(status == DK_OK || error.message[0] != '\0');
    }
    check_number(data, size);
    return 0;
}
