/* client_http.c: requests over /v1/matmul as bytes: up to eight at a time, the others wait in order. */
#include "client/client_http.h"

#include <curl/curl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The request's own deadline is kept by the table of requests; curl's only catches what that cannot see. */
enum { SPARE_MS = 1000 };

dk_status dk_http_client_for(const struct dk_client *client, struct dk_http_client **out,
                             struct dk_error *error)
{
    const struct dk_http_options options = {
        .url = client->address, .timeout_s = client->options.timeout_ms / 1000.0, .api_key = client->api_key};
    return dk_http_client_new(&options, out, error);
}

/* --- lanes --------------------------------------------------------------------------------------------- */

static void free_place(struct dk_http_session *session, struct dk_http_place *place)
{
    dk_remote_call_deinit(&place->call);
    free(place->a_copy);
    dk_http_buffer_unuse(session, place->a_buffer);
    dk_http_buffer_unuse(session, place->c_buffer);
    *place = (struct dk_http_place){.lane = DK_HTTP_NO_LANE};
}

static void finish(struct dk_client *client, uint32_t index, dk_status status, const char *message,
                   const struct dk_client_timing *timing)
{
    struct dk_http_session *session = client->session;
    free_place(session, &session->places[index]);
    dk_client_finish(client, index, status, message, timing);
}

static dk_status start_lane(struct dk_client *client, struct dk_http_lane *lane, uint32_t index,
                            struct dk_error *error)
{
    struct dk_http_session *session = client->session;
    struct dk_http_place *place = &session->places[index];
    dk_status status = lane->http ? DK_OK : dk_http_client_for(client, &lane->http, error);
    if (status == DK_OK)
        status = dk_remote_matmul_request(&place->call, &lane->request, error);
    if (status != DK_OK)
        return status;
    uint64_t now_ns = dk_client_now_ns(), deadline_ns = client->entries[index].deadline_ns;
    uint64_t left_ms = deadline_ns > now_ns ? (deadline_ns - now_ns) / 1000000 : 0;
    lane->request.timeout_ms = (uint32_t)(left_ms < INT32_MAX - SPARE_MS ? left_ms + SPARE_MS : INT32_MAX);
    status = dk_http_client_begin(lane->http, &lane->request, error);
    if (status != DK_OK)
        return status;
    if (curl_multi_add_handle(session->multi, dk_http_client_easy(lane->http)) != CURLM_OK) {
        dk_http_client_cancel(lane->http);
        return dk_fail(error, DK_INTERNAL, "the HTTP request could not be started");
    }
    lane->is_flying = true;
    lane->entry = index;
    place->lane = (uint32_t)(lane - session->lanes);
    return DK_OK;
}

static void start_queued(struct dk_client *client)
{
    struct dk_http_session *session = client->session;
    for (uint32_t i = 0; i < DK_HTTP_LANES && session->queue_count > 0; i++) {
        if (session->lanes[i].is_flying)
            continue;
        uint32_t index = session->queue[session->queue_head];
        session->queue_head = (session->queue_head + 1) % client->granted_entries;
        session->queue_count--;
        struct dk_error reason;
        dk_status status = start_lane(client, &session->lanes[i], index, &reason);
        if (status != DK_OK) {
            const struct dk_client_timing timing = {0};
            finish(client, index, status, reason.message, &timing);
        }
    }
}

static void stop_lane(struct dk_http_session *session, struct dk_http_lane *lane)
{
    curl_multi_remove_handle(session->multi, dk_http_client_easy(lane->http));
    lane->is_flying = false;
}

/* --- outcomes ------------------------------------------------------------------------------------------ */

static uint64_t to_ns(double us)
{
    return us > 0 && us < 1e15 ? (uint64_t)(us * 1000.0) : 0; /* NaN: the server did not say */
}

static void complete_lane(struct dk_client *client, struct dk_http_lane *lane, int curl_code)
{
    struct dk_http_session *session = client->session;
    struct dk_http_place *place = &session->places[lane->entry];
    const struct dk_client_entry *entry = &client->entries[lane->entry];
    struct dk_http_response response;
    struct dk_remote_reply reply;
    struct dk_error reason;
    stop_lane(session, lane);
    struct dk_client_timing timing = {.round_trip_ns = dk_client_now_ns() - entry->submitted_ns};
    dk_status status = dk_http_client_end(lane->http, curl_code, &response, &reason);
    if (status == DK_OK)
        status = dk_remote_matmul_reply(lane->http, &place->call, &response, &reply, &reason);
    if (status != DK_OK) {
        finish(client, lane->entry, status, reason.message, &timing);
        return;
    }
    if (reply.y_bytes > 0)
        memcpy(place->c, reply.y, reply.y_bytes);
    timing.queue_ns = to_ns(reply.timing.queue_us);
    timing.kernel_ns = to_ns(reply.timing.kernel_us);
    timing.server_ns = to_ns(reply.timing.total_us);
    dk_remote_reply_deinit(&reply);
    finish(client, lane->entry, DK_OK, NULL, &timing);
}

static void progress(struct dk_client *client)
{
    struct dk_http_session *session = client->session;
    int running, left;
    start_queued(client);
    curl_multi_perform(session->multi, &running);
    for (const CURLMsg *message; (message = curl_multi_info_read(session->multi, &left)) != NULL;) {
        const CURL *easy = message->easy_handle;
        CURLcode code = message->data.result;
        for (uint32_t i = 0; i < DK_HTTP_LANES && message->msg == CURLMSG_DONE; i++)
            if (session->lanes[i].is_flying && dk_http_client_easy(session->lanes[i].http) == easy) {
                complete_lane(client, &session->lanes[i], (int)code);
                break; /* the message is gone with its handle */
            }
    }
    start_queued(client);
}

static void abandon(struct dk_client *client, uint32_t index)
{
    struct dk_http_session *session = client->session;
    const struct dk_client_timing timing = {0};
    uint32_t lane = session->places[index].lane;
    if (lane != DK_HTTP_NO_LANE) {
        stop_lane(session, &session->lanes[lane]); /* closes the connection, if an answer was due on it */
        dk_http_client_cancel(session->lanes[lane].http);
    } else {
        uint32_t kept = 0; /* close the gap in the queue */
        for (uint32_t i = 0; i < session->queue_count; i++) {
            uint32_t other = session->queue[(session->queue_head + i) % client->granted_entries];
            if (other != index)
                session->queue[(session->queue_head + kept++) % client->granted_entries] = other;
        }
        session->queue_count = kept;
    }
    finish(client, index, DK_TIMEOUT, NULL, &timing);
}

static void sleep_until(struct dk_client *client, uint64_t until_ns)
{
    struct dk_http_session *session = client->session;
    uint64_t now_ns = dk_client_now_ns();
    uint64_t left_ms = until_ns > now_ns ? (until_ns - now_ns + 999999) / 1000000 : 0;
    curl_multi_poll(session->multi, NULL, 0, left_ms < 1000 ? (int)left_ms : 1000, NULL);
}

/* --- submitting ---------------------------------------------------------------------------------------- */

static uint64_t fitting_rows(struct dk_client *client, const struct dk_client_product *product)
{
    (void)client;
    return product->rows; /* the daemon cuts */
}

static dk_status submit(struct dk_client *client, uint32_t index, const struct dk_client_product *product,
                        struct dk_error *error)
{
    struct dk_http_session *session = client->session;
    struct dk_http_place *place = &session->places[index];
    const struct dk_client_model_info *info = &product->model->info;
    *place = (struct dk_http_place){.c = product->c, .lane = DK_HTTP_NO_LANE};
    place->model = (struct dk_remote_model){.n = info->n, .k = info->k, .dtype = info->dtype};
    strcpy(place->model.name, info->name);
    place->a_buffer = dk_http_buffer_find(session, product->a, product->a_bytes);
    place->c_buffer = dk_http_buffer_find(session, product->c, product->c_bytes);
    dk_http_buffer_use(place->a_buffer);
    dk_http_buffer_use(place->c_buffer);
    const void *a = product->a;
    if (product->a_bytes > 0 && !place->a_buffer) {
        a = place->a_copy = malloc(product->a_bytes);
        if (!a) {
            free_place(session, place);
            return dk_fail(error, DK_NO_MEMORY, "no memory for %zu bytes of rows", product->a_bytes);
        }
        memcpy(place->a_copy, product->a, product->a_bytes);
    }
    const struct dk_remote_request request = {.model = &place->model,
                                              .rows = product->rows,
                                              .x = a,
                                              .dtype = product->a_dtype,
                                              .out_dtype = product->c_dtype,
                                              .has_epilogue = product->has_epilogue,
                                              .epilogue = product->epilogue};
    dk_status status = dk_remote_call_init(&request, &place->call, error);
    if (status != DK_OK) {
        free_place(session, place);
        return status;
    }
    session->queue[(session->queue_head + session->queue_count++) % client->granted_entries] = index;
    return DK_OK;
}

/* --- session ------------------------------------------------------------------------------------------- */

static void free_session(struct dk_http_session *session)
{
    for (uint32_t i = 0; i < DK_HTTP_LANES; i++) {
        if (session->lanes[i].is_flying)
            stop_lane(session, &session->lanes[i]);
        dk_http_client_free(session->lanes[i].http);
    }
    dk_http_client_free(session->control);
    if (session->multi)
        curl_multi_cleanup(session->multi);
    dk_http_buffers_free(session);
    free(session->places);
    free(session->queue);
    free(session);
}

static dk_status make_session(struct dk_client *client, struct dk_error *error)
{
    struct dk_http_session *session = calloc(1, sizeof *session);
    if (!session)
        return dk_fail(error, DK_NO_MEMORY, "no memory for a session");
    session->places = calloc(client->options.ring_entries, sizeof *session->places);
    session->queue = calloc(client->options.ring_entries, sizeof *session->queue);
    dk_status status = dk_http_client_for(client, &session->control, error);
    if (status == DK_OK) {
        session->multi = curl_multi_init();
        if (!session->places || !session->queue || !session->multi)
            status = dk_fail(error, DK_NO_MEMORY, "no memory for a session");
    }
    if (status == DK_OK)
        client->session = session;
    else
        free_session(session);
    return status;
}

/* Nothing is kept open for its own sake; asking for the models shows that a daemon is there. */
static dk_status connect_session(struct dk_client *client, uint64_t deadline_ns, struct dk_error *error)
{
    dk_status status = client->session ? DK_OK : make_session(client, error);
    size_t count;
    if (status == DK_OK)
        status = dk_http_list_models(client, deadline_ns, NULL, 0, &count, error);
    if (status == DK_OK)
        client->granted_entries = client->options.ring_entries;
    return status;
}

static void disconnect(struct dk_client *client, bool is_closing)
{
    struct dk_http_session *session = client->session;
    if (!session)
        return;
    if (is_closing) {
        for (uint32_t i = 0; i < client->entry_count; i++)
            free_place(session, &session->places[i]);
        free_session(session);
        client->session = NULL;
        return;
    }
    for (uint32_t i = 0; i < DK_HTTP_LANES; i++)
        if (session->lanes[i].is_flying) {
            stop_lane(session, &session->lanes[i]);
            dk_http_client_cancel(session->lanes[i].http);
        }
    for (uint32_t i = 0; i < client->entry_count; i++)
        free_place(session, &session->places[i]);
    session->queue_count = 0;
}

static dk_status load_model(struct dk_client *client, uint64_t deadline_ns, const char *name,
                            const struct dk_client_weights *weights, struct dk_error *error)
{
    (void)client, (void)deadline_ns, (void)weights;
    return dk_fail(error, DK_UNSUPPORTED, "model '%s' cannot be loaded over HTTP, only over shared memory",
                   name);
}

/* A connection that broke fails its own request only; the next one opens another. */
static void check(struct dk_client *client)
{
    (void)client;
}

const struct dk_client_transport dk_client_http_transport = {
    .name = "http",
    .connect = connect_session,
    .disconnect = disconnect,
    .list_models = dk_http_list_models,
    .find_model = dk_http_find_model,
    .load_model = load_model,
    .fitting_rows = fitting_rows,
    .submit = submit,
    .progress = progress,
    .check = check,
    .abandon = abandon,
    .sleep = sleep_until,
    .buffer_acquire = dk_http_buffer_acquire,
    .buffer_release = dk_http_buffer_release,
};
