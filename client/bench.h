/* bench.h: one benchmark: what to measure, over which transport, and what the other side is. */
#ifndef DK_CLIENT_BENCH_H
#define DK_CLIENT_BENCH_H

#include "client/bench_request.h"
#include "client/load.h"
#include "client/remote.h"

enum { DK_BENCH_MAX_ROWS = 32 };

struct dk_bench;

/* A transport as the benchmark sees it. */
struct dk_bench_way {
    const char *name;
    /* Fills bench->model, dtype and server; keeps no connection. */
    dk_status (*begin)(struct dk_bench *bench, struct dk_error *error);
    /* Check the answers for `rows` rows, then measure them. */
    dk_status (*measure)(struct dk_bench *bench, uint64_t rows, struct dk_load_result *out,
                         struct dk_error *error);
};
extern const struct dk_bench_way dk_bench_http, dk_bench_shm, dk_bench_inproc;

struct dk_bench_options {
    const struct dk_bench_way *way;
    struct dk_http_options http; /* URL, UNIX socket and timeout; also of shm and inproc, to ask for models */
    enum dk_bench_protocol protocol;
    const char *model, *shape;     /* shape: inproc only, instead of a model: "K,N[,DTYPE]" */
    const char *backend;           /* inproc: "auto", "cpu", "cuda"; NULL: auto */
    uint32_t compute_thread_count; /* inproc; 0: all */
    const char *shm_socket;
    uint32_t spin_us; /* shm, as dk_client_options.spin_us */
    bool is_copying;  /* shm: x and y in ordinary memory */
    uint64_t rows[DK_BENCH_MAX_ROWS];
    uint32_t rows_count;
    bool has_dtype; /* false: x is of the weights' type */
    dk_dtype dtype;
    struct dk_load_plan load; /* transport is filled in by the way; slot_count = clients * inflight */
    uint32_t client_count, inflight_count;
};

/* Empty texts: not known. */
struct dk_bench_server {
    char version[64], backend[32], device[160], isa[64];
};

struct dk_bench {
    struct dk_bench_options options;
    struct dk_remote_model model;
    dk_dtype dtype; /* of x */
    struct dk_bench_server server;
    /* http */
    struct dk_load_http_target target;
    struct dk_bench_tensor_names names;
};

/* The model by GET /v1/models, and the server by GET /metrics (left empty when there is none to read). */
dk_status dk_bench_ask_server(struct dk_bench *bench, struct dk_http_client *client, struct dk_error *error);

/* Whether `repeat` answers of [rows, n] fp32 that lie one after the other are finite and bit for bit equal:
 * DK_INTERNAL names the first element that is not. */
dk_status dk_bench_check_answers(const float *answers, uint32_t repeat, uint64_t rows, uint64_t n,
                                 struct dk_error *error);
enum { DK_BENCH_CHECKS = 3 };

#endif
