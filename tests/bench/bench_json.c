/* bench_json.c: nanoseconds per number of reading and writing JSON tensors, against cJSON in the same run. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/dtype.h"
#include "proto/json_reader.h"
#include "proto/json_writer.h"

enum { NUMBER_COUNT = 7168 * 64, REPEATS = 7, FEED_BYTES = 64 * 1024 };

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static double median(double *samples)
{
    qsort(samples, REPEATS, sizeof samples[0], compare_doubles);
    return samples[REPEATS / 2];
}

static uint64_t random_state = 88172645463325252U;

static uint64_t random_u64(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Near to a normal distribution, as activations are. */
static double random_value(void)
{
    double sum = -6.0;
    for (int i = 0; i < 12; i++) {
        sum += (double)(random_u64() >> 11) * 0x1p-53;
    }
    return sum;
}

/* {"model":"gate","x":[[...],...]} with 7168 numbers in a row, each printed by `format`. */
static char *make_body(const char *format, size_t *length)
{
    size_t capacity = (size_t)NUMBER_COUNT * 28 + 64;
    char *body = malloc(capacity);
    if (body == NULL) {
        exit(1);
    }
    size_t at = (size_t)snprintf(body, capacity, "{\"model\":\"gate\",\"x\":[");
    for (int i = 0; i < NUMBER_COUNT; i++) {
        body[at++] = i % 7168 == 0 ? '[' : ' ';
        at += (size_t)snprintf(body + at, 28, format, random_value());
        if (i % 7168 == 7167) {
            body[at++] = ']';
        }
        body[at++] = ',';
    }
    memcpy(body + at - 1, "]}", 3);
    *length = at + 1;
    return body;
}

struct bf16_sink {
    uint16_t *values;
};

static dk_status round_values(void *context, const struct dk_json_tensor *tensor, uint64_t offset,
                              const double *values, size_t count, struct dk_error *error)
{
    (void)tensor;
    (void)error;
    struct bf16_sink *sink = context;
    dk_convert_from_double(values, sink->values + offset, DK_BF16, count);
    return DK_OK;
}

static double time_reader(const char *body, size_t length, struct bf16_sink *target)
{
    static const char *const paths[] = {"x"};
    struct dk_json_sink sink = {.context = target, .values = round_values};
    double samples[REPEATS];
    for (int r = 0; r < REPEATS; r++) {
        struct dk_json_reader *reader;
        struct dk_error error = {0};
        const char *skeleton;
        size_t skeleton_length;
        double start = now_ns();
        dk_status status = dk_json_reader_new(paths, 1, &sink, &reader);
        for (size_t at = 0; status == DK_OK && at < length; at += FEED_BYTES) {
            size_t part = length - at < FEED_BYTES ? length - at : FEED_BYTES;
            status = dk_json_reader_feed(reader, body + at, part, &error);
        }
        if (status != DK_OK || dk_json_reader_finish(reader, &skeleton, &skeleton_length, &error) != DK_OK) {
            fprintf(stderr, "bench_json: %s\n", error.message);
            exit(1);
        }
        dk_json_reader_free(reader);
        samples[r] = now_ns() - start;
    }
    return median(samples) / NUMBER_COUNT;
}

static double time_cjson(const char *body, size_t length)
{
    double samples[REPEATS];
    for (int r = 0; r < REPEATS; r++) {
        double start = now_ns();
        cJSON *root = cJSON_ParseWithLength(body, length);
        if (root == NULL) {
            exit(1);
        }
        samples[r] = now_ns() - start;
        cJSON_Delete(root);
    }
    return median(samples) / NUMBER_COUNT;
}

static void bench_reading(const char *name, const char *format, struct bf16_sink *target)
{
    size_t length;
    char *body = make_body(format, &length);
    double ours = time_reader(body, length, target);
    double peer = time_cjson(body, length);
    printf("read  %-22s %8.1f ns %8.1f ns %7.1fx %8.2f bytes/number\n", name, ours, peer, peer / ours,
           (double)length / NUMBER_COUNT);
    free(body);
}

static double time_writer(const void *data, dk_dtype dtype, size_t *bytes)
{
    static char chunk[32 * 1024];
    double samples[REPEATS];
    for (int r = 0; r < REPEATS; r++) {
        struct dk_json_tensor_writer writer;
        double start = now_ns();
        size_t length;
        *bytes = 0;
        dk_json_tensor_writer_init(&writer, data, dtype, NUMBER_COUNT / 256, 256, true);
        while ((length = dk_json_tensor_writer_next(&writer, chunk, sizeof chunk)) > 0) {
            *bytes += length;
        }
        samples[r] = now_ns() - start;
    }
    return median(samples) / NUMBER_COUNT;
}

static double time_cjson_print(const float *values)
{
    cJSON *array = cJSON_CreateFloatArray(values, NUMBER_COUNT);
    if (array == NULL) {
        exit(1);
    }
    double samples[REPEATS];
    for (int r = 0; r < REPEATS; r++) {
        double start = now_ns();
        char *text = cJSON_PrintUnformatted(array);
        samples[r] = now_ns() - start;
        cJSON_free(text);
    }
    cJSON_Delete(array);
    return median(samples) / NUMBER_COUNT;
}

static void bench_writing(const char *name, dk_dtype dtype, const float *values, void *narrow)
{
    size_t bytes;
    dk_convert_from_float(values, narrow, dtype, NUMBER_COUNT);
    double ours = time_writer(narrow, dtype, &bytes);
    double peer = time_cjson_print(values);
    printf("write %-22s %8.1f ns %8.1f ns %7.1fx %8.2f bytes/number\n", name, ours, peer, peer / ours,
           (double)bytes / NUMBER_COUNT);
}

int main(void)
{
    static uint16_t rounded[NUMBER_COUNT];
    static float values[NUMBER_COUNT];
    static float narrow[NUMBER_COUNT];
    struct bf16_sink target = {.values = rounded};
    printf("%d numbers, medians of %d; reading includes rounding to bf16, fed by %d bytes\n", NUMBER_COUNT,
           REPEATS, FEED_BYTES);
    printf("%-28s %11s %11s %8s\n", "", "ours", "cJSON", "ratio");
    bench_reading("%.9f", "%.9f", &target);
    bench_reading("%.6g", "%.6g", &target);
    bench_reading("%.4f", "%.4f", &target);
    bench_reading("%.17g", "%.17g", &target);
    bench_reading("%.8e", "%.8e", &target);
    for (int i = 0; i < NUMBER_COUNT; i++) {
        values[i] = (float)random_value();
    }
    bench_writing("fp32", DK_FP32, values, narrow);
    bench_writing("bf16", DK_BF16, values, narrow);
    return 0;
}
