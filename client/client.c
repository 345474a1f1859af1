/* client.c: the public face of the C client: open, close, reconnect, models. */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/client_private.h"
#include "proto/native_api.h"

enum { DEFAULT_ENTRIES = 64, MAX_ENTRIES = 4096, DEFAULT_TIMEOUT_MS = 10000, DEFAULT_SPIN_US = 50 };
static const uint64_t default_data_bytes = 16 << 20;

_Static_assert((int)DK_CLIENT_NAME_BYTES == (int)DK_MODEL_NAME_BYTES, "a model's name fits");

const char *dk_client_version(void)
{
    return DK_VERSION;
}

/* --- whose client it is -------------------------------------------------------------------------------- */

/* A page that fork zeroes in the child: the cheapest way to notice one, one load for each call. */
static dk_status map_canary(struct dk_client *client, struct dk_error *error)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *canary = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (canary == MAP_FAILED)
        return dk_fail(error, DK_NO_MEMORY, "no memory for the client");
    if (madvise(canary, page, MADV_WIPEONFORK) != 0) {
        int code = errno;
        munmap(canary, page);
        return dk_fail(error, DK_UNSUPPORTED, "madvise(MADV_WIPEONFORK): %s; Linux 4.14 is needed",
                       strerror(code));
    }
    *canary = 1;
    client->fork_canary = canary;
    return DK_OK;
}

static void unmap_canary(struct dk_client *client)
{
    if (client->fork_canary)
        munmap((void *)client->fork_canary, (size_t)sysconf(_SC_PAGESIZE));
}

dk_status dk_client_check_owner(const struct dk_client *client, struct dk_error *error)
{
    if (*client->fork_canary)
        return DK_OK;
    return dk_fail(error, DK_UNSUPPORTED,
                   "this client was opened before fork: a child process has to open its own");
}

dk_status dk_client_check_usable(struct dk_client *client, uint64_t *out_now_ns, struct dk_error *error)
{
    dk_status status = dk_client_check_owner(client, error);
    if (status != DK_OK)
        return status;
    *out_now_ns = dk_client_now_ns();
    if (client->is_connected && *out_now_ns >= client->next_check_ns)
        dk_client_check_daemon(client, *out_now_ns);
    if (client->is_connected)
        return DK_OK;
    if (!client->options.is_reconnecting)
        return dk_fail(error, DK_UNAVAILABLE, "%s", client->loss);
    status = dk_client_reconnect(client, error);
    *out_now_ns = dk_client_now_ns();
    return status;
}

uint64_t dk_client_deadline(const struct dk_client *client, uint32_t timeout_ms)
{
    if (timeout_ms == 0)
        timeout_ms = client->options.timeout_ms;
    return dk_client_now_ns() + timeout_ms * UINT64_C(1000000);
}

/* --- connection ---------------------------------------------------------------------------------------- */

static const struct dk_client_transport *find_transport(const char *address, struct dk_error *error)
{
    if (strncmp(address, "unix:/", 6) == 0)
        return &dk_client_shm_transport;
    if (strncmp(address, "http://", 7) == 0) {
#ifdef DK_CLIENT_HTTP
        return &dk_client_http_transport;
#else
        dk_fail(error, DK_UNSUPPORTED, "'%s': this library was built without HTTP", address);
        return NULL;
#endif
    }
    dk_fail(error, DK_BAD_VALUE, "address '%s': expected unix:/path or http://host:port", address);
    return NULL;
}

static dk_status read_options(const struct dk_client_options *given, struct dk_client_options *out,
                              struct dk_error *error)
{
    struct dk_client_options options = given ? *given : (struct dk_client_options){0};
    for (size_t i = 0; i < sizeof options.reserved / sizeof options.reserved[0]; i++)
        if (options.reserved[i] != 0)
            return dk_fail(error, DK_BAD_VALUE, "reserved word %zu of the options is not 0", i);
    if (options.ring_entries > MAX_ENTRIES)
        return dk_fail(error, DK_BAD_VALUE, "ring_entries %u is not in 0..%d", options.ring_entries,
                       MAX_ENTRIES);
    uint32_t wanted = options.ring_entries ? options.ring_entries : DEFAULT_ENTRIES;
    for (options.ring_entries = 1; options.ring_entries < wanted;)
        options.ring_entries *= 2;
    if (options.data_bytes == 0)
        options.data_bytes = default_data_bytes;
    if (options.timeout_ms == 0)
        options.timeout_ms = DEFAULT_TIMEOUT_MS;
    if (options.spin_us == 0)
        options.spin_us = DEFAULT_SPIN_US;
    *out = options;
    return DK_OK;
}

/* An API key goes into a header line. */
static dk_status check_api_key(const char *key, struct dk_error *error)
{
    for (const char *c = key ? key : ""; *c; c++)
        if (*c <= ' ' || *c > '~')
            return dk_fail(error, DK_BAD_VALUE, "the API key has a byte that is not printable ASCII");
    return DK_OK;
}

static dk_status connect_transport(struct dk_client *client, struct dk_error *error)
{
    dk_status status =
        client->transport->connect(client, dk_client_deadline(client, client->options.timeout_ms), error);
    if (status != DK_OK)
        return status;
    client->is_connected = true;
    client->session_count++;
    client->next_check_ns = 0;
    return DK_OK;
}

dk_status dk_client_open(const char *address, const struct dk_client_options *options, struct dk_client **out,
                         struct dk_error *error)
{
    struct dk_client_options checked;
    const struct dk_client_transport *transport = find_transport(address, error);
    if (!transport)
        return strncmp(address, "http://", 7) == 0 ? DK_UNSUPPORTED : DK_BAD_VALUE;
    dk_status status = read_options(options, &checked, error);
    if (status == DK_OK)
        status = check_api_key(checked.api_key, error);
    if (status != DK_OK)
        return status;
    struct dk_client *client = calloc(1, sizeof *client);
    if (!client)
        return dk_fail(error, DK_NO_MEMORY, "no memory for a client");
    client->transport = transport;
    client->options = checked;
    client->address = strdup(address);
    client->api_key = checked.api_key ? strdup(checked.api_key) : NULL;
    client->options.api_key = NULL;
    if (!client->address || (checked.api_key && !client->api_key))
        status = dk_fail(error, DK_NO_MEMORY, "no memory for a client");
    if (status == DK_OK)
        status = map_canary(client, error);
    if (status == DK_OK)
        status = connect_transport(client, error);
    if (status == DK_OK)
        status = dk_client_requests_init(client, error);
    if (status != DK_OK) {
        dk_client_close(client);
        return status;
    }
    *out = client;
    return DK_OK;
}

void dk_client_close(struct dk_client *client)
{
    if (!client)
        return;
    client->transport->disconnect(client, true);
    while (client->models)
        dk_client_model_close(client->models);
    dk_client_requests_deinit(client);
    unmap_canary(client);
    free(client->address);
    free(client->api_key);
    free(client);
}

void dk_client_lose(struct dk_client *client, const char *format, ...)
{
    if (!client->is_connected)
        return;
    char reason[DK_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    client->is_connected = false;
    struct dk_error error;
    dk_fail(&error, DK_UNAVAILABLE, "the session with %s is over: %s", client->address, reason);
    memcpy(client->loss, error.message, sizeof client->loss);
    dk_client_fail_all(client, DK_UNAVAILABLE, client->loss);
}

/* After a reconnect: the same name may mean something else, or nothing. */
static dk_status look_up_again(struct dk_client_model *model, uint64_t deadline_ns, struct dk_error *error)
{
    struct dk_client *client = model->client;
    struct dk_client_model_info info;
    uint64_t remote_id;
    dk_status status =
        client->transport->find_model(client, deadline_ns, model->info.name, &info, &remote_id, error);
    if (status == DK_NOT_FOUND) {
        model->status = DK_NOT_FOUND;
        return DK_OK;
    }
    if (status == DK_OK)
        dk_client_model_renew(model, &info, remote_id);
    return status;
}

void dk_client_model_renew(struct dk_client_model *model, const struct dk_client_model_info *info,
                           uint64_t remote_id)
{
    if (info->n != model->info.n || info->k != model->info.k) {
        model->status = DK_BAD_SHAPE; /* the caller's buffers have the sizes of the old one */
        return;
    }
    model->info = *info;
    model->remote_id = remote_id;
    model->status = DK_OK;
}

dk_status dk_client_reconnect(struct dk_client *client, struct dk_error *error)
{
    dk_status status = dk_client_check_owner(client, error);
    if (status != DK_OK)
        return status;
    dk_client_lose(client, "dk_client_reconnect was called");
    client->transport->disconnect(client, false);
    status = connect_transport(client, error);
    if (status != DK_OK)
        return status;
    uint64_t deadline_ns = dk_client_deadline(client, 0);
    for (struct dk_client_model *model = client->models; model && status == DK_OK; model = model->next)
        status = look_up_again(model, deadline_ns, error);
    if (status != DK_OK)
        dk_client_lose(client, "the models could not be looked up: %s", dk_status_text(status));
    return status;
}

void dk_client_get_info(const struct dk_client *client, struct dk_client_info *out)
{
    *out = (struct dk_client_info){.transport = client->transport->name,
                                   .is_connected = client->is_connected,
                                   .ring_entries = client->entry_count,
                                   .in_flight = client->reportable_count,
                                   .data_bytes = client->granted_bytes,
                                   .session_count = client->session_count};
}

/* --- models -------------------------------------------------------------------------------------------- */

dk_status dk_client_list_models(struct dk_client *client, struct dk_client_model_info *out, size_t capacity,
                                size_t *out_count, struct dk_error *error)
{
    uint64_t now_ns;
    dk_status status = dk_client_check_usable(client, &now_ns, error);
    if (status != DK_OK)
        return status;
    return client->transport->list_models(client, dk_client_deadline(client, 0), out, capacity, out_count,
                                          error);
}

static dk_status check_name(const char *name, struct dk_error *error)
{
    if (dk_model_name_is_valid(name, strlen(name)))
        return DK_OK;
    return dk_fail(error, DK_BAD_VALUE, "model name '%s' is not [A-Za-z0-9._-]{1,64}", name);
}

dk_status dk_client_model_open(struct dk_client *client, const char *name, struct dk_client_model **out,
                               struct dk_error *error)
{
    uint64_t now_ns;
    dk_status status = dk_client_check_usable(client, &now_ns, error);
    if (status == DK_OK)
        status = check_name(name, error);
    if (status != DK_OK)
        return status;
    struct dk_client_model *model = calloc(1, sizeof *model);
    if (!model)
        return dk_fail(error, DK_NO_MEMORY, "no memory for a model");
    status = client->transport->find_model(client, dk_client_deadline(client, 0), name, &model->info,
                                           &model->remote_id, error);
    if (status != DK_OK) {
        free(model);
        return status;
    }
    model->client = client;
    model->next = client->models;
    client->models = model;
    *out = model;
    return DK_OK;
}

void dk_client_model_close(struct dk_client_model *model)
{
    if (!model)
        return;
    struct dk_client_model **link = &model->client->models;
    while (*link != model)
        link = &(*link)->next;
    *link = model->next;
    free(model);
}

const struct dk_client_model_info *dk_client_model_get_info(const struct dk_client_model *model)
{
    return &model->info;
}

static dk_status check_weights(const struct dk_client_weights *weights, struct dk_error *error)
{
    struct dk_gemm_sizes sizes;
    for (size_t i = 0; i < sizeof weights->reserved / sizeof weights->reserved[0]; i++)
        if (weights->reserved[i] != 0)
            return dk_fail(error, DK_BAD_VALUE, "reserved word %zu of the weights is not 0", i);
    if (weights->layout != DK_LAYOUT_KN && weights->layout != DK_LAYOUT_NK)
        return dk_fail(error, DK_BAD_VALUE, "layout %d is unknown", (int)weights->layout);
    if ((unsigned)weights->epilogue >= DK_EPILOGUE_COUNT)
        return dk_fail(error, DK_BAD_VALUE, "epilogue %d is unknown", (int)weights->epilogue);
    if (!weights->data)
        return dk_fail(error, DK_BAD_VALUE, "the weights' data is NULL");
    const struct dk_gemm gemm = {
        .n = weights->n, .k = weights->k, .a_dtype = DK_FP32, .b_dtype = weights->dtype, .c_dtype = DK_FP32};
    return dk_gemm_check(&gemm, &sizes, error);
}

dk_status dk_client_load_model(struct dk_client *client, const char *name,
                               const struct dk_client_weights *weights, uint32_t timeout_ms,
                               struct dk_error *error)
{
    uint64_t now_ns;
    dk_status status = dk_client_check_usable(client, &now_ns, error);
    if (status == DK_OK)
        status = check_name(name, error);
    if (status == DK_OK)
        status = check_weights(weights, error);
    if (status != DK_OK)
        return status;
    return client->transport->load_model(client, dk_client_deadline(client, timeout_ms), name, weights,
                                         error);
}

/* --- direct buffers ------------------------------------------------------------------------------------ */

dk_status dk_client_buffer_acquire(struct dk_client *client, size_t bytes, void **out, struct dk_error *error)
{
    uint64_t now_ns;
    dk_status status = dk_client_check_usable(client, &now_ns, error);
    if (status != DK_OK)
        return status;
    if (bytes == 0)
        return dk_fail(error, DK_BAD_VALUE, "a buffer of 0 bytes");
    return client->transport->buffer_acquire(client, bytes, out, error);
}

void dk_client_buffer_release(struct dk_client *client, void *buffer)
{
    if (buffer && dk_client_check_owner(client, NULL) == DK_OK)
        client->transport->buffer_release(client, buffer);
}
