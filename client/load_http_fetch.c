/* load_http_fetch.c: one exchange over the load generator's connections, its answer kept. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "client/load_http_session.h"

enum { ERROR_BODY_BYTES = 64 * 1024 };

static dk_status fail_from_answer(const struct dk_load_http_session *session, uint32_t code,
                                  struct dk_error *error)
{
    const struct dk_load_http_slot *slot = &session->slots[0];
    size_t length =
        slot->body_seen < session->body_capacity ? (size_t)slot->body_seen : session->body_capacity;
    if (code == DK_LOAD_CONNECTION)
        return dk_fail(error, DK_UNAVAILABLE, "the connection to %s was lost", session->http->target->host);
    if (code == DK_LOAD_BAD_REPLY && slot->has_head && slot->reply.status == 200)
        return dk_fail(error, DK_BAD_SHAPE, "the answer has %llu bytes, expected %llu",
                       (unsigned long long)(slot->reply.body_bytes - slot->reply.inference_bytes),
                       (unsigned long long)session->http->answer_bytes);
    if (code == DK_LOAD_BAD_REPLY)
        return dk_fail(error, DK_INTERNAL, "%s does not answer in HTTP/1.1 with a length",
                       session->http->target->host);
    cJSON *body = cJSON_ParseWithLength(session->body, length);
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(body, "error");
    dk_status status = code == 404 ? DK_NOT_FOUND : code >= 500 ? DK_UNAVAILABLE : DK_BAD_REQUEST;
    dk_fail(error, status, "the server answered %u: %.300s", code,
            cJSON_IsString(text) ? text->valuestring : "without a JSON error");
    cJSON_Delete(body);
    return status;
}

dk_status dk_load_http_fetch(const struct dk_load_http *http, void *out, struct dk_error *error)
{
    size_t capacity = http->answer_bytes > ERROR_BODY_BYTES ? (size_t)http->answer_bytes : ERROR_BODY_BYTES;
    char *body = malloc(capacity);
    void *opaque = NULL;
    if (!body)
        return dk_fail(error, DK_NO_MEMORY, "no memory for an answer of %llu bytes",
                       (unsigned long long)http->answer_bytes);
    dk_status status = dk_load_http_transport.open(http, 1, &opaque, error);
    if (status != DK_OK)
        goto free_body;
    struct dk_load_http_session *session = opaque;
    session->body = body;
    session->body_capacity = capacity;
    dk_load_http_transport.submit(session, 0);
    struct dk_load_event event;
    uint64_t deadline_ns = dk_load_now_ns() + (uint64_t)(http->timeout_s * 1e9);
    if (dk_load_http_transport.poll(session, deadline_ns, &event, 1) == 0)
        status =
            dk_fail(error, DK_TIMEOUT, "no answer from %s within %g s", http->target->host, http->timeout_s);
    else if (event.code != DK_OK)
        status = fail_from_answer(session, event.code, error);
    else
        memcpy(out, body, (size_t)http->answer_bytes);
    dk_load_http_transport.close(session);
free_body:
    free(body);
    return status;
}
