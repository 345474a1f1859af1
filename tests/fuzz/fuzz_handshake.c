/* fuzz_handshake.c: any bytes as one packet of the handshake socket: refused with a text, or sound enough to
 * act on. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/handshake.h"

static void require(int is_true)
{
    if (!is_true) {
        abort();
    }
}

static void check_layout(const struct dk_shm_hello *hello)
{
    struct dk_ring_layout layout;
    struct dk_error error = {.message = ""};
    if (dk_shm_hello_layout(hello, &layout, &error) != DK_OK) {
        require(error.message[0] != '\0');
        return;
    }
    uint64_t ring_bytes = (uint64_t)layout.entry_count * 64;
    require(layout.entry_count == hello->entry_count && layout.data_bytes >= hello->data_bytes);
    require(layout.submission_offset >= sizeof(struct dk_ring_header));
    require(layout.completion_offset >= layout.submission_offset + ring_bytes);
    require(layout.data_offset >= layout.completion_offset + ring_bytes);
    require(layout.mapping_bytes > layout.data_offset &&
            layout.mapping_bytes - layout.data_offset == layout.data_bytes);
    require(layout.mapping_bytes <= (uint64_t)INT64_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int sender = DK_SHM_CLIENT; sender <= DK_SHM_SERVER; sender++) {
        union dk_shm_packet packet;
        struct dk_error error = {.message = ""};
        memset(&packet, 0xA5, sizeof packet); /* what recv() does not fill */
        memcpy(&packet, data, size < sizeof packet ? size : sizeof packet);
        if (dk_shm_check(&packet, size, (enum dk_shm_sender)sender, &error) != DK_OK) {
            require(error.message[0] != '\0');
            continue;
        }
        require(packet.message.bytes == size && size <= sizeof packet);
        require(strcmp(dk_shm_kind_name(packet.message.kind), "NONE") != 0);
        switch (packet.message.kind) {
        case DK_SHM_HELLO:
            check_layout(&packet.hello);
            break;
        case DK_SHM_OPEN_MODEL:
            require(strlen(packet.open_model.name) < sizeof packet.open_model.name);
            break;
        case DK_SHM_LOAD_MODEL:
            require(strlen(packet.load_model.name) < sizeof packet.load_model.name);
            break;
        case DK_SHM_GOODBYE:
            require(strlen(packet.failure.text) < sizeof packet.failure.text);
            break;
        default:
            break;
        }
    }
    return 0;
}
