/* control.c: one libuv loop on the main thread. */
#include "server/control.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#include "server/acceptor.h"
#include "server/api_keys.h"
#include "server/bell.h"
#include "server/clock.h"
#include "server/daemon.h"
#include "server/doors.h"
#include "server/http.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/models.h"
#include "server/notify.h"
#include "server/shm.h"
#include "server/slab.h"
#include "server/watchdog.h"

enum {
    TICK_MS = 100,
    DRAIN_TICK_MS = 10,
    /* After the listeners are closed: time for a request that was on its way to be seen. */
    LAST_CALL_MS = 50,
    EXIT_MS = 5000 /* from the end of the drain to the end of the process, generously */
};

struct control {
    struct dk_daemon *daemon;
    struct dk_http *http;
    uv_loop_t loop;
    uv_signal_t terminate, interrupt, reload;
    uv_timer_t timer, watchdog_timer;
    struct dk_watchdog watchdog;
    uv_work_t load_work, reload_work;
    bool is_loading, is_reloading;
    dk_status load_status, reload_status;
    struct dk_error load_error, reload_error;
    struct dk_acceptor acceptor;
    struct dk_shm *shm;  /* NULL without a socket for it */
    uint64_t signal_ns;  /* first SIGTERM or SIGINT; 0: none */
    uint64_t closing_ns; /* no new work since */
    struct dk_control_result result;
};

static uint64_t ms_since(uint64_t start_ns)
{
    return (dk_clock_now_ns() - start_ns) / 1000000u;
}

static void stop(struct control *control, int exit_code, bool is_abrupt)
{
    control->result = (struct dk_control_result){.is_abrupt = is_abrupt, .exit_code = exit_code};
    uv_stop(&control->loop);
}

static void announce_serving(const struct dk_daemon *daemon, const char *assignments, const char *remark)
{
    dk_notify(assignments, "Serving %zu models on %s%s", dk_models_count(daemon->models), daemon->doors->url,
              remark);
}

static void announce_ready(struct dk_daemon *daemon)
{
    const struct dk_doors *doors = daemon->doors;
    dk_log(DK_LOG_INFO, "ready",
           "url=%s socket=%s shm_socket=%s models=%zu weights_bytes=%lld workspace_bytes=%lld "
           "staging_bytes=%lld "
           "max_body_bytes=%llu load_ms=%llu",
           doors->url, doors->http_unix_path, doors->shm_path, dk_models_count(daemon->models),
           (long long)dk_metrics_get(daemon->metrics, DK_METRIC_WEIGHTS_BYTES),
           (long long)dk_metrics_get(daemon->metrics, DK_METRIC_WORKSPACE_BYTES),
           (long long)dk_metrics_get(daemon->metrics, DK_METRIC_STAGING_BYTES),
           (unsigned long long)daemon->max_body_bytes, (unsigned long long)ms_since(daemon->started_ns));
    (void)printf("decomposekd ready %s\n", doors->url);
    (void)fflush(stdout);
    announce_serving(daemon, "READY=1", "");
}

static void on_load(uv_work_t *work)
{
    struct control *control = work->data;
    control->load_status = dk_daemon_load(control->daemon, &control->load_error);
}

static void after_load(uv_work_t *work, int status)
{
    struct control *control = work->data;
    (void)status; /* never cancelled */
    control->is_loading = false;
    if (control->load_status != DK_OK) {
        dk_log(DK_LOG_ERROR, "load_failed", "status=%s message=%s", dk_status_name(control->load_status),
               control->load_error.message);
        dk_notify("", "Loading failed: %s", control->load_error.message);
        stop(control, 1, false);
    } else if (control->signal_ns == 0) {
        dk_daemon_set_state(control->daemon, DK_DAEMON_READY);
        announce_ready(control->daemon);
    }
}

static void on_reload(uv_work_t *work)
{
    struct control *control = work->data;
    control->reload_status = dk_models_reload(control->daemon->models, &control->reload_error);
}

/* A drain that began meanwhile has said STOPPING: no READY after that. */
static void announce_reloaded(const struct dk_daemon *daemon, const char *remark)
{
    if (dk_daemon_get_state(daemon) == DK_DAEMON_READY) {
        announce_serving(daemon, "READY=1", remark);
    }
}

static void after_reload(uv_work_t *work, int status)
{
    struct control *control = work->data;
    (void)status;
    control->is_reloading = false;
    dk_bell_ring(control->daemon->bell); /* a sleeping executor lets go of old versions */
    if (control->reload_status == DK_OK) {
        dk_log(DK_LOG_INFO, "reloaded", "models=%zu", dk_models_count(control->daemon->models));
        announce_reloaded(control->daemon, "");
    } else {
        dk_log(DK_LOG_ERROR, "reload_failed", "message=%s kept=%s", control->reload_error.message,
               "the old version");
        announce_reloaded(control->daemon, "; the last reload failed, old versions serve");
    }
}

/* At once, on this thread: a small file, and a key that leaked must not stay good because a load is slow. */
static void reload_keys(const struct dk_daemon *daemon)
{
    struct dk_error error;
    if (daemon->config->api_key_file == NULL) {
        return;
    }
    if (dk_api_keys_reload(daemon->api_keys, &error) == DK_OK) {
        dk_log(DK_LOG_INFO, "api_keys_reloaded", "keys=%zu", dk_api_keys_count(daemon->api_keys));
    } else {
        dk_log(DK_LOG_ERROR, "api_keys_reload_failed", "message=%s kept=%zu", error.message,
               dk_api_keys_count(daemon->api_keys));
    }
}

static void on_reload_signal(uv_signal_t *handle, int signal_number)
{
    struct control *control = handle->data;
    (void)signal_number;
    reload_keys(control->daemon);
    if (dk_daemon_get_state(control->daemon) != DK_DAEMON_READY || control->is_reloading) {
        dk_log(DK_LOG_WARN, "reload_ignored", "reason=%s",
               control->is_reloading ? "a reload is running" : "not ready");
        return;
    }
    control->is_reloading =
        uv_queue_work(&control->loop, &control->reload_work, on_reload, after_reload) == 0;
    if (control->is_reloading) {
        char assignments[80];
        (void)snprintf(assignments, sizeof assignments, "RELOADING=1\nMONOTONIC_USEC=%llu",
                       (unsigned long long)dk_clock_now_ns() / 1000u);
        dk_notify(assignments, "Reloading models");
    }
}

static void close_doors(struct control *control)
{
    dk_daemon_set_state(control->daemon, DK_DAEMON_CLOSING);
    dk_acceptor_stop(&control->acceptor);
    if (control->shm != NULL) {
        dk_shm_close(control->shm);
    }
    control->closing_ns = dk_clock_now_ns();
}

/* The supervisor's own limit must not cut off what ours allows. */
static void announce_stopping(const struct dk_config *config, const char *signal_name)
{
    char assignments[80];
    uint64_t most_ms = (uint64_t)config->drain_grace_ms + config->drain_limit_ms + EXIT_MS;
    (void)snprintf(assignments, sizeof assignments, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu",
                   (unsigned long long)most_ms * 1000u);
    dk_notify(assignments, "Draining after %s", signal_name);
}

static void on_stop_signal(uv_signal_t *handle, int signal_number)
{
    struct control *control = handle->data;
    const char *name = signal_number == SIGTERM ? "SIGTERM" : "SIGINT";
    if (control->signal_ns != 0) {
        dk_log(DK_LOG_WARN, "stopped_at_once", "signal=%s active_requests=%u", name,
               dk_http_active_count(control->http));
        stop(control, 1, true);
        return;
    }
    dk_log(DK_LOG_INFO, "draining", "signal=%s grace_ms=%u limit_ms=%u", name,
           control->daemon->config->drain_grace_ms, control->daemon->config->drain_limit_ms);
    control->signal_ns = dk_clock_now_ns();
    announce_stopping(control->daemon->config, name);
    if (control->is_loading) {
        close_doors(control); /* nobody was ever told that we are ready: no grace */
    } else {
        dk_daemon_set_state(control->daemon, DK_DAEMON_DRAINING);
    }
    (void)uv_timer_set_repeat(&control->timer, DRAIN_TICK_MS), (void)uv_timer_again(&control->timer);
}

static void drain(struct control *control)
{
    const struct dk_config *config = control->daemon->config;
    if (control->closing_ns == 0) {
        if (ms_since(control->signal_ns) >= config->drain_grace_ms) {
            close_doors(control);
        }
        return;
    }
    uint32_t active = dk_http_active_count(control->http);
    uint64_t closing_ms = ms_since(control->closing_ns);
    if (control->shm != NULL && closing_ms >= LAST_CALL_MS) {
        dk_shm_finish(control->shm);
    }
    active += dk_shm_client_count(control->shm);
    if (active == 0 && closing_ms >= LAST_CALL_MS && !control->is_loading && !control->is_reloading) {
        dk_log(DK_LOG_INFO, "stopped", "drain_ms=%llu", (unsigned long long)ms_since(control->signal_ns));
        stop(control, 0, false);
    } else if (closing_ms >= config->drain_limit_ms) {
        dk_log(DK_LOG_ERROR, "drain_limit_exceeded", "limit_ms=%u active_requests=%u", config->drain_limit_ms,
               active);
        stop(control, 1, true);
    }
}

static void on_tick(uv_timer_t *timer)
{
    struct control *control = timer->data;
    dk_http_sweep(control->http);
    dk_acceptor_tick(&control->acceptor);
    if (control->shm != NULL) {
        dk_shm_tick(control->shm);
    }
    if (control->signal_ns != 0) {
        drain(control);
    }
}

static void on_watchdog(uv_timer_t *timer)
{
    struct control *control = timer->data;
    dk_watchdog_look(&control->watchdog, control->daemon);
}

static int start_watchdog(struct control *control)
{
    dk_watchdog_init(&control->watchdog);
    control->watchdog_timer.data = control;
    uint64_t period_ms = control->watchdog.period_ms;
    int result = uv_timer_init(&control->loop, &control->watchdog_timer);
    return result != 0 || period_ms == 0
               ? result
               : uv_timer_start(&control->watchdog_timer, on_watchdog, 0, period_ms);
}

static int open_shm(struct control *control)
{
    struct dk_error error;
    int shm_socket = control->daemon->doors->shm;
    if (shm_socket < 0 ||
        dk_shm_new(&control->loop, control->daemon, shm_socket, &control->shm, &error) == DK_OK) {
        return 0;
    }
    dk_log(DK_LOG_ERROR, "shm_failed", "status=%s message=%s", dk_status_name(error.status), error.message);
    return UV_ENOMEM;
}

static int start(struct control *control)
{
    uv_loop_t *loop = &control->loop;
    const int sockets[] = {control->daemon->doors->tcp, control->daemon->doors->http_unix};
    int socket_count = sockets[1] >= 0 ? 2 : 1;
    control->terminate.data = control->interrupt.data = control->reload.data = control;
    control->timer.data = control->load_work.data = control->reload_work.data = control;
    uint32_t connections_max = dk_acceptor_connection_limit(control->daemon->config->max_connections);
    int result = 0;
    (void)((result = uv_signal_init(loop, &control->terminate)) ||
           (result = uv_signal_init(loop, &control->interrupt)) ||
           (result = uv_signal_init(loop, &control->reload)) ||
           (result = uv_timer_init(loop, &control->timer)) ||
           (result = uv_signal_start(&control->terminate, on_stop_signal, SIGTERM)) ||
           (result = uv_signal_start(&control->interrupt, on_stop_signal, SIGINT)) ||
           (result = uv_signal_start(&control->reload, on_reload_signal, SIGHUP)) ||
           (result = uv_timer_start(&control->timer, on_tick, TICK_MS, TICK_MS)) ||
           (result = dk_acceptor_init(&control->acceptor, loop, control->http, sockets, socket_count,
                                      connections_max)) ||
           (result = open_shm(control)) || (result = start_watchdog(control)) ||
           (result = uv_queue_work(loop, &control->load_work, on_load, after_load)));
    return result;
}

/* main() blocked them before anything was started; one that came meanwhile is delivered to the loop now. */
static void unblock_signals(void)
{
    sigset_t signals;
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGHUP);
    (void)pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
}

static void close_handle(uv_handle_t *handle, void *context)
{
    (void)context;
    if (!uv_is_closing(handle)) {
        uv_close(handle, NULL);
    }
}

struct dk_control_result dk_control_run(struct dk_daemon *daemon, struct dk_http *http)
{
    struct control control = {.daemon = daemon, .http = http, .is_loading = true};
    if (uv_loop_init(&control.loop) != 0) {
        dk_log(DK_LOG_ERROR, "loop_failed", "step=%s", "init");
        return (struct dk_control_result){.exit_code = 1};
    }
    int started = start(&control);
    if (started == 0) {
        unblock_signals();
        dk_notify("", "Loading models");
        (void)uv_run(&control.loop, UV_RUN_DEFAULT);
    } else {
        dk_log(DK_LOG_ERROR, "loop_failed", "error=%s", uv_strerror(started));
        control.result = (struct dk_control_result){.exit_code = 1};
    }
    if (!control.result.is_abrupt) {
        dk_daemon_set_state(daemon, DK_DAEMON_CLOSING);
        if (control.shm != NULL) {
            dk_shm_close(control.shm); /* clients that were let in while loading failed */
        }
        uv_walk(&control.loop, close_handle, NULL);
        (void)uv_run(&control.loop, UV_RUN_DEFAULT); /* runs the closing callbacks, ends a reload */
        (void)uv_loop_close(&control.loop);
        dk_shm_free(control.shm);
    }
    return control.result;
}
