/* json_writer.c: a tensor as JSON text, piece by piece into the caller's buffer. */
#include "proto/json_writer.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum stage { STAGE_OPEN, STAGE_ROW_OPEN, STAGE_ELEMENT, STAGE_ROW_CLOSE, STAGE_CLOSE, STAGE_DONE };

void dk_json_tensor_writer_init(struct dk_json_tensor_writer *writer, const void *data, dk_dtype dtype,
                                uint64_t rows, uint64_t row_length, bool is_nested)
{
    *writer = (struct dk_json_tensor_writer){
        .data = data, .dtype = dtype, .rows = rows, .row_length = row_length, .is_nested = is_nested};
    if (!is_nested) {
        /* A flat array is one row without brackets of its own. */
        writer->rows = 1;
        writer->row_length = rows * row_length;
    }
}

static size_t write_integer(char *out, int32_t value)
{
    uint32_t magnitude = value < 0 ? 0U - (uint32_t)value : (uint32_t)value;
    char digits[10];
    size_t start = sizeof digits;
    do {
        digits[--start] = (char)('0' + magnitude % 10);
        magnitude /= 10;
    } while (magnitude > 0);
    size_t length = 0;
    if (value < 0) {
        out[length++] = '-';
    }
    memcpy(out + length, digits + start, sizeof digits - start);
    return length + sizeof digits - start;
}

static size_t write_integers(const char *at, size_t count, bool is_first, char *out)
{
    size_t length = 0;
    for (size_t i = 0; i < count; i++) {
        int32_t integer;
        memcpy(&integer, at + i * sizeof integer, sizeof integer);
        out[length] = ',';
        length += is_first && i == 0 ? 0 : 1;
        length += write_integer(out + length, integer);
    }
    return length;
}

/* As many elements of the row as surely fit, at least one: `size` >= DK_JSON_NUMBER_BYTES. */
static size_t write_elements(struct dk_json_tensor_writer *writer, char *out, size_t size)
{
    enum { BLOCK = 64 };
    size_t count = size / DK_JSON_NUMBER_BYTES < BLOCK ? size / DK_JSON_NUMBER_BYTES : BLOCK;
    uint64_t left = writer->row_length - writer->column;
    count = left < count ? (size_t)left : count;
    uint64_t index = writer->row * writer->row_length + writer->column;
    const char *at = (const char *)writer->data + index * dk_dtype_bytes(writer->dtype);
    bool is_first = writer->column == 0;
    size_t length = 0;
    if (writer->dtype == DK_INT32) {
        length = write_integers(at, count, is_first, out);
    } else {
        float values[BLOCK];
        dk_convert_to_float(at, writer->dtype, values, count);
        for (size_t i = 0; i < count; i++) {
            out[length] = ',';
            length += is_first && i == 0 ? 0 : 1;
            length += dk_json_write_float(out + length, values[i]);
            writer->non_finite_count += isfinite(values[i]) ? 0 : 1;
        }
    }
    writer->column += count;
    if (writer->column == writer->row_length) {
        writer->stage = STAGE_ROW_CLOSE;
    }
    return length;
}

/* A bracket or a comma between rows. */
static size_t write_bracket(struct dk_json_tensor_writer *writer, char *out)
{
    size_t length = 0;
    switch (writer->stage) {
    case STAGE_OPEN:
        out[length++] = '[';
        writer->stage = writer->rows == 0 ? STAGE_CLOSE : STAGE_ROW_OPEN;
        break;
    case STAGE_ROW_OPEN:
        if (writer->row > 0) {
            out[length++] = ',';
        }
        if (writer->is_nested) {
            out[length++] = '[';
        }
        writer->column = 0;
        writer->stage = writer->row_length == 0 ? STAGE_ROW_CLOSE : STAGE_ELEMENT;
        break;
    case STAGE_ROW_CLOSE:
        if (writer->is_nested) {
            out[length++] = ']';
        }
        writer->stage = ++writer->row == writer->rows ? STAGE_CLOSE : STAGE_ROW_OPEN;
        break;
    default:
        out[length++] = ']';
        writer->stage = STAGE_DONE;
        break;
    }
    return length;
}

size_t dk_json_tensor_writer_next(struct dk_json_tensor_writer *writer, char *out, size_t size)
{
    assert(size >= 2 * DK_JSON_NUMBER_BYTES);
    size_t length = 0;
    while (writer->stage != STAGE_DONE && size - length >= DK_JSON_NUMBER_BYTES) {
        length += writer->stage == STAGE_ELEMENT ? write_elements(writer, out + length, size - length)
                                                 : write_bracket(writer, out + length);
    }
    return length;
}
