/* main.c: decomposekd: boot in order, serve, undo in reverse order. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/api_keys.h"
#include "server/clock.h"
#include "server/config.h"
#include "server/control.h"
#include "server/daemon.h"
#include "server/doors.h"
#include "server/http.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/notify.h"
#include "server/tuning.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_DEVICE = 3 };

extern char **environ;

static int fail(const char *event, int exit_code, const struct dk_error *error)
{
    dk_log(DK_LOG_ERROR, event, "status=%s message=%s", dk_status_name(error->status), error->message);
    return exit_code;
}

static dk_status start_engine(struct dk_daemon *daemon, struct dk_error *error)
{
    const struct dk_config *config = daemon->config;
    char default_path[PATH_MAX];
    const char *cache_path = dk_tuning_cache_path(config, default_path, sizeof default_path);
    struct dk_engine_options options = {
        .backend = config->backend,
        .device_index = config->device_index,
        .thread_count = config->threads,
        .max_tokens = config->max_tokens,
        .spin_us = config->spin_us,
        .use_blas = config->use_blas,
        .cpu_isa = config->cpu_isa,
        .plugin_path = config->plugin_path,
        .is_batch_invariant = config->is_batch_invariant,
        .plan_cache_path = cache_path,
    };
    dk_status status = dk_engine_new(&options, &daemon->engine, error);
    if (status == DK_OK) {
        const struct dk_engine_info *info = dk_engine_get_info(daemon->engine);
        dk_log(DK_LOG_INFO, "backend", "backend=%s device=%s isa=%s threads=%u reason=%s", info->backend,
               info->device_name, info->isa, info->thread_count, info->reason);
        dk_tuning_log_cache(info, cache_path);
    }
    return status;
}

static dk_status start_metrics(struct dk_daemon *daemon, struct dk_error *error)
{
    const struct dk_engine_info *info = dk_engine_get_info(daemon->engine);
    uint32_t bucket_rows[64];
    uint32_t count = info->bucket_count < 64 ? info->bucket_count : 64;
    for (uint32_t i = 0; i < count; i++) {
        bucket_rows[i] = dk_engine_bucket_rows(daemon->engine, i);
    }
    dk_status status = dk_metrics_new(bucket_rows, count, &daemon->metrics, error);
    if (status == DK_OK) {
        dk_metrics_set_info(daemon->metrics, DK_VERSION, info->backend, info->device_name, info->isa);
    }
    return status;
}

/* --check-config: everything but serving. */
static int check_config(struct dk_daemon *daemon)
{
    struct dk_error error;
    int exit_code = EXIT_OK;
    if (start_engine(daemon, &error) != DK_OK) {
        exit_code = fail("backend_unavailable",
                         daemon->config->backend == DK_BACKEND_CUDA ? EXIT_DEVICE : EXIT_FAILED, &error);
    } else if (start_metrics(daemon, &error) != DK_OK || dk_daemon_load(daemon, &error) != DK_OK) {
        exit_code = fail("check_failed", EXIT_FAILED, &error);
    } else {
        (void)printf("configuration ok\n");
    }
    dk_daemon_unload(daemon);
    dk_metrics_free(daemon->metrics);
    dk_engine_free(daemon->engine);
    return exit_code;
}

/* Stop and reload signals wait until the control loop can handle them (it lifts the block): without this a
 * SIGTERM right after the start would kill the process with its sockets in place. Threads started here
 * inherit the block. */
static void block_signals(void)
{
    sigset_t signals;
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
}

static int serve(struct dk_daemon *daemon)
{
    struct dk_error error;
    struct dk_doors doors;
    struct dk_http *http = NULL;
    int exit_code = EXIT_FAILED;
    block_signals();
    dk_notify_check();
    /* First of all that can be refused: a second instance must end before it loads a byte of weights. */
    if (dk_doors_open(daemon->config, &doors, &error) != DK_OK) {
        exit_code = fail("listen_failed", EXIT_FAILED, &error);
        goto close_doors;
    }
    daemon->doors = &doors;
    if (start_engine(daemon, &error) != DK_OK) {
        exit_code = fail("backend_unavailable",
                         daemon->config->backend == DK_BACKEND_CUDA ? EXIT_DEVICE : EXIT_FAILED, &error);
        goto close_doors;
    }
    if (start_metrics(daemon, &error) != DK_OK) {
        exit_code = fail("metrics_failed", EXIT_FAILED, &error);
        goto free_engine;
    }
    if (dk_http_new(daemon, &http, &error) != DK_OK) {
        exit_code = fail("http_failed", EXIT_FAILED, &error);
        goto free_metrics;
    }
    struct dk_control_result result = dk_control_run(daemon, http);
    exit_code = result.exit_code;
    if (result.is_abrupt) {
        dk_doors_close(daemon->config, &doors); /* the socket file is ours to remove even now */
        _exit(exit_code);
    }
    dk_daemon_quiesce(daemon);
    dk_http_free(http);
    dk_daemon_unload(daemon);
free_metrics:
    dk_metrics_free(daemon->metrics);
free_engine:
    dk_engine_free(daemon->engine);
close_doors:
    dk_doors_close(daemon->config, &doors);
    return exit_code;
}

int main(int argc, char **argv)
{
    const struct dk_config *config;
    enum dk_config_action action;
    struct dk_error error;
    if (dk_config_parse(argc, argv, environ, &config, &action, &error) != DK_OK) {
        (void)fprintf(stderr, "decomposekd: %s\n", error.message);
        return EXIT_USAGE;
    }
    if (action == DK_CONFIG_PRINTED) {
        return EXIT_OK;
    }
    dk_log_init(config->log_level, config->log_format);
    (void)signal(SIGPIPE, SIG_IGN); /* a vanished client is an error code of write, not our end */
    (void)signal(SIGXFSZ, SIG_IGN); /* and so is a limit on file sizes, which shared memory counts towards */
    struct dk_daemon daemon = {.config = config, .started_ns = dk_clock_now_ns()};
    int exit_code;
    if (dk_api_keys_new(config->api_key_file, &daemon.api_keys, &error) != DK_OK) {
        exit_code = fail("api_keys_unusable", EXIT_FAILED, &error);
    } else {
        exit_code = config->check_only ? check_config(&daemon) : serve(&daemon);
    }
    dk_api_keys_free(daemon.api_keys);
    dk_config_free(config);
    return exit_code;
}
