/* client_requests.c: the table of requests in flight: submit, poll, wait, deadlines. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client_private.h"

/* A lost daemon is noticed within this time; the question is one poll(2). */
static const uint64_t check_interval_ns = 20 * 1000000;

dk_status dk_client_requests_init(struct dk_client *client, struct dk_error *error)
{
    uint32_t count = client->granted_entries;
    client->entries = calloc(count, sizeof *client->entries);
    client->messages = calloc(count, sizeof *client->messages);
    client->free_entries = calloc(count, sizeof *client->free_entries);
    client->done_entries = calloc(count, sizeof *client->done_entries);
    if (!client->entries || !client->messages || !client->free_entries || !client->done_entries)
        return dk_fail(error, DK_NO_MEMORY, "no memory for %u requests in flight", count);
    client->entry_count = client->free_count = count;
    for (uint32_t i = 0; i < count; i++)
        client->free_entries[i] = count - 1 - i;
    client->next_deadline_ns = UINT64_MAX;
    return DK_OK;
}

void dk_client_requests_deinit(struct dk_client *client)
{
    free(client->entries);
    free(client->messages);
    free(client->free_entries);
    free(client->done_entries);
}

/* --- outcomes ------------------------------------------------------------------------------------------ */

static void free_if_idle(struct dk_client *client, uint32_t index)
{
    const struct dk_client_entry *entry = &client->entries[index];
    if (!entry->is_remote && !entry->is_queued)
        client->free_entries[client->free_count++] = index;
}

static void settle_group(struct dk_client_group *group, dk_status status, const char *message,
                         const struct dk_client_timing *timing)
{
    group->flying_count--;
    group->timing.queue_ns += timing->queue_ns;
    group->timing.kernel_ns += timing->kernel_ns;
    group->timing.server_ns += timing->server_ns;
    if (status != DK_OK && group->status == DK_OK) {
        group->status = status;
        snprintf(group->message, sizeof group->message, "%s", message);
    }
}

static void settle(struct dk_client *client, uint32_t index, dk_status status, const char *message,
                   const struct dk_client_timing *timing)
{
    struct dk_client_entry *entry = &client->entries[index];
    entry->is_settled = true;
    client->flying_count--;
    if (!message)
        message = dk_status_text(status);
    if (entry->group) {
        settle_group(entry->group, status, message, timing);
        entry->group = NULL;
        return;
    }
    entry->status = status;
    entry->timing = *timing;
    if (status != DK_OK)
        snprintf(client->messages[index], sizeof client->messages[index], "%s", message);
    entry->is_queued = true;
    client->done_entries[(client->done_head + client->done_count++) % client->entry_count] = index;
}

void dk_client_finish(struct dk_client *client, uint32_t index, dk_status status, const char *message,
                      const struct dk_client_timing *timing)
{
    struct dk_client_entry *entry = &client->entries[index];
    assert(entry->is_remote);
    entry->is_remote = false;
    if (!entry->is_settled)
        settle(client, index, status, message, timing);
    free_if_idle(client, index);
}

void dk_client_fail_all(struct dk_client *client, dk_status status, const char *message)
{
    const struct dk_client_timing timing = {0};
    for (uint32_t i = 0; i < client->entry_count; i++)
        if (client->entries[i].is_remote)
            dk_client_finish(client, i, status, message, &timing);
    client->next_deadline_ns = UINT64_MAX;
}

/* Settle what is past its deadline, and find the next one. */
static void expire(struct dk_client *client, uint64_t now_ns)
{
    uint64_t next_ns = UINT64_MAX;
    for (uint32_t i = 0; i < client->entry_count; i++) {
        struct dk_client_entry *entry = &client->entries[i];
        if (!entry->is_remote || entry->is_settled)
            continue;
        if (entry->deadline_ns > now_ns) {
            next_ns = entry->deadline_ns < next_ns ? entry->deadline_ns : next_ns;
            continue;
        }
        const struct dk_client_timing timing = {.round_trip_ns = now_ns - entry->submitted_ns};
        settle(client, i, DK_TIMEOUT, "no answer from the daemon within the request's timeout", &timing);
        client->transport->abandon(client, i);
    }
    client->next_deadline_ns = next_ns;
}

/* --- starting ------------------------------------------------------------------------------------------ */

static dk_status check_model(const struct dk_client_model *model, struct dk_error *error)
{
    if (model->status == DK_NOT_FOUND)
        return dk_fail(error, model->status, "the daemon has had no model '%s' since the reconnect",
                       model->info.name);
    if (model->status != DK_OK)
        return dk_fail(error, model->status,
                       "model '%s' is no longer [k=%llu, n=%llu] since the reconnect: open it again",
                       model->info.name, (unsigned long long)model->info.k,
                       (unsigned long long)model->info.n);
    return DK_OK;
}

static dk_status check_fields(const struct dk_client_request *request, struct dk_error *error)
{
    uint64_t reserved = 0;
    for (size_t i = 0; i < sizeof request->reserved / sizeof request->reserved[0]; i++)
        reserved |= request->reserved[i];
    if (reserved)
        return dk_fail(error, DK_BAD_VALUE, "the reserved words of the request are not 0");
    if (request->has_epilogue && (unsigned)request->epilogue >= DK_EPILOGUE_COUNT)
        return dk_fail(error, DK_BAD_VALUE, "epilogue %d is unknown", (int)request->epilogue);
    if (request->rows > 0 && (!request->a || !request->c))
        return dk_fail(error, DK_BAD_VALUE, "%c of a request of %llu rows is NULL", request->a ? 'c' : 'a',
                       (unsigned long long)request->rows);
    return DK_OK;
}

dk_status dk_client_product_make(const struct dk_client_model *model, const struct dk_client_request *request,
                                 uint64_t now_ns, struct dk_client_product *out, struct dk_error *error)
{
    dk_status status = check_fields(request, error);
    if (status == DK_OK)
        status = check_model(model, error);
    if (status != DK_OK)
        return status;
    const struct dk_gemm gemm = {.m = request->rows,
                                 .n = model->info.n,
                                 .k = model->info.k,
                                 .a_dtype = request->a_dtype,
                                 .b_dtype = model->info.dtype,
                                 .c_dtype = request->c_dtype};
    struct dk_gemm_sizes sizes;
    status = dk_gemm_check(&gemm, &sizes, error);
    if (status != DK_OK)
        return status;
    uint32_t timeout_ms = request->timeout_ms ? request->timeout_ms : model->client->options.timeout_ms;
    *out = (struct dk_client_product){.model = model,
                                      .rows = request->rows,
                                      .a = request->a,
                                      .c = request->c,
                                      .a_bytes = sizes.a_bytes,
                                      .c_bytes = sizes.c_bytes,
                                      .a_dtype = request->a_dtype,
                                      .c_dtype = request->c_dtype,
                                      .has_epilogue = request->has_epilogue,
                                      .epilogue = request->epilogue,
                                      .submitted_ns = now_ns,
                                      .deadline_ns = now_ns + timeout_ms * UINT64_C(1000000)};
    return DK_OK;
}

dk_status dk_client_start(struct dk_client *client, const struct dk_client_product *product,
                          struct dk_client_group *group, void *user_data, struct dk_error *error)
{
    if (client->free_count == 0)
        return dk_fail(error, DK_BUSY, "%u requests are in flight or wait for poll: no more at a time",
                       client->entry_count);
    uint32_t index = client->free_entries[client->free_count - 1];
    struct dk_client_entry *entry = &client->entries[index];
    *entry = (struct dk_client_entry){.serial = entry->serial + 1,
                                      .group = group,
                                      .user_data = user_data,
                                      .submitted_ns = product->submitted_ns,
                                      .deadline_ns = product->deadline_ns};
    dk_status status = client->transport->submit(client, index, product, error);
    if (status != DK_OK)
        return status;
    entry->is_remote = true;
    client->free_count--;
    client->flying_count++;
    if (group)
        group->flying_count++;
    else
        client->reportable_count++;
    if (entry->deadline_ns < client->next_deadline_ns)
        client->next_deadline_ns = entry->deadline_ns;
    return DK_OK;
}

dk_status dk_client_submit(struct dk_client_model *model, const struct dk_client_request *request,
                           struct dk_error *error)
{
    struct dk_client *client = model->client;
    struct dk_client_product product;
    uint64_t now_ns;
    dk_status status = dk_client_check_usable(client, &now_ns, error);
    if (status == DK_OK)
        status = dk_client_product_make(model, request, now_ns, &product, error);
    if (status != DK_OK)
        return status;
    return dk_client_start(client, &product, NULL, request->user_data, error);
}

/* --- completing ---------------------------------------------------------------------------------------- */

void dk_client_check_daemon(struct dk_client *client, uint64_t now_ns)
{
    client->next_check_ns = now_ns + check_interval_ns;
    if (client->is_connected)
        client->transport->check(client);
}

uint64_t dk_client_look(struct dk_client *client)
{
    if (client->is_connected)
        client->transport->progress(client);
    uint64_t now_ns = dk_client_now_ns();
    if (now_ns >= client->next_deadline_ns)
        expire(client, now_ns);
    if (now_ns >= client->next_check_ns && client->flying_count > 0)
        dk_client_check_daemon(client, now_ns);
    return now_ns;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void dk_client_rest(struct dk_client *client, uint64_t now_ns, uint64_t began_ns, uint64_t until_ns)
{
    uint32_t spin_us = client->options.spin_us;
    if (client->transport->can_spin && spin_us != DK_CLIENT_NO_SPIN &&
        now_ns - began_ns < spin_us * UINT64_C(1000)) {
        relax();
        return;
    }
    uint64_t wake_ns = until_ns;
    if (client->next_deadline_ns < wake_ns)
        wake_ns = client->next_deadline_ns;
    if (client->next_check_ns < wake_ns)
        wake_ns = client->next_check_ns;
    if (wake_ns > now_ns)
        client->transport->sleep(client, wake_ns);
}

static size_t take_done(struct dk_client *client, struct dk_client_completion *out, size_t capacity)
{
    size_t count = 0;
    for (; count < capacity && client->done_count > 0; count++) {
        uint32_t index = client->done_entries[client->done_head];
        client->done_head = client->done_head + 1 == client->entry_count ? 0 : client->done_head + 1;
        client->done_count--;
        struct dk_client_entry *entry = &client->entries[index];
        out[count] =
            (struct dk_client_completion){.user_data = entry->user_data,
                                          .status = entry->status,
                                          .message = entry->status == DK_OK ? NULL : client->messages[index],
                                          .timing = entry->timing};
        entry->is_queued = false;
        client->reportable_count--;
        free_if_idle(client, index);
    }
    return count;
}

size_t dk_client_poll(struct dk_client *client, struct dk_client_completion *out, size_t capacity)
{
    if (dk_client_check_owner(client, NULL) != DK_OK)
        return 0;
    dk_client_look(client);
    return take_done(client, out, capacity);
}

dk_status dk_client_wait(struct dk_client *client, uint32_t timeout_ms, struct dk_client_completion *out,
                         size_t capacity, size_t *out_count, struct dk_error *error)
{
    dk_status status = dk_client_check_owner(client, error);
    if (status != DK_OK)
        return status;
    if (capacity == 0)
        return dk_fail(error, DK_BAD_VALUE, "no room for a completion: capacity is 0");
    uint64_t until_ns = 0;
    for (uint64_t began_ns = 0;;) {
        uint64_t now_ns = dk_client_look(client);
        if (client->done_count > 0) {
            *out_count = take_done(client, out, capacity);
            return DK_OK;
        }
        if (client->reportable_count == 0)
            return dk_fail(error, DK_BAD_REQUEST, "nothing is in flight to wait for");
        if (began_ns == 0) {
            began_ns = now_ns;
            until_ns = now_ns + (timeout_ms ? timeout_ms : client->options.timeout_ms) * UINT64_C(1000000);
        }
        if (now_ns >= until_ns)
            return dk_fail(error, DK_TIMEOUT, "none of %u requests completed in time",
                           client->reportable_count);
        dk_client_rest(client, now_ns, began_ns, until_ns);
    }
}
