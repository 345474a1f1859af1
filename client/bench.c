/* bench.c: what the transports of a benchmark share. */
#include "client/bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/metrics_text.h"

enum { MAX_METRICS_BYTES = 64 * 1024 * 1024 };

static void copy_label(const struct dk_metric_sample *sample, const char *name, char *out, size_t size)
{
    const char *value = dk_metric_label(sample, name);
    (void)snprintf(out, size, "%s", value ? value : "");
}

/* From the labels of decomposek_info. What cannot be read stays empty: the report says so. */
static void ask_metrics(struct dk_bench_server *server, struct dk_http_client *client)
{
    const struct dk_http_request request = {
        .method = "GET", .path = "/metrics", .accept = "text/plain", .max_answer_bytes = MAX_METRICS_BYTES};
    struct dk_http_response response;
    struct dk_error ignored;
    if (dk_http_client_send(client, &request, &response, &ignored) != DK_OK)
        return;
    struct dk_metrics_cursor cursor;
    struct dk_metric_sample sample;
    dk_metrics_cursor_init(&cursor, response.body, response.body_bytes);
    while (dk_metrics_text_next(&cursor, &sample, &ignored) == DK_METRICS_SAMPLE)
        if (strcmp(sample.name, "decomposek_info") == 0) {
            copy_label(&sample, "version", server->version, sizeof server->version);
            copy_label(&sample, "backend", server->backend, sizeof server->backend);
            copy_label(&sample, "device", server->device, sizeof server->device);
            copy_label(&sample, "isa", server->isa, sizeof server->isa);
            break;
        }
    dk_http_response_deinit(&response);
}

dk_status dk_bench_ask_server(struct dk_bench *bench, struct dk_http_client *client, struct dk_error *error)
{
    dk_status status = dk_remote_find_model(client, bench->options.model, &bench->model, error);
    if (status == DK_OK) {
        bench->dtype = bench->options.has_dtype ? bench->options.dtype : bench->model.dtype;
        ask_metrics(&bench->server, client);
    }
    return status;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

dk_status dk_bench_check_answers(const float *answers, uint32_t repeat, uint64_t rows, uint64_t n,
                                 struct dk_error *error)
{
    size_t count = (size_t)(rows * n);
    for (size_t i = 0; i < count; i++) {
        unsigned long long row = i / n, column = i % n;
        if (!isfinite(answers[i]))
            return dk_fail(error, DK_INTERNAL, "y[%llu][%llu] is %g for finite rows", row, column,
                           (double)answers[i]);
        for (uint32_t turn = 1; turn < repeat; turn++)
            if (bits_of(answers[i]) != bits_of(answers[turn * count + i]))
                return dk_fail(error, DK_INTERNAL, "y[%llu][%llu] is %.9g and then %.9g for the same rows",
                               row, column, (double)answers[i], (double)answers[turn * count + i]);
    }
    return DK_OK;
}
