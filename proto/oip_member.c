/* oip_member.c: steps over objects and arrays of a skeleton, values, and messages that name them. */
#include "proto/oip_member.h"

#include <stdio.h>
#include <string.h>

#include "proto/json_cursor.h"
#include "proto/json_string.h"

enum {
    VALUE_SHOWN = 80,  /* bytes of a value in a message */
    KEY_SHOWN = 64,    /* bytes of a key in a message */
    MAX_PARENTS = 8,   /* body, inputs, inputs[0], parameters, ... */
    MAX_EXPANSION = 6, /* raw bytes for one decoded: \u0041 */
    MAX_RAW_KEY_BYTES = 512
};

static size_t append_step(char *out, size_t length, const struct dk_oip_member *step)
{
    int written;
    size_t room = DK_OIP_PATH_BYTES - length;
    if (step->key != NULL) {
        size_t shown = step->key_length < KEY_SHOWN ? step->key_length : KEY_SHOWN;
        written = snprintf(out + length, room, "%s%.*s", length > 0 ? "." : "", (int)shown, step->key);
    } else {
        written = snprintf(out + length, room, "[%zu]", step->index);
    }
    size_t added = written < 0 ? 0 : (size_t)written;
    return added < room ? length + added : DK_OIP_PATH_BYTES - 1;
}

const char *dk_oip_member_path(const struct dk_oip_member *member, char out[DK_OIP_PATH_BYTES])
{
    const struct dk_oip_member *steps[MAX_PARENTS];
    size_t count = 0;
    for (; member->parent != NULL && count < MAX_PARENTS; member = member->parent) {
        steps[count++] = member;
    }
    if (count == 0) {
        return "the body";
    }
    size_t length = 0;
    while (count > 0) {
        length = append_step(out, length, steps[--count]);
    }
    return out;
}

dk_status dk_oip_fail(const struct dk_oip_member *member, dk_status status, const char *expected,
                      struct dk_error *error)
{
    char path[DK_OIP_PATH_BYTES];
    bool is_container = member->raw[0] == '{' || member->raw[0] == '[';
    const char *found = !is_container ? member->raw : member->raw[0] == '{' ? "an object" : "an array";
    size_t length = is_container ? strlen(found) : member->length;
    return dk_fail(error, status, "%s: expected %s, found %.*s%s", dk_oip_member_path(member, path), expected,
                   (int)(length < VALUE_SHOWN ? length : VALUE_SHOWN), found,
                   length <= VALUE_SHOWN ? "" : "...");
}

dk_status dk_oip_fail_missing(const struct dk_oip_member *object, const char *key, struct dk_error *error)
{
    char path[DK_OIP_PATH_BYTES];
    bool is_body = object->parent == NULL;
    return dk_fail(error, DK_BAD_REQUEST, "%s%s%s is missing",
                   is_body ? "" : dk_oip_member_path(object, path), is_body ? "" : ".", key);
}

/* The decoded key: in place when nothing is escaped. One too long for `buffer` is no key we know: as it is.
 */
static void decode_key(const char *raw, size_t raw_length, char buffer[MAX_RAW_KEY_BYTES],
                       struct dk_oip_member *member)
{
    member->key = raw;
    member->key_length = raw_length;
    if (raw_length <= MAX_RAW_KEY_BYTES && memchr(raw, '\\', raw_length) != NULL) {
        member->key_length = dk_json_string_decode(raw, raw_length, buffer);
        member->key = buffer;
    }
}

static dk_oip_reader find_field(const struct dk_oip_field *fields, size_t field_count,
                                const struct dk_oip_member *member)
{
    for (size_t i = 0; i < field_count; i++) {
        if (strlen(fields[i].key) == member->key_length &&
            memcmp(fields[i].key, member->key, member->key_length) == 0) {
            return fields[i].read;
        }
    }
    return NULL;
}

/* The skeleton was checked, so a step can only fail at its end. */
static bool take_value(struct dk_json_cursor *cursor, struct dk_oip_member *member)
{
    member->raw = cursor->next;
    if (!dk_json_cursor_skip(cursor)) {
        return false;
    }
    member->length = (size_t)(cursor->next - member->raw);
    return true;
}

dk_status dk_oip_read_object(const struct dk_oip_member *object, const struct dk_oip_field *fields,
                             size_t field_count, dk_oip_reader other, void *context, struct dk_error *error)
{
    struct dk_json_cursor cursor = {object->raw, object->raw + object->length};
    if (!dk_json_cursor_take(&cursor, '{')) {
        return dk_oip_fail(object, DK_BAD_REQUEST, "an object", error);
    }
    struct dk_oip_member member = {.parent = object};
    const char *raw;
    size_t raw_length;
    dk_status status = DK_OK;
    while (status == DK_OK && dk_json_cursor_string(&cursor, &raw, &raw_length) &&
           dk_json_cursor_take(&cursor, ':') && take_value(&cursor, &member)) {
        char buffer[MAX_RAW_KEY_BYTES];
        decode_key(raw, raw_length, buffer, &member);
        dk_oip_reader read = find_field(fields, field_count, &member);
        read = read != NULL ? read : other;
        status = read != NULL ? read(context, &member, error) : DK_OK;
        (void)dk_json_cursor_take(&cursor, ',');
    }
    return status;
}

dk_status dk_oip_read_array(const struct dk_oip_member *array, const char *expected, dk_oip_reader each,
                            void *context, struct dk_error *error)
{
    struct dk_json_cursor cursor = {array->raw, array->raw + array->length};
    if (!dk_json_cursor_take(&cursor, '[')) {
        return dk_oip_fail(array, DK_BAD_REQUEST, expected, error);
    }
    struct dk_oip_member member = {.parent = array};
    dk_status status = DK_OK;
    while (status == DK_OK && take_value(&cursor, &member)) {
        status = each(context, &member, error);
        member.index++;
        (void)dk_json_cursor_take(&cursor, ',');
    }
    return status;
}

dk_status dk_oip_read_other_parameter(void *context, const struct dk_oip_member *member,
                                      struct dk_error *error)
{
    (void)context;
    static const char reserved[] = "triton_";
    char path[DK_OIP_PATH_BYTES];
    size_t length = sizeof reserved - 1;
    if (member->key_length >= length && memcmp(member->key, reserved, length) == 0) {
        return dk_fail(error, DK_BAD_REQUEST, "%s: names that start with %s are reserved",
                       dk_oip_member_path(member, path), reserved);
    }
    char first = member->raw[0];
    if (first == '{' || first == '[' || first == 'n') {
        return dk_oip_fail(member, DK_BAD_REQUEST, "a string, a number or a boolean", error);
    }
    return DK_OK;
}

dk_status dk_oip_read_string(const struct dk_oip_member *member, char *out, size_t size,
                             struct dk_error *error)
{
    char decoded[DK_OIP_MAX_STRING_BYTES * MAX_EXPANSION];
    if (member->raw[0] != '"') {
        return dk_oip_fail(member, DK_BAD_REQUEST, "a string", error);
    }
    size_t raw_length = member->length - 2;
    size_t length = size;
    if (raw_length <= sizeof decoded) {
        length = dk_json_string_decode(member->raw + 1, raw_length, decoded);
    }
    if (length >= size) {
        char expected[48];
        (void)snprintf(expected, sizeof expected, "a string of at most %zu bytes", size - 1);
        return dk_oip_fail(member, DK_BAD_VALUE, expected, error);
    }
    memcpy(out, decoded, length);
    out[length] = '\0';
    return DK_OK;
}

dk_status dk_oip_read_u64(const struct dk_oip_member *member, uint64_t *out, struct dk_error *error)
{
    uint64_t value = 0;
    bool is_unsigned = member->length > 0;
    for (size_t i = 0; i < member->length && is_unsigned; i++) {
        char c = member->raw[i];
        is_unsigned = c >= '0' && c <= '9' && !__builtin_mul_overflow(value, UINT64_C(10), &value) &&
                      !__builtin_add_overflow(value, (uint64_t)(c - '0'), &value);
    }
    if (!is_unsigned) {
        return dk_oip_fail(member, DK_BAD_REQUEST, "an unsigned integer below 2^64", error);
    }
    *out = value;
    return DK_OK;
}

dk_status dk_oip_read_bool(const struct dk_oip_member *member, bool *out, struct dk_error *error)
{
    if (member->raw[0] != 't' && member->raw[0] != 'f') {
        return dk_oip_fail(member, DK_BAD_REQUEST, "true or false", error);
    }
    *out = member->raw[0] == 't';
    return DK_OK;
}

void dk_oip_text_string(struct dk_json_text *text, const char *value)
{
    dk_json_text_string(text, value, strlen(value));
}
