/* shm_control.c: questions to the daemon's control thread over the session's socket: models, weights, life.
 */
#include <string.h>

#include "client/shm_client.h"

/* --- question and answer ------------------------------------------------------------------------------- */

static void lose_by_goodbye(struct dk_client *client, const struct dk_shm_failure *failure)
{
    struct dk_shm_session *session = dk_shm_live(client);
    if (failure->status == DK_UNAVAILABLE) {
        session->is_draining = true; /* what was accepted completes; then comes the end of file */
        return;
    }
    client->transport->progress(client);
    dk_client_lose(client, "the daemon ended it: %s", failure->text);
}

/* Ask, and take the answer of `kind`. A lost session fails the requests in flight as well. */
static dk_status ask(struct dk_client *client, union dk_shm_packet *packet, size_t length,
                     enum dk_shm_kind kind, uint64_t deadline_ns, struct dk_error *error)
{
    struct dk_shm_session *session = dk_shm_live(client);
    struct dk_error reason;
    dk_status status = dk_shm_send(session, packet, length, deadline_ns, &reason);
    if (status == DK_TIMEOUT)
        return dk_fail(error, status, "%s", reason.message);
    while (status == DK_OK) {
        status = dk_shm_receive(session, deadline_ns, packet, &reason);
        if (status == DK_TIMEOUT) {
            session->late_answer_count++;
            return dk_fail(error, status, "%s", reason.message);
        }
        if (status != DK_OK)
            break;
        if (packet->message.kind == DK_SHM_GOODBYE) {
            lose_by_goodbye(client, &packet->failure);
            if (!client->is_connected)
                return dk_fail(error, DK_UNAVAILABLE, "%s", client->loss);
        } else if (session->late_answer_count > 0) {
            session->late_answer_count--;
        } else if (packet->message.kind == DK_SHM_ERROR && packet->failure.status > DK_OK &&
                   packet->failure.status < DK_STATUS_COUNT) {
            return dk_fail(error, (dk_status)packet->failure.status, "%s", packet->failure.text);
        } else if (packet->message.kind == kind) {
            return DK_OK;
        } else {
            status = dk_fail(&reason, DK_UNAVAILABLE, "the daemon sent an unexpected %s",
                             dk_shm_kind_name(packet->message.kind));
        }
    }
    client->transport->progress(client);
    dk_client_lose(client, "%s", reason.message);
    return dk_fail(error, DK_UNAVAILABLE, "%s", client->loss);
}

void dk_shm_check_daemon(struct dk_client *client)
{
    struct dk_shm_session *session = dk_shm_live(client);
    union dk_shm_packet packet;
    struct dk_error reason;
    while (client->is_connected) {
        dk_status status = dk_shm_receive(session, 0, &packet, &reason);
        if (status == DK_TIMEOUT)
            break;
        if (status == DK_OK && packet.message.kind == DK_SHM_GOODBYE) {
            lose_by_goodbye(client, &packet.failure);
        } else if (status == DK_OK && session->late_answer_count > 0) {
            session->late_answer_count--;
        } else {
            client->transport->progress(client); /* what completed before the end counts */
            if (status == DK_OK)
                dk_client_lose(client, "the daemon sent an unexpected %s",
                               dk_shm_kind_name(packet.message.kind));
            else
                dk_client_lose(client, "%s", reason.message);
        }
    }
    if (session->is_draining && client->flying_count == 0)
        dk_client_lose(client, "the daemon is stopping");
}

/* --- models -------------------------------------------------------------------------------------------- */

static dk_status read_model(const struct dk_shm_model *from, struct dk_client_model_info *out,
                            struct dk_error *error)
{
    struct dk_client_model_info info = {.n = from->n,
                                        .k = from->k,
                                        .dtype = (dk_dtype)from->dtype,
                                        .epilogue = (dk_epilogue)from->epilogue,
                                        .has_bias = from->has_bias != 0,
                                        .version = from->version};
    if (from->n < 1 || from->n > DK_MAX_N || from->k < 1 || from->k > DK_MAX_K ||
        from->dtype >= DK_DTYPE_COUNT || !dk_dtype_is_float(info.dtype) ||
        from->epilogue >= DK_EPILOGUE_COUNT || !dk_model_name_is_valid(from->name, strlen(from->name)))
        return dk_fail(error, DK_INTERNAL,
                       "the daemon's description of a model makes no sense: [k=%llu, n=%llu]",
                       (unsigned long long)from->k, (unsigned long long)from->n);
    strcpy(info.name, from->name);
    *out = info;
    return DK_OK;
}

dk_status dk_shm_list_models(struct dk_client *client, uint64_t deadline_ns, struct dk_client_model_info *out,
                             size_t capacity, size_t *out_count, struct dk_error *error)
{
    size_t count = 0;
    for (;; count++) {
        union dk_shm_packet packet;
        struct dk_error reason;
        struct dk_client_model_info info;
        size_t length = dk_shm_begin(&packet, DK_SHM_LIST_MODEL);
        packet.list_model.index = (uint32_t)count;
        dk_status status = ask(client, &packet, length, DK_SHM_MODEL, deadline_ns, &reason);
        if (status == DK_NOT_FOUND)
            break;
        if (status == DK_OK)
            status = read_model(&packet.model, &info, &reason);
        if (status != DK_OK)
            return dk_fail(error, status, "%s", reason.message);
        if (count < capacity)
            out[count] = info;
    }
    *out_count = count;
    return DK_OK;
}

dk_status dk_shm_find_model(struct dk_client *client, uint64_t deadline_ns, const char *name,
                            struct dk_client_model_info *out, uint64_t *out_remote_id, struct dk_error *error)
{
    union dk_shm_packet packet;
    size_t length = dk_shm_begin(&packet, DK_SHM_OPEN_MODEL);
    strcpy(packet.open_model.name, name); /* the caller checked the length */
    dk_status status = ask(client, &packet, length, DK_SHM_MODEL, deadline_ns, error);
    if (status == DK_OK)
        status = read_model(&packet.model, out, error);
    if (status == DK_OK)
        *out_remote_id = packet.model.model_id;
    return status;
}

/* --- weights ------------------------------------------------------------------------------------------- */

static dk_status reserve(struct dk_client *client, size_t bytes, size_t *out_offset, struct dk_error *error)
{
    struct dk_area *area = &dk_shm_live(client)->area;
    if (dk_area_take(area, bytes, out_offset))
        return DK_OK;
    dk_shm_trim(client);
    if (dk_area_take(area, bytes, out_offset))
        return DK_OK;
    if (bytes > dk_area_largest(area))
        return dk_fail(error, DK_TOO_LARGE,
                       "%zu bytes of weights do not fit the data area (largest piece %zu): open the client "
                       "with more data_bytes",
                       bytes, dk_area_largest(area));
    return dk_fail(error, DK_BUSY, "no %zu bytes of the data area are free for weights now", bytes);
}

static size_t fill_load(struct dk_shm_load_model *load, const char *name,
                        const struct dk_client_weights *weights, unsigned char *data, size_t offset,
                        size_t weights_bytes)
{
    size_t bias_offset = (weights_bytes + DK_RING_ALIGN_BYTES - 1) & ~((size_t)DK_RING_ALIGN_BYTES - 1);
    strcpy(load->name, name); /* the caller checked the length */
    load->n = weights->n;
    load->k = weights->k;
    load->dtype = (uint32_t)weights->dtype;
    load->layout = (uint32_t)weights->layout;
    load->epilogue = (uint32_t)weights->epilogue;
    load->weights_offset = offset;
    memcpy(data + offset, weights->data, weights_bytes);
    if (weights->bias) {
        load->has_bias = 1;
        load->bias_offset = offset + bias_offset;
        memcpy(data + offset + bias_offset, weights->bias, weights->n * sizeof *weights->bias);
    }
    return load->message.bytes;
}

dk_status dk_shm_load_model(struct dk_client *client, uint64_t deadline_ns, const char *name,
                            const struct dk_client_weights *weights, struct dk_error *error)
{
    struct dk_shm_session *session = dk_shm_live(client);
    size_t weights_bytes = (size_t)weights->n * (size_t)weights->k * dk_dtype_bytes(weights->dtype);
    size_t bias_bytes = weights->bias ? (size_t)weights->n * sizeof *weights->bias : 0;
    size_t offset;
    dk_status status = reserve(client, weights_bytes + DK_RING_ALIGN_BYTES + bias_bytes, &offset, error);
    if (status != DK_OK)
        return status;
    union dk_shm_packet packet;
    struct dk_client_model_info info;
    dk_shm_begin(&packet, DK_SHM_LOAD_MODEL);
    size_t length = fill_load(&packet.load_model, name, weights, session->ring.data, offset, weights_bytes);
    status = ask(client, &packet, length, DK_SHM_MODEL, deadline_ns, error);
    if (status == DK_TIMEOUT) /* the daemon may be reading it: the space is lost until the session ends */
        return status;
    dk_area_give(&session->area, offset);
    if (status == DK_OK)
        status = read_model(&packet.model, &info, error);
    if (status != DK_OK)
        return status;
    for (struct dk_client_model *model = client->models; model; model = model->next)
        if (strcmp(model->info.name, name) == 0)
            dk_client_model_renew(model, &info, packet.model.model_id);
    return DK_OK;
}
