/* bench_shm.c: a benchmark over the shared-memory ring. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench.h"
#include "client/load_shm.h"

enum { ADDRESS_BYTES = 160 };

static dk_status make_address(const char *path, char out[ADDRESS_BYTES], struct dk_error *error)
{
    int length = snprintf(out, ADDRESS_BYTES, "unix:%s", path);
    return length > 0 && length < ADDRESS_BYTES
               ? DK_OK
               : dk_fail(error, DK_BAD_VALUE, "--shm-socket '%s' is longer than a socket's path", path);
}

/* The model as the ring sees it. */
static dk_status ask_ring(struct dk_bench *bench, struct dk_error *error)
{
    char address[ADDRESS_BYTES];
    struct dk_client *client = NULL;
    struct dk_client_model *model = NULL;
    const struct dk_client_options options = {.timeout_ms = (uint32_t)(bench->options.http.timeout_s * 1e3)};
    dk_status status = make_address(bench->options.shm_socket, address, error);
    if (status == DK_OK)
        status = dk_client_open(address, &options, &client, error);
    if (status == DK_OK)
        status = dk_client_model_open(client, bench->options.model, &model, error);
    if (status == DK_OK) {
        const struct dk_client_model_info *info = dk_client_model_get_info(model);
        bench->model = (struct dk_remote_model){.n = info->n, .k = info->k, .dtype = info->dtype};
        (void)snprintf(bench->model.name, sizeof bench->model.name, "%s", info->name);
        bench->dtype = bench->options.has_dtype ? bench->options.dtype : info->dtype;
    }
    dk_client_model_close(model);
    dk_client_close(client);
    return status;
}

static dk_status shm_begin(struct dk_bench *bench, struct dk_error *error)
{
    dk_status status = ask_ring(bench, error);
    if (status != DK_OK)
        return status;
    /* The ring does not say what computes behind it; HTTP does, where it is open. */
    const struct dk_remote_model model = bench->model;
    struct dk_http_client *http;
    struct dk_error ignored;
    if (dk_http_client_new(&bench->options.http, &http, &ignored) == DK_OK) {
        if (dk_bench_ask_server(bench, http, &ignored) == DK_OK &&
            (bench->model.n != model.n || bench->model.k != model.k))
            bench->server = (struct dk_bench_server){0}; /* another daemon answers there */
        dk_http_client_free(http);
    }
    bench->model = model;
    return DK_OK;
}

static dk_status check(const struct dk_load_shm *shm, struct dk_error *error)
{
    size_t count = (size_t)(shm->rows * shm->n);
    float *answers = malloc(DK_BENCH_CHECKS * count * sizeof *answers + 1);
    if (!answers)
        return dk_fail(error, DK_NO_MEMORY, "no memory for the answers of %llu rows",
                       (unsigned long long)shm->rows);
    dk_status status = DK_OK;
    for (uint32_t i = 0; i < DK_BENCH_CHECKS && status == DK_OK; i++)
        status = dk_load_shm_fetch(shm, answers + i * count, error);
    if (status == DK_OK)
        status = dk_bench_check_answers(answers, DK_BENCH_CHECKS, shm->rows, shm->n, error);
    free(answers);
    return status;
}

static dk_status shm_measure(struct dk_bench *bench, uint64_t rows, struct dk_load_result *out,
                             struct dk_error *error)
{
    char address[ADDRESS_BYTES];
    dk_status status = make_address(bench->options.shm_socket, address, error);
    if (status != DK_OK)
        return status;
    void *x = dk_bench_make_rows(rows, bench->model.k, bench->dtype, bench->options.load.seed);
    if (!x)
        return dk_fail(error, DK_NO_MEMORY, "no memory for %llu rows", (unsigned long long)rows);
    const struct dk_load_shm shm = {.address = address,
                                    .model = bench->options.model,
                                    .rows = rows,
                                    .n = bench->model.n,
                                    .k = bench->model.k,
                                    .dtype = bench->dtype,
                                    .x = x,
                                    .timeout_s = bench->options.http.timeout_s,
                                    .spin_us = bench->options.spin_us,
                                    .is_copying = bench->options.is_copying};
    struct dk_load_transport transport = dk_load_shm_transport;
    transport.context = &shm;
    struct dk_load_plan plan = bench->options.load;
    plan.transport = &transport;
    status = check(&shm, error);
    if (status == DK_OK)
        status = dk_load_run(&plan, out, error);
    free(x);
    return status;
}

const struct dk_bench_way dk_bench_shm = {"shm", shm_begin, shm_measure};
