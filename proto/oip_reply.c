/* oip_reply.c: the infer answer, piece by piece into the caller's buffer. */
#include "proto/oip_reply.h"

#include <assert.h>
#include <string.h>

#include "proto/oip_member.h"

enum stage { STAGE_TEXT, STAGE_TENSOR, STAGE_BINARY, STAGE_DONE };

static size_t output_bytes(const struct dk_oip_output *output)
{
    return (size_t)(output->rows * output->row_length) * dk_dtype_bytes(output->dtype);
}

size_t dk_oip_reply_binary_bytes(const struct dk_oip_reply *reply)
{
    size_t bytes = 0;
    for (size_t i = 0; i < reply->output_count; i++) {
        const struct dk_oip_output *output = &reply->outputs[i];
        bytes += output->kind == DK_OIP_OUTPUT_BINARY ? output_bytes(output) : 0;
    }
    return bytes;
}

static void write_head(struct dk_json_text *text, const struct dk_oip_reply *reply)
{
    dk_json_text_raw(text, "{");
    if (reply->id != NULL) {
        dk_json_text_raw(text, "\"id\":");
        dk_oip_text_string(text, reply->id);
        dk_json_text_raw(text, ",");
    }
    dk_json_text_raw(text, "\"model_name\":");
    dk_oip_text_string(text, reply->model_name);
    dk_json_text_raw(text, ",\"model_version\":\"" DK_OIP_VERSION "\",\"outputs\":[");
}

/* All but the numbers of a JSON output and the brace behind them. */
static void write_output(struct dk_json_text *text, const struct dk_oip_output *output)
{
    dk_json_text_raw(text, "{\"name\":");
    dk_oip_text_string(text, output->name);
    dk_json_text_raw(text, ",\"datatype\":");
    dk_oip_text_string(text, dk_dtype_name(output->dtype, DK_DIALECT_OIP));
    dk_json_text_raw(text, ",\"shape\":[");
    dk_json_text_u64(text, output->rows);
    dk_json_text_raw(text, ",");
    dk_json_text_u64(text, output->row_length);
    dk_json_text_raw(text, "]");
    if (output->kind == DK_OIP_OUTPUT_JSON) {
        dk_json_text_raw(text, ",\"data\":");
    } else if (output->kind == DK_OIP_OUTPUT_BINARY) {
        dk_json_text_raw(text, ",\"parameters\":{\"binary_data_size\":");
        dk_json_text_u64(text, output_bytes(output));
        dk_json_text_raw(text, "}}");
    } else {
        dk_json_text_raw(text, "}");
    }
}

/* Outputs from `index` on, up to and with the start of the next JSON output, whose index is returned; the
 * number of outputs when the JSON part is complete. */
static size_t write_outputs(struct dk_json_text *text, const struct dk_oip_reply *reply, size_t index)
{
    for (; index < reply->output_count; index++) {
        if (index > 0) {
            dk_json_text_raw(text, ",");
        }
        write_output(text, &reply->outputs[index]);
        if (reply->outputs[index].kind == DK_OIP_OUTPUT_JSON) {
            return index;
        }
    }
    dk_json_text_raw(text, "]}");
    return index;
}

void dk_oip_reply_json(struct dk_json_text *text, const struct dk_oip_reply *reply)
{
    write_head(text, reply);
    size_t index = write_outputs(text, reply, 0);
    assert(index == reply->output_count);
    (void)index; /* with NDEBUG nothing reads it */
}

/* Text for the outputs from `index` on is next. */
static void compose(struct dk_oip_reply_writer *writer, size_t index)
{
    writer->output = write_outputs(&writer->text, &writer->reply, index);
    writer->stage = STAGE_TEXT;
}

void dk_oip_reply_writer_init(struct dk_oip_reply_writer *writer, const struct dk_oip_reply *reply)
{
    *writer = (struct dk_oip_reply_writer){.reply = *reply};
    write_head(&writer->text, reply);
    compose(writer, 0);
}

static void end_text(struct dk_oip_reply_writer *writer)
{
    writer->text.length = 0;
    writer->text_offset = 0;
    if (writer->output == writer->reply.output_count) {
        writer->output = 0;
        writer->stage = STAGE_BINARY;
        return;
    }
    const struct dk_oip_output *output = &writer->reply.outputs[writer->output];
    dk_json_tensor_writer_init(&writer->tensor, output->data, output->dtype, output->rows, output->row_length,
                               false);
    writer->stage = STAGE_TENSOR;
}

static size_t drain_text(struct dk_oip_reply_writer *writer, char *out, size_t size)
{
    size_t left = writer->text.length - writer->text_offset;
    size_t count = left < size ? left : size;
    memcpy(out, writer->text.data + writer->text_offset, count);
    writer->text_offset += count;
    if (count == left) {
        end_text(writer);
    }
    return count;
}

/* Until the JSON part ends, memory runs out, or `out` is full. */
static size_t write_json(struct dk_oip_reply_writer *writer, char *out, size_t size)
{
    size_t length = 0;
    while (length < size && writer->stage < STAGE_BINARY && !writer->text.failed) {
        size_t room = size - length;
        if (writer->stage == STAGE_TEXT) {
            length += drain_text(writer, out + length, room);
            continue;
        }
        if (room < 2 * DK_JSON_NUMBER_BYTES) {
            break;
        }
        size_t written = dk_json_tensor_writer_next(&writer->tensor, out + length, room);
        length += written;
        if (written == 0) {
            dk_json_text_raw(&writer->text, "}");
            compose(writer, writer->output + 1);
        }
    }
    return length;
}

static size_t write_binary(struct dk_oip_reply_writer *writer, char *out, size_t size)
{
    size_t length = 0;
    while (writer->stage == STAGE_BINARY && length < size) {
        if (writer->output == writer->reply.output_count) {
            writer->stage = STAGE_DONE;
            break;
        }
        const struct dk_oip_output *output = &writer->reply.outputs[writer->output];
        size_t left = output->kind == DK_OIP_OUTPUT_BINARY ? output_bytes(output) - writer->data_offset : 0;
        size_t count = left < size - length ? left : size - length;
        if (count > 0) {
            memcpy(out + length, (const char *)output->data + writer->data_offset, count);
        }
        length += count;
        writer->data_offset += count;
        if (count == left) {
            writer->output++;
            writer->data_offset = 0;
        }
    }
    return length;
}

size_t dk_oip_reply_writer_next(struct dk_oip_reply_writer *writer, char *out, size_t size)
{
    assert(size >= 256);
    size_t length = write_json(writer, out, size);
    if (writer->text.failed) {
        return SIZE_MAX;
    }
    return length + write_binary(writer, out + length, size - length);
}

void dk_oip_reply_writer_deinit(struct dk_oip_reply_writer *writer)
{
    dk_json_text_free(&writer->text);
}

size_t dk_oip_reply_json_bytes(const struct dk_oip_reply *reply)
{
    struct dk_oip_reply_writer writer;
    char scratch[4096];
    size_t bytes = 0;
    dk_oip_reply_writer_init(&writer, reply);
    while (writer.stage < STAGE_BINARY && !writer.text.failed) {
        bytes += write_json(&writer, scratch, sizeof scratch);
    }
    bytes = writer.text.failed ? SIZE_MAX : bytes;
    dk_oip_reply_writer_deinit(&writer);
    return bytes;
}
