/* shm_data.c: where operands lie in the data area: staging for those that are copied, direct buffers. */
#include <string.h>
#include <sys/mman.h>

#include "client/shm_client.h"

static size_t round_up(size_t bytes)
{
    return (bytes + DK_RING_ALIGN_BYTES - 1) & ~((size_t)DK_RING_ALIGN_BYTES - 1);
}

/* --- direct operands ----------------------------------------------------------------------------------- */

static bool is_in_area(const struct dk_shm_session *session, const void *pointer)
{
    uintptr_t address = (uintptr_t)pointer, begin = (uintptr_t)session->ring.data;
    return address >= begin && address - begin < session->layout.data_bytes;
}

static size_t offset_of(const struct dk_shm_session *session, const void *pointer)
{
    return (size_t)((uintptr_t)pointer - (uintptr_t)session->ring.data);
}

/* Used in place: inside a buffer of ours, at an offset that the ring can express, and not empty. */
static bool is_direct(const struct dk_shm_session *session, const void *pointer, size_t bytes)
{
    return bytes > 0 && is_in_area(session, pointer) &&
           offset_of(session, pointer) % DK_RING_ALIGN_BYTES == 0;
}

static dk_status find_block(const struct dk_shm_session *session, const char *what, const void *pointer,
                            size_t bytes, size_t *out_block, struct dk_error *error)
{
    if (dk_area_find(&session->area, offset_of(session, pointer), bytes, out_block))
        return DK_OK;
    return dk_fail(error, DK_BAD_VALUE,
                   "%s (%zu bytes) begins in the data area but lies in no acquired buffer", what, bytes);
}

static dk_status check_overlap(const struct dk_client_product *product, struct dk_error *error)
{
    uintptr_t a = (uintptr_t)product->a, c = (uintptr_t)product->c;
    if (a < c + product->c_bytes && c < a + product->a_bytes)
        return dk_fail(error, DK_BAD_VALUE, "a and c overlap in a direct buffer");
    return DK_OK;
}

/* --- staging ------------------------------------------------------------------------------------------- */

static size_t staging_bytes(bool is_a_direct, bool is_c_direct, size_t a_bytes, size_t c_bytes)
{
    return (is_a_direct ? 0 : round_up(a_bytes)) + (is_c_direct ? 0 : round_up(c_bytes));
}

static void drop_staging(struct dk_shm_session *session, struct dk_shm_place *place)
{
    if (place->has_staging)
        dk_area_give(&session->area, place->staging_offset);
    place->has_staging = false;
}

void dk_shm_trim(struct dk_client *client)
{
    struct dk_shm_session *session = dk_shm_live(client);
    for (uint32_t i = 0; i < client->entry_count; i++)
        if (!client->entries[i].is_remote)
            drop_staging(session, &session->places[i]);
}

/* The block of the entry's last request is used again when it is large enough. */
static dk_status take_staging(struct dk_client *client, struct dk_shm_place *place, size_t bytes,
                              struct dk_error *error)
{
    struct dk_shm_session *session = dk_shm_live(client);
    if (place->has_staging && place->staging_bytes >= bytes)
        return DK_OK;
    drop_staging(session, place);
    bool is_taken = dk_area_take(&session->area, bytes, &place->staging_offset);
    if (!is_taken) {
        dk_shm_trim(client);
        is_taken = dk_area_take(&session->area, bytes, &place->staging_offset);
    }
    if (is_taken) {
        place->has_staging = true;
        place->staging_bytes = bytes;
        return DK_OK;
    }
    size_t largest = dk_area_largest(&session->area);
    if (bytes > largest)
        return dk_fail(
            error, DK_TOO_LARGE,
            "a request of %zu bytes does not fit the data area (largest piece %zu): open the client "
            "with more data_bytes",
            bytes, largest);
    return dk_fail(error, DK_BUSY, "no %zu bytes of the data area are free now", bytes);
}

uint64_t dk_shm_fitting_rows(struct dk_client *client, const struct dk_client_product *product)
{
    struct dk_shm_session *session = dk_shm_live(client);
    if (product->rows == 0 || client->free_count == 0)
        return product->rows;
    bool is_a_direct = is_direct(session, product->a, product->a_bytes);
    bool is_c_direct = is_direct(session, product->c, product->c_bytes);
    size_t bytes = staging_bytes(is_a_direct, is_c_direct, product->a_bytes, product->c_bytes);
    const struct dk_shm_place *place = &session->places[client->free_entries[client->free_count - 1]];
    if ((place->has_staging && place->staging_bytes >= bytes) ||
        bytes <= dk_area_largest_free(&session->area))
        return product->rows;
    dk_shm_trim(client);
    size_t block = dk_area_largest_free(&session->area), largest = dk_area_largest(&session->area);
    if (bytes <= block)
        return product->rows;
    size_t row_bytes = (is_a_direct ? 0 : product->a_bytes / product->rows) +
                       (is_c_direct ? 0 : product->c_bytes / product->rows);
    /* A quarter of the area: the next piece is copied while this one is computed. */
    size_t usable =
        block > largest / 4 && largest / 4 >= row_bytes + 2 * DK_RING_ALIGN_BYTES ? largest / 4 : block;
    return usable < 2 * DK_RING_ALIGN_BYTES ? 0 : (usable - 2 * DK_RING_ALIGN_BYTES) / row_bytes;
}

/* --- one product --------------------------------------------------------------------------------------- */

dk_status dk_shm_place_product(struct dk_client *client, uint32_t index,
                               const struct dk_client_product *product, struct dk_ring_submission *submission,
                               struct dk_error *error)
{
    struct dk_shm_session *session = dk_shm_live(client);
    struct dk_shm_place *place = &session->places[index];
    place->is_a_direct = is_direct(session, product->a, product->a_bytes);
    place->is_c_direct = is_direct(session, product->c, product->c_bytes);
    place->c = product->c;
    place->c_bytes = product->c_bytes;
    dk_status status = DK_OK;
    if (place->is_a_direct)
        status = find_block(session, "a", product->a, product->a_bytes, &place->a_block, error);
    if (status == DK_OK && place->is_c_direct)
        status = find_block(session, "c", product->c, product->c_bytes, &place->c_block, error);
    if (status == DK_OK && place->is_a_direct && place->is_c_direct)
        status = check_overlap(product, error);
    size_t bytes = staging_bytes(place->is_a_direct, place->is_c_direct, product->a_bytes, product->c_bytes);
    if (status == DK_OK && bytes > 0)
        status = take_staging(client, place, bytes, error);
    if (status != DK_OK)
        return status;
    size_t next = place->staging_offset;
    if (place->is_a_direct) {
        submission->a_offset = offset_of(session, product->a);
        dk_area_use(&session->area, place->a_block);
    } else if (product->a_bytes > 0) {
        submission->a_offset = next;
        memcpy(session->ring.data + next, product->a, product->a_bytes);
        next += round_up(product->a_bytes);
    }
    if (place->is_c_direct) {
        submission->c_offset = offset_of(session, product->c);
        dk_area_use(&session->area, place->c_block);
    } else if (product->c_bytes > 0) {
        submission->c_offset = next;
    }
    place->c_offset = submission->c_offset;
    return DK_OK;
}

void dk_shm_take_product(struct dk_client *client, uint32_t index, bool is_wanted)
{
    struct dk_shm_session *session = dk_shm_live(client);
    const struct dk_shm_place *place = &session->places[index];
    if (is_wanted && !place->is_c_direct && place->c_bytes > 0)
        memcpy(place->c, session->ring.data + place->c_offset, place->c_bytes);
    if (place->is_a_direct)
        dk_area_unuse(&session->area, place->a_block);
    if (place->is_c_direct)
        dk_area_unuse(&session->area, place->c_block);
}

/* --- buffers ------------------------------------------------------------------------------------------- */

dk_status dk_shm_buffer_acquire(struct dk_client *client, size_t bytes, void **out, struct dk_error *error)
{
    struct dk_shm_session *session = dk_shm_live(client);
    size_t offset;
    bool is_taken = dk_area_take(&session->area, bytes, &offset);
    if (!is_taken) {
        dk_shm_trim(client);
        is_taken = dk_area_take(&session->area, bytes, &offset);
    }
    if (!is_taken && bytes > dk_area_largest(&session->area))
        return dk_fail(error, DK_TOO_LARGE,
                       "a buffer of %zu bytes does not fit the data area (largest piece %zu)", bytes,
                       dk_area_largest(&session->area));
    if (!is_taken)
        return dk_fail(error, DK_BUSY, "no buffer of %zu bytes is free now", bytes);
    session->buffer_count++;
    *out = session->ring.data + offset;
    return DK_OK;
}

void dk_shm_buffer_release(struct dk_client *client, void *buffer)
{
    struct dk_shm_client *shm = client->session;
    struct dk_shm_session *session = shm->live;
    struct dk_shm_session **link = &shm->retired;
    if (!session || !is_in_area(session, buffer))
        for (session = *link; session && !is_in_area(session, buffer); session = *link)
            link = &session->next;
    if (!session || !dk_area_is_taken(&session->area, offset_of(session, buffer)))
        return; /* not ours, or released before */
    dk_area_give(&session->area, offset_of(session, buffer));
    session->buffer_count--;
    if (session != shm->live && session->buffer_count == 0) {
        *link = session->next;
        dk_shm_session_free(session, true);
    }
}
