/* handshake.c: making and checking the messages of the control socket. */
#include "proto/handshake.h"

#include <string.h>

static const struct kind_row {
    const char *name;
    uint32_t bytes;
    enum dk_shm_sender sender;
} kinds[DK_SHM_KIND_COUNT] = {[DK_SHM_KIND_NONE] = {"NONE", 0, DK_SHM_CLIENT},
#define DK_SHM_KIND_ROW(name, body, sender) [DK_SHM_##name] = {#name, sizeof(struct body), DK_SHM_##sender},
                              DK_SHM_KIND_MAP(DK_SHM_KIND_ROW)
#undef DK_SHM_KIND_ROW
};

const char *dk_shm_kind_name(uint32_t kind)
{
    return kinds[kind < DK_SHM_KIND_COUNT ? kind : DK_SHM_KIND_NONE].name;
}

size_t dk_shm_begin(union dk_shm_packet *packet, enum dk_shm_kind kind)
{
    memset(packet, 0, sizeof *packet);
    packet->message = (struct dk_shm_message){
        .magic = DK_SHM_MAGIC, .version = DK_SHM_VERSION, .kind = (uint16_t)kind, .bytes = kinds[kind].bytes};
    return kinds[kind].bytes;
}

/* NUL-terminated and zero behind: nothing of the sender's memory travels along, one name has one form. */
static dk_status check_text(const char *name, const char *text, size_t size, struct dk_error *error)
{
    size_t length = strnlen(text, size);
    if (length == size) {
        return dk_fail(error, DK_BAD_REQUEST, "%s is not terminated within %zu bytes", name, size);
    }
    for (size_t i = length; i < size; i++) {
        if (text[i] != '\0') {
            return dk_fail(error, DK_BAD_REQUEST, "%s has bytes behind its end", name);
        }
    }
    return DK_OK;
}

static dk_status check_zero(uint32_t value, struct dk_error *error)
{
    return value == 0 ? DK_OK : dk_fail(error, DK_BAD_REQUEST, "a reserved word is %u, expected 0", value);
}

static dk_status check_body(const union dk_shm_packet *packet, struct dk_error *error)
{
    switch (packet->message.kind) {
    case DK_SHM_HELLO:
        return check_zero(packet->hello.reserved, error);
    case DK_SHM_OPEN_MODEL:
        return check_text("name", packet->open_model.name, sizeof packet->open_model.name, error);
    case DK_SHM_LIST_MODEL:
        return check_zero(packet->list_model.reserved, error);
    case DK_SHM_LOAD_MODEL:
        return check_text("name", packet->load_model.name, sizeof packet->load_model.name, error);
    case DK_SHM_MODEL:
        return check_text("name", packet->model.name, sizeof packet->model.name, error);
    case DK_SHM_ERROR:
    case DK_SHM_GOODBYE:
        return check_text("text", packet->failure.text, sizeof packet->failure.text, error);
    default:
        return DK_OK;
    }
}

dk_status dk_shm_check(const union dk_shm_packet *packet, size_t length, enum dk_shm_sender sender,
                       struct dk_error *error)
{
    const struct dk_shm_message *message = &packet->message;
    if (length < sizeof *message) {
        return dk_fail(error, DK_BAD_REQUEST, "a message of %zu bytes, expected at least %zu", length,
                       sizeof *message);
    }
    if (message->magic != DK_SHM_MAGIC) {
        return dk_fail(error, DK_BAD_REQUEST, "a message starts with %08x, expected %08x", message->magic,
                       (unsigned)DK_SHM_MAGIC);
    }
    if (message->version != DK_SHM_VERSION) {
        return dk_fail(error, DK_UNSUPPORTED, "messages of version %u, expected version %d", message->version,
                       DK_SHM_VERSION);
    }
    if (message->kind == DK_SHM_KIND_NONE || message->kind >= DK_SHM_KIND_COUNT ||
        kinds[message->kind].sender != sender) {
        return dk_fail(error, DK_BAD_REQUEST, "a message of kind %u, which the %s does not send",
                       message->kind, sender == DK_SHM_CLIENT ? "client" : "daemon");
    }
    const struct kind_row *row = &kinds[message->kind];
    if (length != row->bytes || message->bytes != row->bytes) {
        return dk_fail(error, DK_BAD_REQUEST, "%s of %zu bytes that says %u, expected %u", row->name, length,
                       message->bytes, row->bytes);
    }
    dk_status status = check_zero(message->reserved, error);
    return status == DK_OK ? check_body(packet, error) : status;
}

dk_status dk_shm_hello_layout(const struct dk_shm_hello *hello, struct dk_ring_layout *out,
                              struct dk_error *error)
{
    if (hello->ring_version != DK_RING_VERSION) {
        return dk_fail(error, DK_UNSUPPORTED, "a ring of version %u, expected version %d",
                       hello->ring_version, DK_RING_VERSION);
    }
    if (hello->header_bytes != sizeof(struct dk_ring_header) ||
        hello->submission_bytes != sizeof(struct dk_ring_submission) ||
        hello->completion_bytes != sizeof(struct dk_ring_completion)) {
        return dk_fail(error, DK_UNSUPPORTED,
                       "ring structs of %u, %u and %u bytes, expected %zu, %zu and %zu: another ABI",
                       hello->header_bytes, hello->submission_bytes, hello->completion_bytes,
                       sizeof(struct dk_ring_header), sizeof(struct dk_ring_submission),
                       sizeof(struct dk_ring_completion));
    }
    return dk_ring_layout_make(hello->entry_count, hello->data_bytes, out, error);
}
