/* shm_fixture.h: a server, a client with eight ring entries and 64 KiB of data, and its model "sum". */
#ifndef DK_TESTS_CLIENT_SHM_FIXTURE_H
#define DK_TESTS_CLIENT_SHM_FIXTURE_H

#include "decomposek_client.h"
#include "tests/unit/client/ring_server.h"

static struct ring_server server;
static struct dk_client *client;
static struct dk_client_model *sum;

enum { K = 4, N = 3, ENTRIES = 8 };

static inline void open_with(struct dk_client_options options)
{
    struct dk_error error = {0};
    if (dk_client_open(server.address, &options, &client, &error) != DK_OK ||
        dk_client_model_open(client, "sum", &sum, &error) != DK_OK)
        fail_msg("%s", error.message);
}

static inline void reopen(struct dk_client_options options)
{
    dk_client_close(client);
    open_with(options);
}

static inline int start(void **state)
{
    (void)state;
    ring_server_start(&server);
    open_with((struct dk_client_options){.ring_entries = ENTRIES, .data_bytes = 1 << 16, .timeout_ms = 5000});
    return 0;
}

static inline int stop(void **state)
{
    (void)state;
    dk_client_close(client);
    ring_server_stop(&server);
    return 0;
}

static inline void fill(float *a, size_t rows, int seed)
{
    for (size_t i = 0; i < rows * K; i++)
        a[i] = (float)((int)(i * 7 + (size_t)seed * 13) % 31 - 15);
}

static inline void check_sums(const float *a, const float *c, size_t rows)
{
    for (size_t i = 0; i < rows; i++) {
        float total = a[i * K] + a[i * K + 1] + a[i * K + 2] + a[i * K + 3];
        for (size_t j = 0; j < N; j++)
            if (c[i * N + j] != total * (float)(j + 1))
                fail_msg("c[%zu][%zu] is %g, expected %g", i, j, (double)c[i * N + j],
                         (double)(total * (float)(j + 1)));
    }
}

static inline dk_status infer(const float *a, float *c, uint64_t rows, struct dk_client_timing *timing,
                              struct dk_error *error)
{
    const struct dk_client_request request = {.rows = rows, .a = a, .c = c};
    return dk_client_infer(sum, &request, timing, error);
}

static inline dk_status submit(const float *a, float *c, uint64_t rows, void *user_data,
                               struct dk_error *error)
{
    const struct dk_client_request request = {.rows = rows, .a = a, .c = c, .user_data = user_data};
    return dk_client_submit(sum, &request, error);
}

#endif
