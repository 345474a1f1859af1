/* safetensors.c: the header of a safetensors file to an index of tensors that tile the data section. */
#include "proto/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "proto/json_reader.h"
#include "proto/json_string.h"
#include "proto/safetensors_entry.h"

enum { LENGTH_BYTES = 8 };

static uint64_t read_length(const unsigned char *bytes)
{
    uint64_t value = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) {
        value = value << 8 | bytes[i];
    }
    return value;
}

static dk_status check_length(const unsigned char *bytes, size_t available, uint64_t file_bytes,
                              struct dk_st_index *index, struct dk_error *error)
{
    if (file_bytes < LENGTH_BYTES || available < LENGTH_BYTES) {
        return dk_fail(error, DK_BAD_FILE, "the file has %llu bytes, the header's length alone takes 8",
                       (unsigned long long)file_bytes);
    }
    uint64_t length = read_length(bytes);
    if (length == 0 || length > DK_ST_MAX_HEADER_BYTES) {
        return dk_fail(error, DK_BAD_FILE, "the header's length is %llu; allowed are 1 to %d",
                       (unsigned long long)length, (int)DK_ST_MAX_HEADER_BYTES);
    }
    if (length > file_bytes - LENGTH_BYTES || length > available - LENGTH_BYTES) {
        return dk_fail(error, DK_BAD_FILE, "the header's length is %llu, but only %llu bytes follow",
                       (unsigned long long)length, (unsigned long long)(file_bytes - LENGTH_BYTES));
    }
    if (bytes[LENGTH_BYTES] != '{') {
        return dk_fail(error, DK_BAD_FILE, "the header begins with byte 0x%02X; expected '{'",
                       (unsigned)bytes[LENGTH_BYTES]);
    }
    index->header_bytes = length;
    index->data_bytes = file_bytes - LENGTH_BYTES - length;
    return DK_OK;
}

/* Grows by doubling; the new tensor is zeroed. NULL: no memory. */
static struct dk_st_tensor *append_tensor(struct dk_st_index *index, size_t *capacity)
{
    if (index->tensor_count == *capacity) {
        size_t wanted = *capacity == 0 ? 16 : *capacity * 2;
        struct dk_st_tensor *tensors = realloc(index->tensors, wanted * sizeof *tensors);
        if (tensors == NULL) {
            return NULL;
        }
        index->tensors = tensors;
        *capacity = wanted;
    }
    struct dk_st_tensor *tensor = &index->tensors[index->tensor_count++];
    memset(tensor, 0, sizeof *tensor);
    return tensor;
}

/* One "name": value of the top-level object; names_length is the used part of index->names. */
static dk_status parse_member(struct dk_json_cursor *cursor, struct dk_st_index *index, size_t *capacity,
                              size_t *names_length, struct dk_error *error)
{
    const char *raw;
    size_t raw_length;
    if (!dk_json_cursor_string(cursor, &raw, &raw_length) || !dk_json_cursor_take(cursor, ':')) {
        return dk_fail(error, DK_INTERNAL, "the header's skeleton is not strict JSON");
    }
    char *name = index->names + *names_length;
    size_t length = dk_json_string_decode(raw, raw_length, name);
    name[length] = '\0';
    if (strcmp(name, "__metadata__") == 0) {
        return dk_st_metadata_check(cursor, error);
    }
    if (length > DK_ST_MAX_NAME_BYTES) {
        return dk_fail(error, DK_BAD_FILE, "tensor \"%.64s...\": its name has %zu bytes; allowed are %d",
                       name, length, (int)DK_ST_MAX_NAME_BYTES);
    }
    struct dk_st_tensor *tensor = append_tensor(index, capacity);
    if (tensor == NULL) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for %zu tensor entries", index->tensor_count + 1);
    }
    *names_length += length + 1;
    tensor->name = name;
    return dk_st_entry_parse(cursor, index->data_bytes, tensor, error);
}

static dk_status parse_members(const char *skeleton, size_t length, struct dk_st_index *index,
                               struct dk_error *error)
{
    /* A name in the text has two quotes, its copy one NUL: the text's length is enough for all names. */
    index->names = malloc(length);
    if (index->names == NULL) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for %zu bytes of tensor names", length);
    }
    struct dk_json_cursor cursor = {skeleton + 1, skeleton + length};
    size_t capacity = 0;
    size_t names_length = 0;
    if (dk_json_cursor_take(&cursor, '}')) {
        return DK_OK;
    }
    dk_status status;
    do {
        status = parse_member(&cursor, index, &capacity, &names_length, error);
    } while (status == DK_OK && dk_json_cursor_take(&cursor, ','));
    return status;
}

static dk_status parse_header(const char *header, struct dk_st_index *index, struct dk_error *error)
{
    struct dk_json_reader *reader;
    dk_status status = dk_json_reader_new_sized(NULL, 0, NULL, (size_t)index->header_bytes, &reader);
    if (status != DK_OK) {
        return dk_fail(error, status, "no memory for a JSON reader");
    }
    struct dk_error cause = {0};
    const char *skeleton;
    size_t length;
    status = dk_json_reader_feed(reader, header, (size_t)index->header_bytes, &cause);
    if (status == DK_OK) {
        status = dk_json_reader_finish(reader, &skeleton, &length, &cause);
    }
    if (status == DK_OK) {
        status = parse_members(skeleton, length, index, error);
    } else {
        status = dk_fail(error, status == DK_NO_MEMORY ? status : DK_BAD_FILE,
                         "the header is not a strict JSON object: %s", cause.message);
    }
    dk_json_reader_free(reader);
    return status;
}

static int compare_tensors(const void *left, const void *right)
{
    const struct dk_st_tensor *a = left;
    const struct dk_st_tensor *b = right;
    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    if (a->end != b->end) {
        return a->end < b->end ? -1 : 1;
    }
    return strcmp(a->name, b->name);
}

/* In order of their offsets the tensors follow each other without holes and fill the data section. */
static dk_status check_tiling(struct dk_st_index *index, struct dk_error *error)
{
    uint64_t end = 0;
    const char *previous = "";
    for (size_t i = 0; i < index->tensor_count; i++) {
        struct dk_st_tensor *tensor = &index->tensors[i];
        if (tensor->begin != end) {
            return dk_fail(error, DK_BAD_FILE,
                           "tensor \"%.96s\": begins at %llu, expected %llu%s%.96s%s (%s)", tensor->name,
                           (unsigned long long)tensor->begin, (unsigned long long)end,
                           i == 0 ? "" : " where tensor \"", previous, i == 0 ? "" : "\" ends",
                           tensor->begin > end ? "a hole" : "an overlap");
        }
        end = tensor->end;
        previous = tensor->name;
        tensor->file_offset = LENGTH_BYTES + index->header_bytes + tensor->begin;
    }
    if (end != index->data_bytes) {
        return dk_fail(error, DK_BAD_FILE, "the last tensor ends at %llu, the file holds %llu bytes of data",
                       (unsigned long long)end, (unsigned long long)index->data_bytes);
    }
    return DK_OK;
}

dk_status dk_st_index_parse(const void *bytes, size_t available, uint64_t file_bytes, struct dk_st_index *out,
                            struct dk_error *error)
{
    struct dk_st_index index = {0};
    dk_status status = check_length(bytes, available, file_bytes, &index, error);
    if (status == DK_OK) {
        status = parse_header((const char *)bytes + LENGTH_BYTES, &index, error);
    }
    if (status == DK_OK && index.tensor_count > 0) {
        qsort(index.tensors, index.tensor_count, sizeof index.tensors[0], compare_tensors);
    }
    if (status == DK_OK) {
        status = check_tiling(&index, error);
    }
    if (status != DK_OK) {
        dk_st_index_deinit(&index);
        return status;
    }
    *out = index;
    return DK_OK;
}

void dk_st_index_deinit(struct dk_st_index *index)
{
    if (index != NULL) {
        free(index->tensors);
        free(index->names);
        *index = (struct dk_st_index){0};
    }
}

const struct dk_st_tensor *dk_st_index_find(const struct dk_st_index *index, const char *name)
{
    for (size_t i = 0; i < index->tensor_count; i++) {
        if (strcmp(index->tensors[i].name, name) == 0) {
            return &index->tensors[i];
        }
    }
    return NULL;
}
