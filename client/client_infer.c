/* client_infer.c: the blocking call: one request, or as many pieces as the data area asks for. */
#include <string.h>

#include "client/client_private.h"

/* What is left of a blocking call. */
struct blocking {
    struct dk_client_product whole; /* rows, a, c: what is still to be sent */
    struct dk_client_group group;
    bool is_sent; /* a product without rows is sent too */
};

static bool has_more(const struct blocking *call)
{
    return call->group.status == DK_OK && (!call->is_sent || call->whole.rows > 0);
}

/* Send the next piece, as large as fits. DK_BUSY: nothing fits now. */
static dk_status send_piece(struct dk_client *client, struct blocking *call, struct dk_error *error)
{
    struct dk_client_product piece = call->whole;
    uint64_t rows = client->transport->fitting_rows(client, &piece);
    if (rows == 0 && piece.rows > 0)
        rows = 1; /* the submit itself says why not */
    if (rows < piece.rows) {
        piece.a_bytes = piece.a_bytes / piece.rows * rows;
        piece.c_bytes = piece.c_bytes / piece.rows * rows;
        piece.rows = rows;
    }
    dk_status status = dk_client_start(client, &piece, &call->group, NULL, error);
    if (status != DK_OK)
        return status;
    call->is_sent = true;
    call->whole.rows -= piece.rows;
    if (call->whole.rows > 0) {
        call->whole.a = (const unsigned char *)piece.a + piece.a_bytes;
        call->whole.c = (unsigned char *)piece.c + piece.c_bytes;
        call->whole.a_bytes -= piece.a_bytes;
        call->whole.c_bytes -= piece.c_bytes;
    }
    return DK_OK;
}

static dk_status run(struct dk_client *client, struct blocking *call, struct dk_error *error)
{
    uint64_t began_ns = call->whole.submitted_ns;
    for (;;) {
        while (has_more(call)) {
            dk_status status = client->is_connected ? send_piece(client, call, error)
                                                    : dk_fail(error, DK_UNAVAILABLE, "%s", client->loss);
            if (status == DK_BUSY && call->group.flying_count > 0)
                break; /* a piece of ours will make room */
            if (status != DK_OK) {
                /* Let the pieces in flight settle first: they refer to this stack. */
                call->group.status = status;
                memcpy(call->group.message, error->message, sizeof call->group.message);
            }
        }
        if (call->group.flying_count == 0)
            break;
        uint32_t flying_count = call->group.flying_count;
        uint64_t now_ns = dk_client_look(client);
        if (call->group.flying_count == flying_count)
            dk_client_rest(client, now_ns, began_ns, UINT64_MAX);
        else
            began_ns = now_ns;
    }
    return call->group.status == DK_OK ? DK_OK
                                       : dk_fail(error, call->group.status, "%s", call->group.message);
}

dk_status dk_client_infer(struct dk_client_model *model, const struct dk_client_request *request,
                          struct dk_client_timing *timing, struct dk_error *error)
{
    struct dk_client *client = model->client;
    struct blocking call = {.group.status = DK_OK};
    struct dk_error own;
    uint64_t now_ns;
    dk_status status = dk_client_check_usable(client, &now_ns, error);
    if (status == DK_OK)
        status = dk_client_product_make(model, request, now_ns, &call.whole, error);
    if (status != DK_OK)
        return status;
    status = run(client, &call, error ? error : &own);
    if (status == DK_OK && timing) {
        *timing = call.group.timing;
        timing->round_trip_ns = dk_client_now_ns() - now_ns;
    }
    return status;
}
