/* safetensors_writer.c: header text and data of a safetensors file. */
#include "client/safetensors_writer.h"

#include <assert.h>
#include <string.h>

#include "client/json_add.h"

uint64_t dk_st_entry_bytes(const struct dk_st_entry *entry)
{
    assert(entry->rank <= 2);
    uint64_t bytes = dk_dtype_bytes(entry->dtype);
    for (uint32_t i = 0; i < entry->rank; i++)
        bytes *= entry->shape[i];
    return bytes;
}

static void add_entry(struct dk_json_text *text, const struct dk_st_entry *entry, uint64_t begin)
{
    dk_json_add_text(text, ",", entry->name);
    dk_json_add_text(text, ":{\"dtype\":", dk_dtype_name(entry->dtype, DK_DIALECT_SAFETENSORS));
    dk_json_text_raw(text, ",\"shape\":[");
    for (uint32_t i = 0; i < entry->rank; i++)
        dk_json_add_u64(text, i ? "," : "", entry->shape[i]);
    dk_json_add_u64(text, "],\"data_offsets\":[", begin);
    dk_json_add_u64(text, ",", begin + dk_st_entry_bytes(entry));
    dk_json_text_raw(text, "]}");
}

void dk_st_header_write(struct dk_json_text *out, const struct dk_st_entry *entries, size_t count)
{
    size_t start = out->length;
    /* The length word holds zero bytes, which a text cannot take: eight letters keep its place. */
    dk_json_text_raw(out, "########{\"__metadata__\":{\"format\":\"pt\"}");
    uint64_t begin = 0;
    for (size_t i = 0; i < count; i++) {
        add_entry(out, &entries[i], begin);
        begin += dk_st_entry_bytes(&entries[i]);
    }
    dk_json_text_raw(out, "}");
    while (!out->failed && (out->length - start) % 8 != 0)
        dk_json_text_raw(out, " ");
    uint64_t header_bytes = out->length - start - 8;
    for (int i = 0; !out->failed && i < 8; i++)
        out->data[start + (size_t)i] = (char)(header_bytes >> (8 * i));
}

dk_status dk_st_writer_open(const char *path, const struct dk_st_entry *entries, size_t count,
                            struct dk_st_writer *out, struct dk_error *error)
{
    struct dk_st_writer writer = {0};
    struct dk_json_text head = {0};
    dk_st_header_write(&head, entries, count);
    for (size_t i = 0; i < count; i++)
        writer.left_bytes += dk_st_entry_bytes(&entries[i]);
    dk_status status = head.failed ? dk_fail(error, DK_NO_MEMORY, "no memory for the header of '%s'", path)
                                   : dk_file_writer_open(path, &writer.file, error);
    if (status == DK_OK &&
        (status = dk_file_writer_append(&writer.file, head.data, head.length, error)) != DK_OK)
        dk_file_writer_abort(&writer.file);
    dk_json_text_free(&head);
    if (status == DK_OK)
        *out = writer;
    return status;
}

dk_status dk_st_writer_append(struct dk_st_writer *writer, const void *bytes, size_t length,
                              struct dk_error *error)
{
    assert(length <= writer->left_bytes);
    writer->left_bytes -= length;
    return dk_file_writer_append(&writer->file, bytes, length, error);
}

dk_status dk_st_writer_commit(struct dk_st_writer *writer, struct dk_error *error)
{
    assert(writer->left_bytes == 0);
    return dk_file_writer_commit(&writer->file, error);
}

void dk_st_writer_abort(struct dk_st_writer *writer)
{
    dk_file_writer_abort(&writer->file);
}
