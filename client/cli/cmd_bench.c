/* cmd_bench.c: `decomposek bench`: measure a daemon, or the kernels alone. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/bench_report.h"
#include "client/cli/command.h"
#include "client/file.h"

static const char details[] =
    "Latency counts from when a request is due: in an open loop (--rate) that is its place in the schedule, "
    "so\n"
    "that a server that falls behind cannot slow the clock down; in a closed loop it is when it is sent. "
    "The\n"
    "warm-up is left out, and answers are checked before: finite, of the right size, and equal bit for bit.\n"
    "\n"
    "  http    kept-alive connections, --clients x --inflight of them, with bytes both ways\n"
    "  shm     the shared-memory ring, a session and a thread for each client, --inflight requests in each\n"
    "  inproc  no daemon: the kernels in a process of their own, one caller\n"
    "\n"
    "Ctrl-C ends the measurement and shows what it has. Exit code 1 when not one request was answered "
    "well.\n";

/* The command line as text and numbers; becomes dk_bench_options. */
struct arguments {
    const char *transport, *protocol, *model, *shape, *rows, *arrivals, *shm_socket, *report, *backend;
    uint64_t clients, inflight, threads, rate, seed, spin_us, compute_threads;
    double duration_s, warmup_s;
    bool has_spin, has_dtype, is_copying, wants_progress;
    dk_dtype dtype;
};

/* Set by the signal handler. */
static atomic_bool is_stopping;

static void on_interrupt(int number)
{
    (void)number;
    atomic_store_explicit(&is_stopping, true, memory_order_relaxed);
}

/* --- options ------------------------------------------------------------------------------------------- */

static dk_status parse_rows(const char *text, struct dk_bench_options *out, struct dk_error *error)
{
    const char *at = text;
    out->rows_count = 0;
    for (;;) {
        uint64_t rows = 0;
        for (; *at >= '0' && *at <= '9' && rows <= DK_MAX_M; at++)
            rows = rows * 10 + (uint64_t)(*at - '0');
        if (rows < 1 || rows > DK_MAX_M || (*at != ',' && *at != '\0') ||
            out->rows_count == DK_BENCH_MAX_ROWS)
            return dk_fail(error, DK_BAD_VALUE, "--rows: '%s' is not a list of up to %d numbers from 1 to %d",
                           text, DK_BENCH_MAX_ROWS, DK_MAX_M);
        out->rows[out->rows_count++] = rows;
        if (*at++ == '\0')
            return DK_OK;
    }
}

/* Index of `text` in a list of names that ends in NULL; -1. */
static int choose(const char *text, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    return -1;
}

static dk_status take_names(const struct arguments *from, struct dk_bench_options *out,
                            struct dk_error *error)
{
    static const struct dk_bench_way *const ways[] = {&dk_bench_http, &dk_bench_shm, &dk_bench_inproc};
    static const char *const way_names[] = {"http", "shm", "inproc", NULL};
    static const char *const protocols[] = {"v1", "v2", NULL}, *const arrivals[] = {"poisson", "constant",
                                                                                    NULL};
    static const char *const backends[] = {"auto", "cpu", "cuda", NULL};
    int way = choose(from->transport, way_names), protocol = choose(from->protocol, protocols);
    int kind = choose(from->arrivals, arrivals);
    if (way < 0)
        return dk_fail(error, DK_BAD_VALUE, "--transport: '%s' is not one of http, shm, inproc",
                       from->transport);
    if (protocol < 0)
        return dk_fail(error, DK_BAD_VALUE, "--protocol: '%s' is not one of v1, v2", from->protocol);
    if (kind < 0)
        return dk_fail(error, DK_BAD_VALUE, "--arrivals: '%s' is not one of poisson, constant",
                       from->arrivals);
    if (from->backend && choose(from->backend, backends) < 0)
        return dk_fail(error, DK_BAD_VALUE, "--backend: '%s' is not one of auto, cpu, cuda", from->backend);
    out->way = ways[way];
    out->protocol = protocol == 0 ? DK_BENCH_V1 : DK_BENCH_V2;
    out->load.arrivals = kind == 0 ? DK_ARRIVALS_POISSON : DK_ARRIVALS_CONSTANT;
    return DK_OK;
}

/* What does not go together is refused, not ignored. */
static dk_status check_combination(const struct arguments *from, const struct dk_bench_options *options,
                                   struct dk_error *error)
{
    bool is_shm = options->way == &dk_bench_shm, is_inproc = options->way == &dk_bench_inproc;
    if (is_shm && !from->shm_socket)
        return dk_fail(error, DK_BAD_VALUE, "--shm-socket is missing: the daemon's --shm-socket");
    if (!is_shm && (from->shm_socket || from->has_spin || from->is_copying))
        return dk_fail(error, DK_BAD_VALUE, "--shm-socket, --spin-us and --copy are for --transport shm");
    if (options->way != &dk_bench_http && options->protocol != DK_BENCH_V1)
        return dk_fail(error, DK_BAD_VALUE, "--protocol is for --transport http");
    if (!is_inproc && (from->shape || from->backend || from->compute_threads))
        return dk_fail(error, DK_BAD_VALUE,
                       "--shape, --backend and --compute-threads are for --transport inproc");
    if (!from->model == !from->shape)
        return dk_fail(error, DK_BAD_VALUE,
                       is_inproc ? "either --model or --shape is needed, and only one"
                                 : "--model is missing");
    if (is_inproc && (from->clients > 1 || from->inflight > 1 || from->threads > 1))
        return dk_fail(error, DK_BAD_VALUE,
                       "--transport inproc has one caller: calls of an engine take turns");
    if (is_shm && from->threads > 0 && from->threads != from->clients)
        return dk_fail(error, DK_BAD_VALUE, "--transport shm has a thread for each client");
    if (from->threads > from->clients * from->inflight)
        return dk_fail(error, DK_BAD_VALUE, "--threads %llu is more than clients x inflight",
                       (unsigned long long)from->threads);
    return DK_OK;
}

/* Half of the processors, so that a daemon on this machine has the other half. */
static uint32_t default_threads(const struct arguments *from, const struct dk_bench_options *options)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t half = online > 3 ? (uint64_t)online / 2 : 1;
    uint64_t slots = from->clients * from->inflight;
    if (options->way == &dk_bench_shm)
        return (uint32_t)from->clients;
    return (uint32_t)(half < slots ? half : slots);
}

static dk_status make_options(const struct arguments *from, const struct dk_cli *cli,
                              struct dk_bench_options *out, struct dk_error *error)
{
    dk_status status = take_names(from, out, error);
    if (status == DK_OK)
        status = check_combination(from, out, error);
    if (status == DK_OK)
        status = parse_rows(from->rows, out, error);
    if (status != DK_OK)
        return status;
    out->model = from->model;
    out->shape = from->shape;
    out->shm_socket = from->shm_socket;
    out->spin_us = !from->has_spin ? 0 : from->spin_us == 0 ? UINT32_MAX : (uint32_t)from->spin_us;
    out->is_copying = from->is_copying;
    out->backend = from->backend;
    out->compute_thread_count = (uint32_t)from->compute_threads;
    out->has_dtype = from->has_dtype;
    out->dtype = from->dtype;
    out->client_count = (uint32_t)from->clients;
    out->inflight_count = (uint32_t)from->inflight;
    out->load.slot_count = (uint32_t)(from->clients * from->inflight);
    out->load.thread_count = from->threads > 0 ? (uint32_t)from->threads : default_threads(from, out);
    out->load.rate = (double)from->rate;
    out->load.seed = from->seed;
    out->load.duration_s = from->duration_s;
    out->load.warmup_s = from->warmup_s;
    out->load.timeout_s = cli->timeout_s;
    out->load.is_stopping = &is_stopping;
    return DK_OK;
}

/* --- the run ------------------------------------------------------------------------------------------- */

struct progress {
    uint64_t rows, last_ok_count;
    double last_s;
    bool is_terminal;
};

static void print_progress(void *context, const struct dk_load_plan *plan, double elapsed_s,
                           uint64_t ok_count, uint64_t failed_count)
{
    struct progress *progress = context;
    double since_s = elapsed_s - progress->last_s;
    fprintf(stderr, "%srows %llu: %.0f of %.0f s, %.0f requests/s, %llu failed%s",
            progress->is_terminal ? "\r\033[K" : "", (unsigned long long)progress->rows, elapsed_s,
            plan->warmup_s + plan->duration_s,
            since_s > 0 ? (double)(ok_count - progress->last_ok_count) / since_s : 0,
            (unsigned long long)failed_count, progress->is_terminal ? "" : "\n");
    progress->last_s = elapsed_s;
    progress->last_ok_count = ok_count;
}

static dk_status measure_all(struct dk_bench *bench, bool wants_progress, struct dk_load_result *results,
                             uint32_t *out_count, struct dk_error *error)
{
    dk_status status = DK_OK;
    uint32_t count = 0;
    bool is_terminal = isatty(STDERR_FILENO) == 1;
    for (; count < bench->options.rows_count && status == DK_OK && !atomic_load(&is_stopping);) {
        struct progress progress = {.rows = bench->options.rows[count], .is_terminal = is_terminal};
        if (wants_progress || is_terminal) {
            bench->options.load.on_progress = print_progress;
            bench->options.load.progress_context = &progress;
        }
        status = bench->options.way->measure(bench, bench->options.rows[count], &results[count], error);
        if (bench->options.load.on_progress && is_terminal)
            fputs("\r\033[K", stderr);
        count += status == DK_OK;
    }
    *out_count = count;
    return status;
}

static dk_status write_report(const struct dk_bench_report *report, const struct dk_cli *cli,
                              const char *path, struct dk_error *error)
{
    struct dk_json_text text = {0};
    dk_bench_report_json(report, &text);
    dk_json_text_raw(&text, "\n");
    dk_status status = text.failed ? dk_fail(error, DK_NO_MEMORY, "no memory for the report") : DK_OK;
    if (status == DK_OK && path)
        status = dk_file_write(path, NULL, 0, text.data, text.length, error);
    if (status == DK_OK && cli->is_json)
        fputs(text.data, stdout);
    else if (status == DK_OK && !dk_bench_report_text(report, stdout))
        status = dk_fail(error, DK_IO_ERROR, "cannot print the report");
    dk_json_text_free(&text);
    return status;
}

/* Each measurement had some. */
static bool has_answers(const struct dk_load_result *results, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (results[i].answered_count == 0 && results[i].codes[DK_OK] == 0)
            return false;
    return count > 0;
}

static int run(const struct dk_command *self, const struct dk_cli *cli, const struct arguments *arguments,
               struct dk_bench *bench)
{
    struct dk_error error = {.message = "stopped before the first result"};
    struct dk_load_result *results = calloc(bench->options.rows_count, sizeof *results);
    uint32_t count = 0;
    dk_status status = results ? bench->options.way->begin(bench, &error)
                               : dk_fail(&error, DK_NO_MEMORY, "no memory for results");
    if (status == DK_OK)
        status = measure_all(bench, arguments->wants_progress, results, &count, &error);
    int exit_code = DK_EXIT_FAILURE;
    if (count > 0) { /* what was measured before a failure is shown as well */
        const struct dk_bench_report report = {bench, bench->options.rows, results, count};
        struct dk_error report_error;
        if (write_report(&report, cli, arguments->report, &report_error) != DK_OK)
            exit_code = dk_cli_fail(self, cli, &report_error);
        else if (status == DK_OK && has_answers(results, count))
            exit_code = DK_EXIT_OK;
    }
    if (status != DK_OK || count == 0)
        exit_code =
            status == DK_BAD_VALUE ? dk_cli_usage_error(self, error.message) : dk_cli_fail(self, cli, &error);
    free(results);
    return exit_code;
}

int dk_cmd_bench(const struct dk_command *self, struct dk_cli *cli, int argc, char **argv)
{
    struct arguments a = {.transport = "http",
                          .protocol = "v1",
                          .rows = "1",
                          .arrivals = "poisson",
                          .clients = 1,
                          .inflight = 1,
                          .seed = 1,
                          .duration_s = 5,
                          .warmup_s = 1};
    const struct dk_option own[] = {
        {"transport", DK_OPTION_TEXT, &a.transport, NULL, "WAY", "http (default), shm or inproc", 0, 0},
        {"model", DK_OPTION_TEXT, &a.model, NULL, "NAME", "the model to use", 0, 0},
        {"rows", DK_OPTION_TEXT, &a.rows, NULL, "LIST", "rows of each request, measured in turn: 1,8,64 (1)",
         0, 0},
        {"clients", DK_OPTION_U64, &a.clients, NULL, "COUNT", "clients (1)", 1, 1024},
        {"inflight", DK_OPTION_U64, &a.inflight, NULL, "COUNT", "requests in flight in each client (1)", 1,
         4096},
        {"rate", DK_OPTION_U64, &a.rate, NULL, "REQUESTS",
         "open loop: so many a second, all clients together", 1, 100000000},
        {"arrivals", DK_OPTION_TEXT, &a.arrivals, NULL, "KIND",
         "of an open loop: poisson (default), constant", 0, 0},
        {"duration", DK_OPTION_SECONDS, &a.duration_s, NULL, "SECONDS", "of each measurement (5)", 0, 0},
        {"warmup", DK_OPTION_SECONDS, &a.warmup_s, NULL, "SECONDS", "before each, left out (1)", 0, 0},
        {"dtype", DK_OPTION_DTYPE, &a.dtype, &a.has_dtype, "TYPE", "of x: fp32, bf16, fp16 (the weights')", 0,
         0},
        {"seed", DK_OPTION_U64, &a.seed, NULL, "SEED", "of the values and the arrivals (1)", 0, UINT64_MAX},
        {"threads", DK_OPTION_U64, &a.threads, NULL, "COUNT",
         "http: threads that send (half of the processors)", 1, 1024},
        {"protocol", DK_OPTION_TEXT, &a.protocol, NULL, "NAME",
         "http: v1 (default) or v2, the Open Inference Protocol", 0, 0},
        {"shm-socket", DK_OPTION_TEXT, &a.shm_socket, NULL, "PATH", "shm: the daemon's --shm-socket", 0, 0},
        {"spin-us", DK_OPTION_U64, &a.spin_us, &a.has_spin, "MICROS",
         "shm: how long a client looks before it sleeps (50)", 0, 60000000},
        {"copy", DK_OPTION_FLAG, &a.is_copying, NULL, NULL,
         "shm: x and y in memory of the client, copied for each request", 0, 0},
        {"shape", DK_OPTION_TEXT, &a.shape, NULL, "K,N[,TYPE]", "inproc: random weights instead of a model",
         0, 0},
        {"backend", DK_OPTION_TEXT, &a.backend, NULL, "NAME", "inproc: auto (default), cpu or cuda", 0, 0},
        {"compute-threads", DK_OPTION_U64, &a.compute_threads, NULL, "COUNT",
         "inproc: of the CPU backend (all)", 1, 1024},
        {"report", DK_OPTION_TEXT, &a.report, NULL, "FILE", "write the JSON there too", 0, 0},
        {"progress", DK_OPTION_FLAG, &a.wants_progress, NULL, NULL,
         "a line a second on standard error, also when that is no terminal", 0, 0},
    };
    const struct dk_usage usage = {.arguments = "",
                                   .details = details,
                                   .own = own,
                                   .own_count = sizeof own / sizeof own[0],
                                   .uses_connection = true};
    struct dk_bench bench = {0};
    struct dk_error error;
    int count, exit_code;
    if (!dk_cli_begin(self, cli, &usage, argc, argv, &count, &exit_code))
        return exit_code;
    if (make_options(&a, cli, &bench.options, &error) != DK_OK)
        return dk_cli_usage_error(self, error.message);
    struct dk_cli_key key;
    exit_code = dk_cli_http_options(self, cli, &key, &bench.options.http);
    if (exit_code != DK_EXIT_OK)
        return exit_code;
    const struct sigaction interrupt = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    (void)sigaction(SIGINT, &interrupt, NULL); /* a second one ends the program at once */
    exit_code = run(self, cli, &a, &bench);
    explicit_bzero(&key, sizeof key);
    return exit_code;
}
