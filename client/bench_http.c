/* bench_http.c: a benchmark over HTTP, /v1 or /v2. */
#include <stdlib.h>

#include "client/bench.h"

static dk_status http_begin(struct dk_bench *bench, struct dk_error *error)
{
    struct dk_http_client *client;
    dk_status status = dk_http_client_new(&bench->options.http, &client, error);
    if (status != DK_OK)
        return status;
    status = dk_bench_ask_server(bench, client, error);
    if (status == DK_OK && bench->options.protocol == DK_BENCH_V2)
        status = dk_bench_tensor_names_get(client, bench->options.model, &bench->names, error);
    if (status == DK_OK)
        status = dk_load_http_resolve(&bench->options.http, &bench->target, error);
    dk_http_client_free(client);
    return status;
}

/* Several answers, each over a connection of its own, must agree. */
static dk_status check(const struct dk_bench *bench, const struct dk_load_http *http, uint64_t rows,
                       struct dk_error *error)
{
    size_t count = (size_t)(http->answer_bytes / sizeof(float));
    float *answers = malloc(DK_BENCH_CHECKS * count * sizeof *answers + 1);
    if (!answers)
        return dk_fail(error, DK_NO_MEMORY, "no memory for the answers of %llu rows",
                       (unsigned long long)rows);
    dk_status status = DK_OK;
    for (uint32_t i = 0; i < DK_BENCH_CHECKS && status == DK_OK; i++)
        status = dk_load_http_fetch(http, answers + i * count, error);
    if (status == DK_OK)
        status = dk_bench_check_answers(answers, DK_BENCH_CHECKS, rows, bench->model.n, error);
    free(answers);
    return status;
}

static dk_status http_measure(struct dk_bench *bench, uint64_t rows, struct dk_load_result *out,
                              struct dk_error *error)
{
    struct dk_bench_request request = {0};
    void *x = dk_bench_make_rows(rows, bench->model.k, bench->dtype, bench->options.load.seed);
    dk_status status = x ? dk_bench_request_init(&bench->target, bench->options.protocol, &bench->model,
                                                 &bench->names, rows, bench->dtype, x, &request, error)
                         : dk_fail(error, DK_NO_MEMORY, "no memory for %llu rows", (unsigned long long)rows);
    free(x);
    if (status != DK_OK)
        return status;
    const struct dk_load_http http = {.target = &bench->target,
                                      .request = request.bytes,
                                      .request_bytes = request.length,
                                      .answer_bytes = request.answer_bytes,
                                      .timeout_s = bench->options.http.timeout_s};
    struct dk_load_transport transport = dk_load_http_transport;
    transport.context = &http;
    struct dk_load_plan plan = bench->options.load;
    plan.transport = &transport;
    status = check(bench, &http, rows, error);
    if (status == DK_OK)
        status = dk_load_run(&plan, out, error);
    dk_bench_request_deinit(&request);
    return status;
}

const struct dk_bench_way dk_bench_http = {"http", http_begin, http_measure};
