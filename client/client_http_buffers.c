/* client_http_buffers.c: direct buffers where nothing is shared: ordinary memory that is not copied before it
 * is sent. */
#include <stdlib.h>

#include "client/client_http.h"

enum { ALIGN_BYTES = 64 };

/* Stands before the memory that the caller sees. */
struct dk_http_buffer {
    struct dk_http_buffer *next;
    size_t bytes;
    uint32_t user_count;
    bool is_released;
};

static unsigned char *memory_of(const struct dk_http_buffer *buffer)
{
    return (unsigned char *)buffer + ALIGN_BYTES;
}

dk_status dk_http_buffer_acquire(struct dk_client *client, size_t bytes, void **out, struct dk_error *error)
{
    struct dk_http_session *session = client->session;
    size_t total;
    if (!dk_size_add(bytes, (size_t)2 * ALIGN_BYTES, &total))
        return dk_fail(error, DK_TOO_LARGE, "a buffer of %zu bytes", bytes);
    total -= total % ALIGN_BYTES;
    struct dk_http_buffer *buffer = aligned_alloc(ALIGN_BYTES, total);
    if (!buffer)
        return dk_fail(error, DK_NO_MEMORY, "no memory for a buffer of %zu bytes", bytes);
    *buffer = (struct dk_http_buffer){.next = session->buffers, .bytes = bytes};
    session->buffers = buffer;
    *out = memory_of(buffer);
    return DK_OK;
}

struct dk_http_buffer *dk_http_buffer_find(const struct dk_http_session *session, const void *memory,
                                           size_t bytes)
{
    for (struct dk_http_buffer *buffer = session->buffers; buffer; buffer = buffer->next) {
        uintptr_t begin = (uintptr_t)memory_of(buffer), address = (uintptr_t)memory;
        if (address >= begin && address - begin <= buffer->bytes &&
            bytes <= buffer->bytes - (address - begin))
            return buffer;
    }
    return NULL;
}

static void free_if_unused(struct dk_http_session *session, struct dk_http_buffer *buffer)
{
    if (!buffer->is_released || buffer->user_count > 0)
        return;
    struct dk_http_buffer **link = &session->buffers;
    while (*link != buffer)
        link = &(*link)->next;
    *link = buffer->next;
    free(buffer);
}

void dk_http_buffer_use(struct dk_http_buffer *buffer)
{
    if (buffer)
        buffer->user_count++;
}

void dk_http_buffer_unuse(struct dk_http_session *session, struct dk_http_buffer *buffer)
{
    if (!buffer)
        return;
    buffer->user_count--;
    free_if_unused(session, buffer);
}

void dk_http_buffer_release(struct dk_client *client, void *memory)
{
    struct dk_http_session *session = client->session;
    struct dk_http_buffer *buffer = session->buffers;
    while (buffer && memory_of(buffer) != memory)
        buffer = buffer->next;
    if (!buffer || buffer->is_released)
        return; /* not ours, or released before */
    buffer->is_released = true;
    free_if_unused(session, buffer);
}

void dk_http_buffers_free(struct dk_http_session *session)
{
    while (session->buffers) {
        struct dk_http_buffer *buffer = session->buffers;
        session->buffers = buffer->next;
        free(buffer);
    }
}
