/* json_tensor.c: the hot loop of the JSON reader, and the checks that an array is rectangular. */
#include "proto/json_tensor.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 128 };

static void append_index(char name[NAME_BYTES], size_t *length, uint64_t index)
{
    if (*length < NAME_BYTES) {
        int written = snprintf(name + *length, NAME_BYTES - *length, "[%llu]", (unsigned long long)index);
        *length += written > 0 ? (size_t)written : 0;
    }
}

/* "inputs[2].data[0][17]": the path with its indices, then the position of the array at `level`. */
static const char *name_of_level(const struct dk_json_tensor_reader *reader, uint32_t level,
                                 char name[NAME_BYTES])
{
    size_t length = 0;
    size_t wildcard = 0;
    name[0] = '\0';
    for (const char *p = reader->path; *p != '\0' && length < NAME_BYTES - 1; p++) {
        if (p[0] == '[' && p[1] == ']') {
            append_index(name, &length, reader->tensor.indices[wildcard++]);
            p++;
        } else {
            name[length++] = *p;
            name[length] = '\0';
        }
    }
    for (uint32_t i = 0; i < level; i++) {
        append_index(name, &length, reader->counts[i]);
    }
    return name;
}

static dk_status flush(struct dk_json_tensor_reader *reader, struct dk_error *error)
{
    size_t count = reader->pending;
    if (count == 0 || reader->sink->values == NULL) {
        reader->pending = 0;
        return DK_OK;
    }
    uint64_t offset = reader->delivered;
    reader->pending = 0;
    reader->delivered += count;
    return reader->sink->values(reader->sink->context, &reader->tensor, offset, reader->values, count, error);
}

static bool is_level_known(const struct dk_json_tensor_reader *reader, uint32_t level)
{
    return (reader->known_levels >> level & 1U) != 0;
}

static dk_status open_array(struct dk_json_tensor_reader *reader, uint64_t offset, struct dk_error *error)
{
    char name[NAME_BYTES];
    const struct dk_json_tensor *tensor = &reader->tensor;
    if (tensor->rank != 0 && reader->depth == tensor->rank) {
        return dk_json_fail(error, offset, DK_BAD_SHAPE, "%s: expected a number, found an array",
                            name_of_level(reader, reader->depth, name));
    }
    if (reader->depth == DK_JSON_MAX_TENSOR_RANK) {
        return dk_json_fail(error, offset, DK_BAD_SHAPE, "%s: arrays are nested deeper than %d",
                            name_of_level(reader, 0, name), (int)DK_JSON_MAX_TENSOR_RANK);
    }
    reader->counts[reader->depth++] = 0;
    reader->stage = DK_JSON_TENSOR_VALUE_OR_END;
    return DK_OK;
}

static dk_status finish_tensor(struct dk_json_tensor_reader *reader, struct dk_error *error)
{
    struct dk_json_tensor *tensor = &reader->tensor;
    tensor->count = 1;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        /* No overflow: without a zero extent the product is the count of the numbers that were read; with one
         * the extents before it are counts of brackets, and their product is as well. */
        tensor->count *= tensor->shape[i];
    }
    dk_status status = flush(reader, error);
    if (status == DK_OK) {
        reader->stage = DK_JSON_TENSOR_DONE;
        if (reader->sink->end != NULL) {
            status = reader->sink->end(reader->sink->context, tensor, error);
        }
    }
    return status;
}

static dk_status close_array(struct dk_json_tensor_reader *reader, uint64_t offset, struct dk_error *error)
{
    struct dk_json_tensor *tensor = &reader->tensor;
    uint32_t level = reader->depth - 1;
    uint64_t found = reader->counts[level];
    if (tensor->rank == 0) {
        tensor->rank = reader->depth; /* the first innermost array is empty */
    }
    if (!is_level_known(reader, level)) {
        tensor->shape[level] = found;
        reader->known_levels |= 1U << level;
    } else if (tensor->shape[level] != found) {
        char name[NAME_BYTES];
        return dk_json_fail(error, offset, DK_BAD_SHAPE, "%s: expected %llu %s, found %llu",
                            name_of_level(reader, level, name), (unsigned long long)tensor->shape[level],
                            level + 1 == tensor->rank ? "values" : "rows", (unsigned long long)found);
    }
    reader->depth--;
    if (reader->depth == 0) {
        return finish_tensor(reader, error);
    }
    reader->counts[reader->depth - 1]++;
    reader->stage = DK_JSON_TENSOR_COMMA_OR_END;
    return DK_OK;
}

/* A number starts here: is this the depth where the numbers of this array are? */
static dk_status check_depth(struct dk_json_tensor_reader *reader, uint64_t offset, struct dk_error *error)
{
    if (reader->tensor.rank == 0) {
        reader->tensor.rank = reader->depth;
    }
    if (reader->tensor.rank != reader->depth) {
        char name[NAME_BYTES];
        return dk_json_fail(error, offset, DK_BAD_SHAPE, "%s: expected an array, found a number",
                            name_of_level(reader, reader->depth, name));
    }
    return DK_OK;
}

/* Values beyond the row's known length are counted (for the message) but not delivered. */
static inline dk_status keep_value(struct dk_json_tensor_reader *reader, double value, uint64_t limit,
                                   struct dk_error *error)
{
    uint64_t *count = &reader->counts[reader->depth - 1];
    if (*count < limit) {
        reader->values[reader->pending++] = value;
        if (reader->pending == DK_JSON_TENSOR_RUN) {
            ++*count;
            return flush(reader, error);
        }
    }
    ++*count;
    return DK_OK;
}

static uint64_t row_limit(const struct dk_json_tensor_reader *reader)
{
    uint32_t level = reader->depth - 1;
    return is_level_known(reader, level) ? reader->tensor.shape[level] : UINT64_MAX;
}

static dk_status read_cut_number(struct dk_json_tensor_reader *reader, struct dk_json_input *input,
                                 struct dk_error *error)
{
    if (!dk_json_token_collect(&reader->token, input)) {
        return DK_OK;
    }
    double value;
    size_t length = reader->token.length;
    enum dk_json_number_result result = dk_json_token_value(&reader->token, reader->c_locale, &value);
    if (result != DK_JSON_NUMBER_OK) {
        uint64_t start = dk_json_input_offset(input, input->next) - length;
        return dk_json_number_fail(error, start, result, reader->token.bytes, length);
    }
    reader->token.length = 0;
    reader->stage = DK_JSON_TENSOR_COMMA_OR_END;
    return keep_value(reader, value, row_limit(reader), error);
}

/* Read numbers while they follow each other as "1,2, 3"; anything else goes back to the caller. */
static dk_status read_run(struct dk_json_tensor_reader *reader, struct dk_json_input *input,
                          struct dk_error *error)
{
    dk_status status = check_depth(reader, dk_json_input_offset(input, input->next), error);
    const char *p = input->next;
    const char *end = input->end;
    uint64_t limit = row_limit(reader);
    while (status == DK_OK) {
        double value;
        enum dk_json_number_result result = dk_json_number_scan(&p, end, reader->c_locale, &value);
        if (result == DK_JSON_NUMBER_CUT) {
            input->next = p;
            reader->token.length = 0;
            reader->stage = DK_JSON_TENSOR_NUMBER;
            return read_cut_number(reader, input, error);
        }
        if (result != DK_JSON_NUMBER_OK) {
            return dk_json_number_fail(error, dk_json_input_offset(input, p), result, p, (size_t)(end - p));
        }
        status = keep_value(reader, value, limit, error);
        reader->stage = DK_JSON_TENSOR_COMMA_OR_END;
        if (p == end || *p != ',') {
            break;
        }
        p++;
        reader->stage = DK_JSON_TENSOR_VALUE;
        if (p < end && *p == ' ') {
            p++;
        }
        if (p == end || !(dk_json_is_digit(*p) || *p == '-')) {
            break;
        }
    }
    input->next = p;
    return status;
}

static dk_status refuse(const struct dk_json_tensor_reader *reader, uint64_t offset, char byte,
                        struct dk_error *error)
{
    char name[NAME_BYTES];
    char text[8];
    const char *expected = reader->stage == DK_JSON_TENSOR_VALUE          ? "a number or '['"
                           : reader->stage == DK_JSON_TENSOR_VALUE_OR_END ? "a number, '[' or ']'"
                                                                          : "',' or ']'";
    return dk_json_fail(error, offset, DK_BAD_JSON, "%s: expected %s, found %s",
                        name_of_level(reader, reader->depth, name), expected, dk_json_byte_text(byte, text));
}

static dk_status read_one(struct dk_json_tensor_reader *reader, struct dk_json_input *input,
                          struct dk_error *error)
{
    uint64_t offset = dk_json_input_offset(input, input->next);
    char byte = *input->next;
    if (reader->stage == DK_JSON_TENSOR_COMMA_OR_END) {
        if (byte == ',') {
            input->next++;
            reader->stage = DK_JSON_TENSOR_VALUE;
            return DK_OK;
        }
    } else if (byte == '-' || dk_json_is_digit(byte)) {
        return read_run(reader, input, error);
    } else if (byte == '[') {
        input->next++;
        return open_array(reader, offset, error);
    }
    if (byte == ']' && reader->stage != DK_JSON_TENSOR_VALUE) {
        input->next++;
        return close_array(reader, offset, error);
    }
    return refuse(reader, offset, byte, error);
}

dk_status dk_json_tensor_begin(struct dk_json_tensor_reader *reader, int path_index, const char *path,
                               const uint32_t indices[4], struct dk_error *error)
{
    reader->path = path;
    reader->tensor = (struct dk_json_tensor){.path_index = path_index};
    memcpy(reader->tensor.indices, indices, sizeof reader->tensor.indices);
    reader->stage = DK_JSON_TENSOR_VALUE_OR_END;
    reader->depth = 1;
    reader->known_levels = 0;
    reader->counts[0] = 0;
    reader->delivered = 0;
    reader->pending = 0;
    reader->token.length = 0;
    if (reader->sink->begin == NULL) {
        return DK_OK;
    }
    return reader->sink->begin(reader->sink->context, &reader->tensor, error);
}

dk_status dk_json_tensor_feed(struct dk_json_tensor_reader *reader, struct dk_json_input *input,
                              struct dk_error *error)
{
    dk_status status = DK_OK;
    while (status == DK_OK && input->next < input->end && reader->stage != DK_JSON_TENSOR_DONE) {
        if (reader->stage == DK_JSON_TENSOR_NUMBER) {
            status = read_cut_number(reader, input, error);
        } else if (dk_json_is_space(*input->next)) {
            input->next++;
        } else {
            status = read_one(reader, input, error);
        }
    }
    return status;
}
