/* http.c: the callbacks of libmicrohttpd: one small state machine per request. */
#include "server/http.h"

#include <microhttpd.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/api_keys.h"
#include "server/clock.h"
#include "server/daemon.h"
#include "server/http_body.h"
#include "server/http_connection.h"
#include "server/http_reply.h"
#include "server/http_routes.h"
#include "server/log.h"
#include "server/metrics.h"

enum {
    HTTP_THREADS_MAX = 64,
    HTTP_THREADS_DEFAULT = 4,
    /* Half of it is the read buffer: the work of one body callback is bounded by that (128 KiB of JSON are
     * about 1 ms), so other connections of the thread wait no longer. */
    CONNECTION_MEMORY_BYTES = 256 * 1024
};

struct dk_http {
    struct dk_daemon *daemon;
    struct dk_http_connections connections;
    _Atomic uint32_t connection_count, active_count;
    struct dk_http_bodies bodies;
    uint32_t worker_count, next_worker;
    struct MHD_Daemon *workers[HTTP_THREADS_MAX];
};

static enum dk_http_method parse_method(const char *method)
{
    static const struct {
        const char *name;
        enum dk_http_method method;
    } methods[] = {{MHD_HTTP_METHOD_GET, DK_METHOD_GET},       {MHD_HTTP_METHOD_POST, DK_METHOD_POST},
                   {MHD_HTTP_METHOD_HEAD, DK_METHOD_HEAD},     {MHD_HTTP_METHOD_PUT, DK_METHOD_PUT},
                   {MHD_HTTP_METHOD_DELETE, DK_METHOD_DELETE}, {MHD_HTTP_METHOD_OPTIONS, DK_METHOD_OPTIONS}};
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (strcmp(methods[i].name, method) == 0) {
            return methods[i].method;
        }
    }
    return DK_METHOD_OTHER;
}

/* libmicrohttpd must not decode: we need to see %2F and %00. */
static size_t keep_escapes(void *context, struct MHD_Connection *mhd, char *text)
{
    (void)context;
    (void)mhd;
    return strlen(text);
}

/* Request line complete: remember the raw target, and start the clock for the rest of the head. */
static void *on_request_line(void *context, const char *target, struct MHD_Connection *mhd)
{
    (void)context;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct dk_http_connection *connection = info != NULL ? info->socket_context : NULL;
    if (connection == NULL) {
        return NULL;
    }
    struct dk_http_request *request = &connection->request;
    request->mhd = mhd;
    request->stage = DK_STAGE_LINE;
    request->route = NULL;
    request->error.status = DK_OK;
    request->should_close = false;
    request->route_state = NULL;
    request->body_bytes = request->plain_bytes = request->discarded_bytes = 0;
    (void)dk_target_parse(target, &request->target, &request->error);
    (void)dk_http_connection_enter(connection, DK_PHASE_HEAD);
    return request;
}

/* Before anything else is said: a client without a key does not even learn which routes there are. */
static dk_status check_key(struct dk_http_request *request, struct dk_error *error)
{
    if (request->route != NULL && request->route->is_open) {
        return DK_OK;
    }
    dk_status status = dk_api_keys_check(request->daemon->api_keys, request->head.authorization, error);
    if (status != DK_OK) {
        static struct dk_log_limit limiter;
        if (dk_log_allow(&limiter, 1)) {
            dk_log(DK_LOG_WARN, "unauthorized", "reason=%s", error->message);
        }
        dk_metrics_add(request->daemon->metrics, DK_METRIC_UNAUTHORIZED, 1);
        request->route = NULL; /* its handlers never see this request */
    }
    return status;
}

static dk_status check_method(struct dk_http_request *request, const char *method, struct dk_error *error)
{
    request->route = dk_route_find(request->target.path, &request->parameters);
    dk_status status = check_key(request, error);
    if (status != DK_OK) {
        return status;
    }
    if (request->route == NULL) {
        return dk_fail(error, DK_NOT_FOUND, "no route \"%.128s\"", request->target.path);
    }
    unsigned allowed = request->route->methods | DK_METHOD_OPTIONS;
    allowed |= (allowed & DK_METHOD_GET) != 0 ? DK_METHOD_HEAD : 0;
    if ((allowed & request->method) == 0) {
        char allow[64];
        dk_route_allow(request->route, allow, sizeof allow);
        return dk_fail(error, DK_METHOD_NOT_ALLOWED, "%.16s is not allowed on %s, only %s", method,
                       request->target.path, allow);
    }
    return dk_path_parameters_check(&request->parameters, error);
}

static bool body_is_longer_than_discarded(const struct dk_http_request *request)
{
    return request->head.has_content_length &&
           request->head.content_length > request->body_bytes + DK_HTTP_DISCARD_BYTES;
}

static void count_refusal(struct dk_http_request *request)
{
    dk_metrics_add(request->daemon->metrics, DK_METRIC_HTTP_REFUSED, 1);
    if (request->route != NULL && request->route->refused != NULL) {
        request->route->refused(request, request->error.status);
    }
}

/* Head complete. An answer queued here makes libmicrohttpd close the connection, so small refused bodies are
 * read first; a client that waits for 100-continue is told at once. */
static enum MHD_Result begin_request(struct dk_http_request *request, const char *method)
{
    request->stage = DK_STAGE_READ;
    request->method = parse_method(method);
    request->arrived_ns = dk_clock_now_ns();
    request->is_counted = true;
    atomic_fetch_add(&request->http->active_count, 1);

    struct dk_error head_error;
    dk_status status = dk_http_head_read(request->mhd, &request->head, &head_error);
    if (status != DK_OK) {
        request->error = head_error; /* before a bad target: it decides whether the connection can stay */
    }
    if (request->error.status == DK_OK) {
        status = check_method(request, method, &request->error);
        if (status == DK_OK && request->method != DK_METHOD_OPTIONS && request->route->begin != NULL) {
            status = request->route->begin(request, &request->error);
        }
        if (status == DK_OK) {
            status = dk_http_body_begin(request, &request->http->bodies, &request->error);
        }
        request->error.status = status;
    }
    if (request->error.status != DK_OK) {
        count_refusal(request);
        bool must_close = request->head.is_framing_doubtful || body_is_longer_than_discarded(request);
        if (must_close || (request->head.expect != NULL && request->head.content_length > 0)) {
            dk_http_connection_linger(&request->http->connections, request->connection->fd);
            return dk_http_reply_error(request, &request->error);
        }
    }
    bool has_body = request->head.is_chunked || request->head.content_length > 0;
    return dk_http_connection_enter(request->connection, has_body ? DK_PHASE_BODY : DK_PHASE_WORK) ? MHD_YES
                                                                                                   : MHD_NO;
}

/* The rest of the body is too long to read: answer on the bare socket and let libmicrohttpd close. */
static enum MHD_Result refuse_now(struct dk_http_request *request)
{
    if (!dk_http_connection_enter(request->connection, DK_PHASE_ANSWER)) {
        return MHD_NO;
    }
    dk_http_send_error_now(request->connection->fd, &request->error, request->method == DK_METHOD_HEAD);
    dk_http_connection_linger(&request->http->connections, request->connection->fd);
    return MHD_NO;
}

/* Bytes nobody wants: read up to the limit, so that the answer is seen and the connection can go on. */
static enum MHD_Result discard_body(struct dk_http_request *request, size_t length)
{
    request->discarded_bytes += length;
    if (request->discarded_bytes <= DK_HTTP_DISCARD_BYTES) {
        return MHD_YES;
    }
    if (request->error.status == DK_OK) {
        (void)dk_fail(&request->error, DK_TOO_LARGE, "%s takes no body, and this one has more than %d bytes",
                      request->target.path, DK_HTTP_DISCARD_BYTES);
        count_refusal(request);
    }
    return refuse_now(request);
}

static enum MHD_Result read_body(struct dk_http_request *request, const char *bytes, size_t *length)
{
    size_t taken = *length;
    bool is_wanted = request->error.status == DK_OK && request->route->body != NULL &&
                     request->method != DK_METHOD_OPTIONS;
    if (is_wanted) {
        taken = dk_http_body_feed(request, bytes, *length);
    }
    *length -= taken;
    request->body_bytes += taken;
    dk_metrics_add(request->daemon->metrics, DK_METRIC_HTTP_RECEIVED_BYTES, (int64_t)taken);
    if (!is_wanted) {
        return discard_body(request, taken);
    }
    if (request->error.status == DK_OK) {
        return MHD_YES;
    }
    count_refusal(request);
    return body_is_longer_than_discarded(request) ? refuse_now(request) : MHD_YES;
}

static enum MHD_Result answer_options(struct dk_http_request *request)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    char allow[64];
    dk_route_allow(request->route, allow, sizeof allow);
    if (response != NULL) {
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, allow);
    }
    return dk_http_reply(request, MHD_HTTP_NO_CONTENT, NULL, response);
}

static enum MHD_Result finish_request(struct dk_http_request *request)
{
    if (request->inflater != NULL) {
        if (!dk_http_body_finish(request)) {
            return MHD_YES; /* comes back */
        }
        if (request->error.status != DK_OK) {
            count_refusal(request);
        }
    }
    if (!dk_http_connection_enter(request->connection, DK_PHASE_WORK)) {
        return MHD_NO;
    }
    if (request->error.status != DK_OK) {
        return dk_http_reply_error(request, &request->error);
    }
    if (request->method == DK_METHOD_OPTIONS) {
        return answer_options(request);
    }
    return request->route->finish(request);
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *mhd, const char *url,
                                  const char *method, const char *version, const char *bytes, size_t *length,
                                  void **request_slot)
{
    (void)context;
    (void)mhd;
    (void)url;
    (void)version;
    struct dk_http_request *request = *request_slot;
    if (request == NULL) {
        return MHD_NO; /* no memory for the connection's record */
    }
    if (request->stage == DK_STAGE_LINE) {
        return begin_request(request, method);
    }
    if (*length > 0) {
        return read_body(request, bytes, length);
    }
    return finish_request(request);
}

static void on_request_end(void *context, struct MHD_Connection *mhd, void **request_slot,
                           enum MHD_RequestTerminationCode reason)
{
    (void)context;
    (void)mhd;
    (void)reason;
    struct dk_http_request *request = *request_slot;
    if (request == NULL) {
        return;
    }
    *request_slot = NULL;
    dk_http_body_end(request);
    if (request->route != NULL && request->route->end != NULL) {
        request->route->end(request);
    }
    if (request->is_counted) {
        request->is_counted = false;
        atomic_fetch_sub(&request->http->active_count, 1);
    }
    request->stage = DK_STAGE_NONE;
    (void)dk_http_connection_enter(request->connection, DK_PHASE_IDLE);
}

static void on_connection(void *context, struct MHD_Connection *mhd, void **connection_slot,
                          enum MHD_ConnectionNotificationCode code)
{
    struct dk_http *http = context;
    struct dk_http_connection *connection = *connection_slot;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (connection != NULL) {
            dk_http_connection_close(&http->connections, connection);
        }
        *connection_slot = NULL;
        atomic_fetch_sub(&http->connection_count, 1);
        dk_metrics_add(http->daemon->metrics, DK_METRIC_CONNECTIONS, -1);
        return;
    }
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    connection = dk_http_connection_open(&http->connections, info->connect_fd);
    if (connection != NULL) {
        connection->request.http = http;
        connection->request.daemon = http->daemon;
        connection->request.connection = connection;
    }
    *connection_slot = connection;
}

static uint32_t thread_count(const struct dk_config *config)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t wanted = config->http_threads;
    if (wanted == 0) {
        wanted = online < 1 ? 1 : online < HTTP_THREADS_DEFAULT ? (uint32_t)online : HTTP_THREADS_DEFAULT;
    }
    return wanted < HTTP_THREADS_MAX ? wanted : HTTP_THREADS_MAX;
}

static struct MHD_Daemon *start_worker(struct dk_http *http)
{
    const struct dk_config *config = http->daemon->config;
    /* One second more than our own deadline, which acts first; this one catches what ours cannot see. */
    unsigned idle_s = config->idle_timeout_ms / 1000 + 2;
    return MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC, 0,
        NULL, NULL, on_request, NULL, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY_BYTES,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)config->max_connections + 1, MHD_OPTION_CONNECTION_TIMEOUT,
        idle_s, MHD_OPTION_NOTIFY_COMPLETED, on_request_end, NULL, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, http, MHD_OPTION_URI_LOG_CALLBACK, on_request_line, NULL, MHD_OPTION_UNESCAPE_CALLBACK,
        keep_escapes, NULL, MHD_OPTION_END);
}

dk_status dk_http_new(struct dk_daemon *daemon, struct dk_http **out, struct dk_error *error)
{
    struct dk_http *http = calloc(1, sizeof *http);
    if (http == NULL) {
        return dk_fail(error, DK_NO_MEMORY, "cannot allocate the HTTP server");
    }
    http->daemon = daemon;
    dk_http_connections_init(&http->connections);
    uint32_t wanted = thread_count(daemon->config);
    while (http->worker_count < wanted) {
        struct MHD_Daemon *worker = start_worker(http);
        if (worker == NULL) {
            dk_status status = dk_fail(error, DK_UNAVAILABLE, "cannot start HTTP thread %u of %u",
                                       http->worker_count + 1, wanted);
            dk_http_free(http);
            return status;
        }
        http->workers[http->worker_count++] = worker;
    }
    *out = http;
    return DK_OK;
}

void dk_http_free(struct dk_http *http)
{
    if (http == NULL) {
        return;
    }
    for (uint32_t i = 0; i < http->worker_count; i++) {
        MHD_stop_daemon(http->workers[i]);
    }
    dk_http_connections_deinit(&http->connections);
    free(http);
}

void dk_http_add(struct dk_http *http, int fd, const struct sockaddr *address, socklen_t address_length)
{
    atomic_fetch_add(&http->connection_count, 1);
    dk_metrics_add(http->daemon->metrics, DK_METRIC_CONNECTIONS, 1);
    struct MHD_Daemon *worker = http->workers[http->next_worker++ % http->worker_count];
    if (MHD_add_connection(worker, fd, address, address_length) != MHD_YES) { /* has closed fd */
        atomic_fetch_sub(&http->connection_count, 1);
        dk_metrics_add(http->daemon->metrics, DK_METRIC_CONNECTIONS, -1);
    }
}

uint32_t dk_http_connection_count(const struct dk_http *http)
{
    return atomic_load(&http->connection_count);
}

uint32_t dk_http_active_count(const struct dk_http *http)
{
    return atomic_load(&http->active_count);
}

void dk_http_sweep(struct dk_http *http)
{
    dk_http_connections_sweep(&http->connections, http->daemon->config);
}
