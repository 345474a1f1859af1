/* ring.c: where the rings and the data lie in a mapping, and the texts of refusals. */
#include "proto/ring.h"

#include <string.h>

#define DK_DETAIL_TEXT(name, status, text)   text,
#define DK_DETAIL_STATUS(name, status, text) DK_##status,
static const char *const detail_texts[] = {DK_RING_DETAIL_MAP(DK_DETAIL_TEXT)};
static const dk_status detail_statuses[] = {DK_RING_DETAIL_MAP(DK_DETAIL_STATUS)};

const char *dk_ring_detail_text(uint32_t detail)
{
    return detail < DK_RING_DETAIL_COUNT ? detail_texts[detail] : "an unknown reason";
}

dk_status dk_ring_detail_status(uint32_t detail)
{
    return detail < DK_RING_DETAIL_COUNT ? detail_statuses[detail] : DK_INTERNAL;
}

/* Rounds up to whole pages (of the header's size). */
static bool round_up(uint64_t bytes, uint64_t *out)
{
    uint64_t rounded = bytes + (DK_RING_HEADER_BYTES - 1);
    if (rounded < bytes) {
        return false;
    }
    *out = rounded & ~(uint64_t)(DK_RING_HEADER_BYTES - 1);
    return true;
}

dk_status dk_ring_layout_make(uint32_t entry_count, uint64_t data_bytes, struct dk_ring_layout *out,
                              struct dk_error *error)
{
    if (entry_count < DK_RING_MIN_ENTRIES || entry_count > DK_RING_MAX_ENTRIES ||
        (entry_count & (entry_count - 1)) != 0) {
        return dk_fail(error, DK_BAD_VALUE, "%u ring entries: a power of two up to %d is allowed",
                       entry_count, DK_RING_MAX_ENTRIES);
    }
    struct dk_ring_layout layout = {.entry_count = entry_count, .submission_offset = DK_RING_HEADER_BYTES};
    layout.completion_offset =
        layout.submission_offset + (uint64_t)entry_count * sizeof(struct dk_ring_submission);
    uint64_t rings_end = layout.completion_offset + (uint64_t)entry_count * sizeof(struct dk_ring_completion);
    if (data_bytes == 0 || !round_up(rings_end, &layout.data_offset) ||
        !round_up(data_bytes, &layout.data_bytes) ||
        layout.data_bytes > (uint64_t)INT64_MAX - layout.data_offset) {
        return dk_fail(error, DK_BAD_VALUE, "%llu bytes of data: 1 to 2^63 less the rings are allowed",
                       (unsigned long long)data_bytes);
    }
    layout.mapping_bytes = layout.data_offset + layout.data_bytes;
    *out = layout;
    return DK_OK;
}

void dk_ring_format(void *mapping, const struct dk_ring_layout *layout)
{
    struct dk_ring_header *header = mapping;
    header->magic = DK_RING_MAGIC;
    header->version = DK_RING_VERSION;
    header->entry_count = layout->entry_count;
    header->submission_offset = layout->submission_offset;
    header->completion_offset = layout->completion_offset;
    header->data_offset = layout->data_offset;
    header->data_bytes = layout->data_bytes;
    header->mapping_bytes = layout->mapping_bytes;
    header->submission_bytes = sizeof(struct dk_ring_submission);
    header->completion_bytes = sizeof(struct dk_ring_completion);
}

dk_status dk_ring_check(const void *mapping, const struct dk_ring_layout *layout, struct dk_error *error)
{
    const struct dk_ring_header *header = mapping;
    const struct {
        const char *name;
        uint64_t expected, found;
    } fields[] = {
        {"magic", DK_RING_MAGIC, header->magic},
        {"version", DK_RING_VERSION, header->version},
        {"entry_count", layout->entry_count, header->entry_count},
        {"submission_offset", layout->submission_offset, header->submission_offset},
        {"completion_offset", layout->completion_offset, header->completion_offset},
        {"data_offset", layout->data_offset, header->data_offset},
        {"data_bytes", layout->data_bytes, header->data_bytes},
        {"mapping_bytes", layout->mapping_bytes, header->mapping_bytes},
        {"submission_bytes", sizeof(struct dk_ring_submission), header->submission_bytes},
        {"completion_bytes", sizeof(struct dk_ring_completion), header->completion_bytes},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (fields[i].expected != fields[i].found) {
            return dk_fail(error, DK_UNSUPPORTED, "the ring's %s: expected %llu, found %llu", fields[i].name,
                           (unsigned long long)fields[i].expected, (unsigned long long)fields[i].found);
        }
    }
    return DK_OK;
}
