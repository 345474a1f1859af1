/* bench_inproc.c: a benchmark of the kernels in a process of their own, without a daemon in between. */
#include "client/bench_inproc.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/program.h"

enum { HEADER_BYTES = 4096, RECORD_BATCH = 4096, TEXT_BYTES = 24, MAX_ARGUMENTS = 32 };

/* --- what the program writes --------------------------------------------------------------------------- */

static void copy_text(const cJSON *header, const char *name, char *out, size_t size)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(header, name);
    (void)snprintf(out, size, "%s", cJSON_IsString(item) ? item->valuestring : "");
}

/* The first line, byte by byte: what follows it is binary. */
static dk_status read_header(int fd, struct dk_bench_server *server, struct dk_error *error)
{
    char line[HEADER_BYTES];
    size_t length = 0;
    for (;;) {
        ssize_t got = read(fd, line + length, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0 || length == sizeof line - 1)
            return dk_fail(error, DK_BAD_FILE, DK_BENCH_INPROC_PROGRAM " ended without a result");
        if (line[length] == '\n')
            break;
        length++;
    }
    cJSON *header = cJSON_ParseWithLength(line, length);
    if (!cJSON_IsObject(header)) {
        cJSON_Delete(header);
        return dk_fail(error, DK_BAD_FILE, DK_BENCH_INPROC_PROGRAM " wrote a header that is not JSON");
    }
    copy_text(header, "version", server->version, sizeof server->version);
    copy_text(header, "backend", server->backend, sizeof server->backend);
    copy_text(header, "device", server->device, sizeof server->device);
    copy_text(header, "isa", server->isa, sizeof server->isa);
    cJSON_Delete(header);
    return DK_OK;
}

static void take_time(struct dk_load_result *result, uint64_t latency_ns, uint64_t kernel_ns)
{
    if (kernel_ns == UINT64_MAX) {
        result->unsent_count++;
        dk_latency_record(&result->latency, latency_ns);
        return;
    }
    result->codes[DK_OK]++;
    result->answered_count++;
    dk_latency_record(&result->latency, latency_ns);
    if (kernel_ns > 0 && kernel_ns <= latency_ns) {
        dk_latency_record(&result->kernel, kernel_ns);
        dk_latency_record(&result->above_kernel, latency_ns - kernel_ns);
    }
}

/* Whole records, as many as there are; 0 at the end. */
static size_t read_records(int fd, uint64_t (*out)[2])
{
    size_t used = 0, size = RECORD_BATCH * sizeof *out;
    while (used == 0 || used % sizeof *out != 0) {
        ssize_t got = read(fd, (char *)out + used, size - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    return used / sizeof *out;
}

dk_status dk_bench_inproc_read(int fd, struct dk_bench_server *server, struct dk_load_result *result,
                               struct dk_error *error)
{
    dk_status status = read_header(fd, server, error);
    if (status != DK_OK)
        return status;
    uint64_t(*records)[2] = malloc(RECORD_BATCH * sizeof *records);
    if (!records)
        return dk_fail(error, DK_NO_MEMORY, "no memory for the times of " DK_BENCH_INPROC_PROGRAM);
    bool is_complete = false;
    for (size_t count; (count = read_records(fd, records)) > 0;)
        for (size_t i = 0; i < count; i++) {
            if (records[i][0] != UINT64_MAX)
                take_time(result, records[i][0], records[i][1]);
            else
                result->max_late_ns = records[i][1];
            is_complete = records[i][0] == UINT64_MAX;
        }
    free(records);
    return is_complete ? DK_OK
                       : dk_fail(error, DK_BAD_FILE, DK_BENCH_INPROC_PROGRAM " ended before its time");
}

/* --- the program --------------------------------------------------------------------------------------- */

dk_status dk_bench_inproc_parse_shape(const char *text, struct dk_remote_model *out, struct dk_error *error)
{
    struct dk_remote_model model = {.dtype = DK_BF16};
    uint64_t *const extents[] = {&model.k, &model.n};
    const uint64_t limits[] = {DK_MAX_K, DK_MAX_N};
    const char *at = text;
    bool is_good = true;
    for (int i = 0; i < 2 && is_good; i++) {
        for (; *at >= '0' && *at <= '9' && *extents[i] <= limits[i]; at++)
            *extents[i] = *extents[i] * 10 + (uint64_t)(*at - '0');
        is_good = *extents[i] >= 1 && *extents[i] <= limits[i] && (i == 1 || *at++ == ',');
    }
    if (is_good && *at == ',') {
        at++;
        is_good = dk_dtype_parse(at, strlen(at), DK_DIALECT_NATIVE, &model.dtype) == DK_OK &&
                  dk_dtype_is_float(model.dtype);
        at += strlen(at);
    }
    if (!is_good || *at != '\0')
        return dk_fail(error, DK_BAD_VALUE, "--shape: '%s' is not K,N or K,N,DTYPE", text);
    *out = model;
    return DK_OK;
}

static dk_status inproc_begin(struct dk_bench *bench, struct dk_error *error)
{
    if (bench->options.shape) {
        dk_status status = dk_bench_inproc_parse_shape(bench->options.shape, &bench->model, error);
        bench->dtype = bench->options.has_dtype ? bench->options.dtype : bench->model.dtype;
        return status;
    }
    struct dk_http_client *client;
    dk_status status = dk_http_client_new(&bench->options.http, &client, error);
    if (status != DK_OK)
        return status;
    status = dk_bench_ask_server(bench, client, error);
    bench->server = (struct dk_bench_server){0}; /* the program will say what computed */
    dk_http_client_free(client);
    return status;
}

struct arguments {
    char texts[MAX_ARGUMENTS][TEXT_BYTES];
    char *list[MAX_ARGUMENTS + 1];
    int count;
};

static void add_text(struct arguments *arguments, const char *text)
{
    char *out = arguments->texts[arguments->count];
    (void)snprintf(out, TEXT_BYTES, "%s", text);
    arguments->list[arguments->count++] = out;
}

static void add_number(struct arguments *arguments, const char *name, uint64_t value)
{
    add_text(arguments, name);
    (void)snprintf(arguments->texts[arguments->count], TEXT_BYTES, "%llu", (unsigned long long)value);
    arguments->list[arguments->count] = arguments->texts[arguments->count];
    arguments->count++;
}

static void make_arguments(const struct dk_bench *bench, uint64_t rows, struct arguments *out)
{
    const struct dk_load_plan *load = &bench->options.load;
    char shape[TEXT_BYTES];
    memset(out, 0, sizeof *out);
    (void)snprintf(shape, sizeof shape, "%llu,%llu", (unsigned long long)bench->model.k,
                   (unsigned long long)bench->model.n);
    add_text(out, "bench-inproc");
    add_text(out, "--shape");
    add_text(out, shape);
    add_text(out, "--dtype");
    add_text(out, dk_dtype_name(bench->model.dtype, DK_DIALECT_NATIVE));
    add_text(out, "--a-dtype");
    add_text(out, dk_dtype_name(bench->dtype, DK_DIALECT_NATIVE));
    add_number(out, "--rows", rows);
    add_number(out, "--warmup-ms", (uint64_t)(load->warmup_s * 1e3));
    add_number(out, "--duration-ms", (uint64_t)(load->duration_s * 1e3));
    add_number(out, "--rate", (uint64_t)load->rate);
    add_number(out, "--seed", load->seed);
    if (load->arrivals == DK_ARRIVALS_CONSTANT)
        add_text(out, "--constant");
    if (bench->options.backend) {
        add_text(out, "--backend");
        add_text(out, bench->options.backend);
    }
    if (bench->options.compute_thread_count > 0)
        add_number(out, "--threads", bench->options.compute_thread_count);
}

/* Start it with its standard output in a pipe. */
static dk_status start_program(struct arguments *arguments, pid_t *out_pid, int *out_fd,
                               struct dk_error *error)
{
    char path[DK_PROGRAM_PATH_BYTES];
    int ends[2];
    posix_spawn_file_actions_t actions;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return dk_fail(error, DK_IO_ERROR, "no pipe: %s", strerrordesc_np(errno));
    int code = posix_spawn_file_actions_init(&actions);
    if (code == 0) {
        code = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        if (code == 0)
            code = posix_spawnp(out_pid, dk_program_find(DK_BENCH_INPROC_PROGRAM, path), &actions, NULL,
                                arguments->list, environ);
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[1]);
    if (code != 0) {
        close(ends[0]);
        return dk_fail(error, DK_UNAVAILABLE,
                       "cannot run " DK_BENCH_INPROC_PROGRAM ", which comes with the kernels: %s",
                       strerrordesc_np(code));
    }
    *out_fd = ends[0];
    return DK_OK;
}

static dk_status inproc_measure(struct dk_bench *bench, uint64_t rows, struct dk_load_result *out,
                                struct dk_error *error)
{
    const struct dk_load_plan *load = &bench->options.load;
    struct arguments arguments;
    pid_t pid;
    int fd = -1, wait_status;
    make_arguments(bench, rows, &arguments);
    dk_status status = start_program(&arguments, &pid, &fd, error);
    if (status != DK_OK)
        return status;
    memset(out, 0, sizeof *out);
    status = dk_bench_inproc_read(fd, &bench->server, out, error);
    close(fd);
    while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR)
        continue;
    /* Ctrl-C ends the program too: its times so far cannot be put into a window that is known. */
    if (status != DK_OK && load->is_stopping && atomic_load(load->is_stopping))
        return dk_fail(error, DK_CANCELLED, "stopped");
    out->window_s = load->duration_s;
    return status;
}

const struct dk_bench_way dk_bench_inproc = {"inproc", inproc_begin, inproc_measure};
