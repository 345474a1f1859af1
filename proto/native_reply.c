/* native_reply.c: what a /v1/matmul answer and every error says. */
#include "proto/native_api.h"

#include <assert.h>
#include <string.h>

#include "proto/json_decimal.h"

enum stage { STAGE_HEAD, STAGE_TENSOR, STAGE_TAIL, STAGE_DONE };

static void append_string(struct dk_json_text *text, const char *value)
{
    dk_json_text_string(text, value, strlen(value));
}

static void write_head(struct dk_json_text *text, const struct dk_matmul_reply *reply)
{
    dk_json_text_raw(text, "{");
    if (reply->model != NULL) {
        dk_json_text_raw(text, "\"model\":");
        append_string(text, reply->model);
        dk_json_text_raw(text, ",");
    }
    if (reply->id != NULL) {
        dk_json_text_raw(text, "\"id\":");
        append_string(text, reply->id);
        dk_json_text_raw(text, ",");
    }
    dk_json_text_raw(text, "\"shape\":[");
    dk_json_text_u64(text, reply->rows);
    dk_json_text_raw(text, ",");
    dk_json_text_u64(text, reply->n);
    dk_json_text_raw(text, "],\"dtype\":");
    append_string(text, dk_dtype_name(reply->out_dtype, DK_DIALECT_NATIVE));
    dk_json_text_raw(text, ",\"y\":");
}

/* Nanoseconds as microseconds with up to three decimals. */
static void append_time(struct dk_json_text *text, const char *name, uint64_t ns)
{
    char number[DK_JSON_NUMBER_BYTES];
    number[dk_json_decimal_write(number, ns, -3)] = '\0';
    dk_json_text_raw(text, name);
    dk_json_text_raw(text, number);
}

static void write_tail(struct dk_json_text *text, const struct dk_matmul_reply *reply,
                       uint64_t non_finite_count)
{
    append_time(text, ",\"timing_us\":{\"queue\":", reply->queue_ns);
    append_time(text, ",\"kernel\":", reply->kernel_ns);
    append_time(text, ",\"total\":", reply->total_ns);
    dk_json_text_raw(text, "},\"plan\":{\"bucket\":");
    dk_json_text_u64(text, reply->bucket_rows);
    dk_json_text_raw(text, ",\"variant\":");
    append_string(text, reply->variant);
    dk_json_text_raw(text, ",\"split_k\":");
    dk_json_text_u64(text, reply->split_k);
    dk_json_text_raw(text, ",\"pieces\":");
    dk_json_text_u64(text, reply->piece_count);
    dk_json_text_raw(text, ",\"backend\":");
    append_string(text, reply->backend);
    dk_json_text_raw(text, "}");
    if (non_finite_count > 0) {
        dk_json_text_raw(text, ",\"non_finite\":");
        dk_json_text_u64(text, non_finite_count);
    }
    dk_json_text_raw(text, "}\n");
}

void dk_matmul_reply_writer_init(struct dk_matmul_reply_writer *writer, const struct dk_matmul_reply *reply)
{
    *writer = (struct dk_matmul_reply_writer){.reply = *reply, .stage = STAGE_HEAD};
    dk_json_tensor_writer_init(&writer->tensor, reply->y, reply->out_dtype, reply->rows, reply->n, true);
    write_head(&writer->text, reply);
}

/* The next part of head or tail; moves to `next_stage` when all of it is out. */
static size_t drain_text(struct dk_matmul_reply_writer *writer, char *out, size_t size, int next_stage)
{
    size_t left = writer->text.length - writer->text_offset;
    size_t count = left < size ? left : size;
    memcpy(out, writer->text.data + writer->text_offset, count);
    writer->text_offset += count;
    if (count == left) {
        writer->text.length = 0;
        writer->text_offset = 0;
        writer->stage = next_stage;
    }
    return count;
}

size_t dk_matmul_reply_writer_next(struct dk_matmul_reply_writer *writer, char *out, size_t size)
{
    assert(size >= 256);
    size_t length = 0;
    while (writer->stage != STAGE_DONE && !writer->text.failed) {
        size_t room = size - length;
        if (writer->stage != STAGE_TENSOR) {
            int next_stage = writer->stage == STAGE_HEAD ? STAGE_TENSOR : STAGE_DONE;
            length += drain_text(writer, out + length, room, next_stage);
            if (length == size) {
                break;
            }
        } else if (room < 2 * DK_JSON_NUMBER_BYTES) {
            break;
        } else {
            size_t written = dk_json_tensor_writer_next(&writer->tensor, out + length, room);
            length += written;
            if (written == 0) {
                write_tail(&writer->text, &writer->reply, writer->tensor.non_finite_count);
                writer->stage = STAGE_TAIL;
            }
        }
    }
    return writer->text.failed ? SIZE_MAX : length;
}

void dk_matmul_reply_writer_deinit(struct dk_matmul_reply_writer *writer)
{
    dk_json_text_free(&writer->text);
}

void dk_error_body(struct dk_json_text *text, const struct dk_error *error)
{
    const char *message = error->message[0] != '\0' ? error->message : dk_status_text(error->status);
    dk_json_text_raw(text, "{\"error\":");
    append_string(text, message);
    dk_json_text_raw(text, ",\"status\":");
    append_string(text, dk_status_name(error->status));
    dk_json_text_raw(text, "}\n");
}
