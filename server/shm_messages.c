/* shm_messages.c: what each message of a client leads to. */
#include "server/shm_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "server/daemon.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/models.h"
#include "server/shm_models.h"

enum { LINES_PER_SECOND = 10 };

/* Worker: the memory takes as long as the kernel needs to find its pages. */
static void make_session(struct dk_shm_client *client)
{
    struct dk_shm_session *session = &client->session;
    struct dk_shm_memory memory;
    struct dk_error *error = &client->work_error;
    client->work_status = dk_shm_memory_new(&client->layout, &memory, error);
    if (client->work_status != DK_OK) {
        return;
    }
    uint64_t id = session->id;
    client->work_status =
        dk_shm_session_init(session, memory.mapping, &client->layout, client->shm->daemon->models, error);
    session->id = id;
    session->memory = memory;
    session->context = client;
    client->has_session = true;
    session->doorbell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (client->work_status == DK_OK && session->doorbell_fd < 0) {
        client->work_status =
            dk_fail(error, DK_IO_ERROR, "cannot make a doorbell: %s", strerrordesc_np(errno));
    }
}

static void after_make_session(struct dk_shm_client *client)
{
    struct dk_shm *shm = client->shm;
    if (client->work_status != DK_OK) {
        dk_shm_client_drop(client, client->work_status, client->work_error.message);
        return;
    }
    const struct dk_engine_info *info = dk_engine_get_info(shm->daemon->engine);
    union dk_shm_packet packet;
    (void)dk_shm_begin(&packet, DK_SHM_WELCOME);
    packet.welcome.session_id = client->session.id;
    packet.welcome.layout = client->layout;
    packet.welcome.max_rows = info->max_tokens;
    packet.welcome.can_load_models = shm->daemon->config->shm_load_models;
    packet.welcome.model_count = (uint32_t)dk_models_count(shm->daemon->models);
    packet.welcome.process_id = (uint32_t)getpid();
    (void)snprintf(packet.welcome.server_version, sizeof packet.welcome.server_version, "%s", dk_version());
    (void)snprintf(packet.welcome.backend, sizeof packet.welcome.backend, "%s", info->backend);
    const int fds[] = {client->session.memory.fd, client->session.doorbell_fd};
    client->state = DK_SHM_WELCOMED;
    dk_shm_client_send(client, &packet, fds, 2);
}

static void on_hello(struct dk_shm_client *client, const struct dk_shm_hello *hello)
{
    struct dk_shm *shm = client->shm;
    struct dk_error error;
    dk_status status = dk_shm_hello_layout(hello, &client->layout, &error);
    if (status == DK_OK && !dk_daemon_takes_work(shm->daemon)) {
        bool is_loading = dk_daemon_get_state(shm->daemon) == DK_DAEMON_LOADING;
        status = dk_fail(&error, DK_UNAVAILABLE, "%s",
                         is_loading ? "models are still being loaded" : "the daemon is stopping");
    }
    if (status == DK_OK) {
        status = dk_shm_claim(client, client->layout.mapping_bytes, &error);
    }
    if (status != DK_OK) {
        dk_shm_client_drop(client, status, error.message);
        return;
    }
    client->session.id = ++shm->last_session_id;
    dk_shm_client_work(client, make_session, after_make_session);
}

static void seal_session(struct dk_shm_client *client)
{
    client->work_status = dk_shm_memory_seal(&client->session.memory, &client->work_error);
}

static void after_seal_session(struct dk_shm_client *client)
{
    dk_status status = client->work_status;
    if (status == DK_OK) {
        status = dk_shm_give_to_executor(client, &client->work_error);
    }
    if (status != DK_OK) {
        dk_shm_client_drop(client, status, client->work_error.message);
        return;
    }
    struct dk_metrics *metrics = client->shm->daemon->metrics;
    client->state = DK_SHM_SERVED;
    dk_metrics_add(metrics, DK_METRIC_SHM_SESSIONS, 1);
    dk_metrics_add(metrics, DK_METRIC_SHM_OPENED, 1);
    static struct dk_log_limit limit;
    if (dk_log_allow(&limit, LINES_PER_SECOND)) {
        dk_log(DK_LOG_INFO, "shm_session_opened", "session=%llu pid=%d uid=%u bytes=%llu entries=%u",
               (unsigned long long)client->session.id, (int)client->ids.pid, (unsigned)client->ids.uid,
               (unsigned long long)client->layout.mapping_bytes, client->layout.entry_count);
    }
    union dk_shm_packet packet;
    (void)dk_shm_begin(&packet, DK_SHM_STARTED);
    dk_shm_client_send(client, &packet, NULL, 0);
}

void dk_shm_client_send_model(struct dk_shm_client *client, uint32_t id, const struct dk_model *model)
{
    union dk_shm_packet packet;
    (void)dk_shm_begin(&packet, DK_SHM_MODEL);
    packet.model.model_id = id;
    packet.model.dtype = model->dtype;
    packet.model.n = model->n;
    packet.model.k = model->k;
    packet.model.version = model->version;
    packet.model.epilogue = model->epilogue;
    packet.model.has_bias = model->has_bias;
    packet.model.layout = model->layout;
    memcpy(packet.model.name, model->name, strlen(model->name));
    dk_shm_client_send(client, &packet, NULL, 0);
}

static void on_open_model(struct dk_shm_client *client, const char *name)
{
    struct dk_model *model;
    struct dk_error error;
    uint32_t id = DK_SHM_NO_MODEL;
    dk_status status = dk_model_name_is_valid(name, strlen(name))
                           ? dk_shm_models_open(client->session.models, name, &id, &model, &error)
                           : dk_fail(&error, DK_BAD_VALUE, "\"%.80s\" is no name of a model", name);
    if (status != DK_OK) {
        dk_shm_client_send_error(client, &error);
        return;
    }
    dk_shm_client_send_model(client, id, model);
    dk_model_release(model);
}

/* The model at `index` of those that serve; NULL past the last. */
static struct dk_model *acquire_at(struct dk_models *models, uint32_t index)
{
    size_t cursor = 0;
    struct dk_model *model = dk_models_next(models, &cursor);
    for (uint32_t i = 0; i < index && model != NULL; i++) {
        dk_model_release(model);
        model = dk_models_next(models, &cursor);
    }
    return model;
}

static void on_list_model(struct dk_shm_client *client, uint32_t index)
{
    struct dk_model *model = acquire_at(client->shm->daemon->models, index);
    if (model == NULL) {
        struct dk_error error;
        (void)dk_fail(&error, DK_NOT_FOUND, "model %u: there are %zu", index,
                      dk_models_count(client->shm->daemon->models));
        dk_shm_client_send_error(client, &error);
        return;
    }
    dk_shm_client_send_model(client, DK_SHM_NO_MODEL, model);
    dk_model_release(model);
}

static void on_close(struct dk_shm_client *client)
{
    (void)dk_shm_socket_send_failure(client->fd, DK_SHM_GOODBYE, DK_OK, "closed by the client");
    dk_shm_client_end(client);
}

static void refuse_order(struct dk_shm_client *client, const union dk_shm_packet *packet)
{
    static const char *const expected[] = {
        [DK_SHM_NEW] = "HELLO", [DK_SHM_WELCOMED] = "MAPPED", [DK_SHM_SERVED] = "a request"};
    struct dk_error error;
    (void)dk_fail(&error, DK_BAD_REQUEST, "%s came where %s was expected",
                  dk_shm_kind_name(packet->message.kind), expected[client->state]);
    dk_shm_client_drop(client, error.status, error.message);
}

static void receive_request(struct dk_shm_client *client, const union dk_shm_packet *packet)
{
    switch (packet->message.kind) {
    case DK_SHM_OPEN_MODEL:
        on_open_model(client, packet->open_model.name);
        return;
    case DK_SHM_LIST_MODEL:
        on_list_model(client, packet->list_model.index);
        return;
    case DK_SHM_LOAD_MODEL:
        dk_shm_client_load_model(client, &packet->load_model);
        return;
    default:
        refuse_order(client, packet);
    }
}

void dk_shm_client_receive(struct dk_shm_client *client, const union dk_shm_packet *packet)
{
    if (packet->message.kind == DK_SHM_CLOSE) {
        on_close(client);
    } else if (client->state == DK_SHM_SERVED) {
        receive_request(client, packet);
    } else if (client->state == DK_SHM_NEW && packet->message.kind == DK_SHM_HELLO) {
        on_hello(client, &packet->hello);
    } else if (client->state == DK_SHM_WELCOMED && packet->message.kind == DK_SHM_MAPPED) {
        dk_shm_client_work(client, seal_session, after_seal_session);
    } else {
        refuse_order(client, packet);
    }
}
