/* json_reader.c: the state machine over one body; number arrays go to json_tensor.c, the rest to
 * json_skeleton.c. */
#include "proto/json_reader.h"

#include <assert.h>
#include <stdlib.h>

#include "proto/json_skeleton.h"
#include "proto/json_string.h"
#include "proto/json_tensor.h"

enum state {
    STATE_START,
    STATE_KEY,
    STATE_KEY_OR_END,
    STATE_COLON,
    STATE_VALUE,
    STATE_VALUE_OR_END,
    STATE_COMMA_OR_END,
    STATE_STRING,
    STATE_NUMBER,
    STATE_LITERAL,
    STATE_TENSOR,
    STATE_END
};

struct dk_json_reader {
    enum state state;
    uint64_t consumed; /* bytes of all feeds so far */
    struct dk_error error;
    struct dk_json_skeleton skeleton;
    bool is_key;         /* the string being read */
    size_t string_start; /* in the skeleton, behind the opening quote */
    struct dk_json_string_state string;
    const char *literal; /* what is still to come of true, false, null */
    struct dk_json_token token;
    struct dk_json_sink sink;
    locale_t c_locale;
    struct dk_json_tensor tensors[DK_JSON_MAX_TENSORS];
    size_t tensor_count;
    struct dk_json_tensor_reader tensor;
};

dk_status dk_json_reader_new_sized(const char *const *paths, size_t path_count,
                                   const struct dk_json_sink *sink, size_t skeleton_limit,
                                   struct dk_json_reader **out)
{
    struct dk_json_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) {
        return DK_NO_MEMORY;
    }
    reader->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (reader->c_locale == (locale_t)0) {
        free(reader);
        return DK_NO_MEMORY;
    }
    dk_json_skeleton_init(&reader->skeleton, paths, path_count, skeleton_limit);
    if (sink != NULL) {
        reader->sink = *sink;
    }
    reader->tensor.sink = &reader->sink;
    reader->tensor.c_locale = reader->c_locale;
    *out = reader;
    return DK_OK;
}

dk_status dk_json_reader_new(const char *const *paths, size_t path_count, const struct dk_json_sink *sink,
                             struct dk_json_reader **out)
{
    return dk_json_reader_new_sized(paths, path_count, sink, DK_JSON_MAX_SKELETON_BYTES, out);
}

void dk_json_reader_free(struct dk_json_reader *reader)
{
    if (reader != NULL) {
        dk_json_skeleton_deinit(&reader->skeleton);
        freelocale(reader->c_locale);
        free(reader);
    }
}

void dk_json_reader_reset(struct dk_json_reader *reader)
{
    dk_json_skeleton_reset(&reader->skeleton);
    reader->state = STATE_START;
    reader->consumed = 0;
    reader->error.status = DK_OK;
    reader->error.message[0] = '\0';
    reader->tensor_count = 0;
}

static bool is_in_object(struct dk_json_reader *reader)
{
    return dk_json_skeleton_top(&reader->skeleton)->is_object;
}

static const char *expectation(struct dk_json_reader *reader)
{
    switch (reader->state) {
    case STATE_START:
        return "a JSON object";
    case STATE_KEY:
        return "a key in double quotes";
    case STATE_KEY_OR_END:
        return "a key in double quotes or '}'";
    case STATE_COLON:
        return "':'";
    case STATE_VALUE:
        return "a value";
    case STATE_VALUE_OR_END:
        return "a value or ']'";
    case STATE_END:
        return "the end of the body";
    default:
        return is_in_object(reader) ? "',' or '}'" : "',' or ']'";
    }
}

static dk_status refuse(struct dk_json_reader *reader, char byte, uint64_t at)
{
    char text[8];
    bool is_mark = at == 0 && (unsigned char)byte == 0xEF;
    return dk_json_fail(&reader->error, at, DK_BAD_JSON, "expected %s, found %s%s", expectation(reader),
                        dk_json_byte_text(byte, text), is_mark ? " (a byte order mark?)" : "");
}

static dk_status keep(struct dk_json_reader *reader, uint64_t at, const char *bytes, size_t length)
{
    return dk_json_skeleton_keep(&reader->skeleton, at, bytes, length, &reader->error);
}

static dk_status begin_string(struct dk_json_reader *reader, bool is_key, uint64_t at)
{
    reader->state = STATE_STRING;
    reader->is_key = is_key;
    reader->string = (struct dk_json_string_state){0};
    reader->string_start = reader->skeleton.length + 1;
    return keep(reader, at, "\"", 1);
}

static dk_status begin_tensor(struct dk_json_reader *reader, int path_index, const uint32_t indices[4],
                              uint64_t at)
{
    if (reader->tensor_count == DK_JSON_MAX_TENSORS) {
        return dk_json_fail(&reader->error, at, DK_TOO_LARGE, "more than %d number arrays",
                            (int)DK_JSON_MAX_TENSORS);
    }
    reader->state = STATE_TENSOR;
    return dk_json_tensor_begin(&reader->tensor, path_index, reader->skeleton.paths[path_index].text, indices,
                                &reader->error);
}

static dk_status begin_container(struct dk_json_reader *reader, bool is_object, uint64_t at)
{
    uint32_t indices[4];
    int path_index = is_object ? -1 : dk_json_skeleton_complete_path(&reader->skeleton, indices);
    if (path_index >= 0) {
        return begin_tensor(reader, path_index, indices, at);
    }
    reader->state = is_object ? STATE_KEY_OR_END : STATE_VALUE_OR_END;
    return dk_json_skeleton_push(&reader->skeleton, is_object, at, &reader->error);
}

/* Numbers and literals leave their first byte to their own state. */
static dk_status begin_value(struct dk_json_reader *reader, struct dk_json_input *input, uint64_t at)
{
    char byte = *input->next;
    switch (byte) {
    case '"':
        input->next++;
        return begin_string(reader, false, at);
    case '{':
    case '[':
        input->next++;
        return begin_container(reader, byte == '{', at);
    case 't':
    case 'f':
    case 'n':
        reader->state = STATE_LITERAL;
        reader->literal = byte == 't' ? "true" : byte == 'f' ? "false" : "null";
        return DK_OK;
    default:
        break;
    }
    if (byte != '-' && !dk_json_is_digit(byte)) {
        return refuse(reader, byte, at);
    }
    reader->state = STATE_NUMBER;
    reader->token.length = 0;
    return DK_OK;
}

static dk_status after_comma(struct dk_json_reader *reader, uint64_t at)
{
    if (is_in_object(reader)) {
        reader->state = STATE_KEY;
    } else {
        reader->state = STATE_VALUE;
        dk_json_skeleton_next_element(&reader->skeleton);
    }
    return keep(reader, at, ",", 1);
}

/* The closing bracket of the top container, if it may come here. */
static dk_status end_container(struct dk_json_reader *reader, struct dk_json_input *input, uint64_t at)
{
    char byte = *input->next;
    if (byte != (is_in_object(reader) ? '}' : ']')) {
        return refuse(reader, byte, at);
    }
    input->next++;
    reader->state = reader->skeleton.depth == 1 ? STATE_END : STATE_COMMA_OR_END;
    return dk_json_skeleton_pop(&reader->skeleton, at, &reader->error);
}

static dk_status read_structure(struct dk_json_reader *reader, struct dk_json_input *input)
{
    char byte = *input->next;
    uint64_t at = dk_json_input_offset(input, input->next);
    switch (reader->state) {
    case STATE_START:
        input->next++;
        return byte == '{' ? begin_container(reader, true, at) : refuse(reader, byte, at);
    case STATE_KEY:
    case STATE_KEY_OR_END:
        if (byte == '"') {
            input->next++;
            return begin_string(reader, true, at);
        }
        return reader->state == STATE_KEY ? refuse(reader, byte, at) : end_container(reader, input, at);
    case STATE_COLON:
        if (byte != ':') {
            return refuse(reader, byte, at);
        }
        input->next++;
        reader->state = STATE_VALUE;
        return keep(reader, at, ":", 1);
    case STATE_VALUE:
        return begin_value(reader, input, at);
    case STATE_VALUE_OR_END:
        return byte == ']' ? end_container(reader, input, at) : begin_value(reader, input, at);
    case STATE_COMMA_OR_END:
        if (byte == ',') {
            input->next++;
            return after_comma(reader, at);
        }
        return end_container(reader, input, at);
    default:
        return refuse(reader, byte, at);
    }
}

static dk_status read_string(struct dk_json_reader *reader, struct dk_json_input *input)
{
    const char *start = input->next;
    bool is_closed = false;
    const char *wrong = dk_json_string_check(&reader->string, input, &is_closed);
    uint64_t at = dk_json_input_offset(input, input->next);
    size_t length = (size_t)(input->next - start);
    dk_status status = keep(reader, at - length, start, length);
    if (status != DK_OK) {
        return status;
    }
    if (wrong != NULL) {
        char text[8];
        return dk_json_fail(&reader->error, at, DK_BAD_JSON, "%s, found %s", wrong,
                            dk_json_byte_text(*input->next, text));
    }
    if (!is_closed) {
        return DK_OK;
    }
    reader->state = reader->is_key ? STATE_COLON : STATE_COMMA_OR_END;
    if (reader->is_key) {
        return dk_json_skeleton_end_key(&reader->skeleton, reader->string_start, at - 1, &reader->error);
    }
    return DK_OK;
}

static dk_status read_number(struct dk_json_reader *reader, struct dk_json_input *input)
{
    if (!dk_json_token_collect(&reader->token, input)) {
        return DK_OK;
    }
    double value;
    size_t length = reader->token.length;
    uint64_t start = dk_json_input_offset(input, input->next) - length;
    enum dk_json_number_result result = dk_json_token_value(&reader->token, reader->c_locale, &value);
    if (result != DK_JSON_NUMBER_OK) {
        return dk_json_number_fail(&reader->error, start, result, reader->token.bytes, length);
    }
    reader->state = STATE_COMMA_OR_END;
    return keep(reader, start, reader->token.bytes, length);
}

static dk_status read_literal(struct dk_json_reader *reader, struct dk_json_input *input)
{
    while (*reader->literal != '\0') {
        if (input->next == input->end) {
            return DK_OK;
        }
        uint64_t at = dk_json_input_offset(input, input->next);
        if (*input->next != *reader->literal) {
            char text[8];
            return dk_json_fail(&reader->error, at, DK_BAD_JSON, "expected true, false or null, found %s",
                                dk_json_byte_text(*input->next, text));
        }
        dk_status status = keep(reader, at, input->next, 1);
        if (status != DK_OK) {
            return status;
        }
        input->next++;
        reader->literal++;
    }
    reader->state = STATE_COMMA_OR_END;
    return DK_OK;
}

static dk_status read_tensor(struct dk_json_reader *reader, struct dk_json_input *input)
{
    dk_status status = dk_json_tensor_feed(&reader->tensor, input, &reader->error);
    if (status != DK_OK || reader->tensor.stage != DK_JSON_TENSOR_DONE) {
        return status;
    }
    reader->tensors[reader->tensor_count++] = reader->tensor.tensor;
    reader->state = STATE_COMMA_OR_END;
    return keep(reader, dk_json_input_offset(input, input->next), "null", 4);
}

static dk_status read_some(struct dk_json_reader *reader, struct dk_json_input *input)
{
    switch (reader->state) {
    case STATE_STRING:
        return read_string(reader, input);
    case STATE_NUMBER:
        return read_number(reader, input);
    case STATE_LITERAL:
        return read_literal(reader, input);
    case STATE_TENSOR:
        return read_tensor(reader, input);
    default:
        break;
    }
    if (dk_json_is_space(*input->next)) {
        input->next++;
        return DK_OK;
    }
    return read_structure(reader, input);
}

/* Hand the remembered error to the caller. */
static dk_status report(const struct dk_json_reader *reader, struct dk_error *error)
{
    if (error != NULL) {
        *error = reader->error;
    }
    return reader->error.status;
}

dk_status dk_json_reader_feed(struct dk_json_reader *reader, const char *bytes, size_t length,
                              struct dk_error *error)
{
    if (reader->error.status != DK_OK) {
        return report(reader, error);
    }
    if (length == 0) {
        return DK_OK;
    }
    reader->consumed += length;
    struct dk_json_input input = {bytes, bytes + length, reader->consumed};
    dk_status status = DK_OK;
    while (status == DK_OK && input.next < input.end) {
        status = read_some(reader, &input);
    }
    if (status == DK_OK) {
        return DK_OK;
    }
    reader->error.status = status; /* also when a sink returned a status without a message */
    return report(reader, error);
}

dk_status dk_json_reader_finish(struct dk_json_reader *reader, const char **skeleton, size_t *skeleton_length,
                                struct dk_error *error)
{
    if (reader->error.status == DK_OK && reader->state != STATE_END) {
        (void)dk_json_fail(&reader->error, reader->consumed, DK_BAD_JSON, "%s",
                           reader->consumed == 0 ? "the body is empty; expected a JSON object"
                                                 : "the body ends before its object is complete");
    }
    if (reader->error.status != DK_OK) {
        return report(reader, error);
    }
    reader->skeleton.text[reader->skeleton.length] = '\0';
    *skeleton = reader->skeleton.text;
    *skeleton_length = reader->skeleton.length;
    return DK_OK;
}

size_t dk_json_reader_tensor_count(const struct dk_json_reader *reader)
{
    return reader->tensor_count;
}

const struct dk_json_tensor *dk_json_reader_tensor(const struct dk_json_reader *reader, size_t index)
{
    assert(index < reader->tensor_count);
    return &reader->tensors[index];
}

bool dk_json_reader_peek_string(const struct dk_json_reader *reader, const char *key, char *out, size_t size)
{
    return dk_json_skeleton_peek_string(&reader->skeleton, key, out, size);
}

const char *dk_json_reader_peek_skeleton(const struct dk_json_reader *reader, size_t *length)
{
    *length = reader->skeleton.length;
    return reader->skeleton.text;
}
