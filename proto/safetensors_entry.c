/* safetensors_entry.c: read and check one tensor's entry. */
#include "proto/safetensors_entry.h"

#include <stdbool.h>
#include <string.h>

#include "proto/json_string.h"

/* Bits per element of every type the format names; types not here are listed without a size check. */
static const struct {
    const char *name;
    uint32_t bits;
} item_bits[] = {
    {"BOOL", 8}, {"U8", 8},   {"I8", 8},    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},
    {"U16", 16}, {"F16", 16}, {"BF16", 16}, {"I32", 32},    {"U32", 32},    {"F32", 32},    {"C64", 64},
    {"F64", 64}, {"I64", 64}, {"U64", 64},  {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},
};

enum { NAME_SHOWN = 96 }; /* bytes of a name in a message */

/* What of a member or value goes into a message. */
static int shown(const struct dk_json_cursor *cursor)
{
    enum { SHOWN = 40 };
    ptrdiff_t left = cursor->end - cursor->next;
    return left < SHOWN ? (int)left : SHOWN;
}

static dk_status parse_dtype(struct dk_json_cursor *cursor, struct dk_st_tensor *tensor,
                             struct dk_error *error)
{
    const char *raw;
    size_t length;
    struct dk_json_cursor start = *cursor;
    if (!dk_json_cursor_string(cursor, &raw, &length) || length == 0 || length >= sizeof tensor->dtype_name) {
        return dk_fail(error, DK_BAD_FILE, "tensor \"%.*s\": dtype is not a short string: %.*s", NAME_SHOWN,
                       tensor->name, shown(&start), start.next);
    }
    size_t decoded = dk_json_string_decode(raw, length, tensor->dtype_name);
    tensor->dtype_name[decoded] = '\0';
    dk_dtype dtype;
    bool is_known = dk_dtype_parse(tensor->dtype_name, decoded, DK_DIALECT_SAFETENSORS, &dtype) == DK_OK;
    tensor->dtype = is_known ? (int)dtype : -1;
    return DK_OK;
}

/* "[1,2,3]": at most `capacity` unsigned integers. False leaves *count unset. */
static bool parse_integers(struct dk_json_cursor *cursor, uint64_t *out, size_t capacity, size_t *count)
{
    size_t found = 0;
    if (!dk_json_cursor_take(cursor, '[')) {
        return false;
    }
    if (!dk_json_cursor_take(cursor, ']')) {
        do {
            if (found == capacity || !dk_json_cursor_u64(cursor, &out[found++])) {
                return false;
            }
        } while (dk_json_cursor_take(cursor, ','));
        if (!dk_json_cursor_take(cursor, ']')) {
            return false;
        }
    }
    *count = found;
    return true;
}

static dk_status parse_shape(struct dk_json_cursor *cursor, struct dk_st_tensor *tensor,
                             struct dk_error *error)
{
    struct dk_json_cursor start = *cursor;
    size_t rank;
    if (!parse_integers(cursor, tensor->shape, DK_ST_MAX_RANK, &rank)) {
        return dk_fail(error, DK_BAD_FILE,
                       "tensor \"%.*s\": shape is not a list of at most %d unsigned integers: %.*s",
                       NAME_SHOWN, tensor->name, (int)DK_ST_MAX_RANK, shown(&start), start.next);
    }
    tensor->rank = (uint32_t)rank;
    return DK_OK;
}

static dk_status parse_offsets(struct dk_json_cursor *cursor, struct dk_st_tensor *tensor,
                               struct dk_error *error)
{
    struct dk_json_cursor start = *cursor;
    uint64_t offsets[2];
    size_t count;
    if (!parse_integers(cursor, offsets, 2, &count) || count != 2) {
        return dk_fail(error, DK_BAD_FILE, "tensor \"%.*s\": data_offsets is not two unsigned integers: %.*s",
                       NAME_SHOWN, tensor->name, shown(&start), start.next);
    }
    tensor->begin = offsets[0];
    tensor->end = offsets[1];
    return DK_OK;
}

enum field { FIELD_DTYPE = 1, FIELD_SHAPE = 2, FIELD_OFFSETS = 4, FIELD_ALL = 7 };

/* The field whose name is `raw`, 0 when unknown. */
static unsigned field_of(const char *raw, size_t length)
{
    static const struct {
        const char *name;
        unsigned field;
    } fields[] = {{"dtype", FIELD_DTYPE}, {"shape", FIELD_SHAPE}, {"data_offsets", FIELD_OFFSETS}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (strlen(fields[i].name) == length && memcmp(fields[i].name, raw, length) == 0) {
            return fields[i].field;
        }
    }
    return 0;
}

static dk_status parse_field(struct dk_json_cursor *cursor, struct dk_st_tensor *tensor, unsigned *seen,
                             struct dk_error *error)
{
    struct dk_json_cursor start = *cursor;
    const char *raw = NULL;
    size_t length = 0;
    unsigned field = 0;
    if (dk_json_cursor_string(cursor, &raw, &length) && dk_json_cursor_take(cursor, ':')) {
        field = field_of(raw, length);
    }
    *seen |= field;
    switch (field) {
    case FIELD_DTYPE:
        return parse_dtype(cursor, tensor, error);
    case FIELD_SHAPE:
        return parse_shape(cursor, tensor, error);
    case FIELD_OFFSETS:
        return parse_offsets(cursor, tensor, error);
    default:
        return dk_fail(error, DK_BAD_FILE, "tensor \"%.*s\": unknown field %.*s", NAME_SHOWN, tensor->name,
                       shown(&start), start.next);
    }
}

/* shape * item size; false when it overflows. *is_known: the type is in the table. */
static bool expected_bytes(const struct dk_st_tensor *tensor, bool *is_known, uint64_t *out)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < sizeof item_bits / sizeof item_bits[0]; i++) {
        if (strcmp(item_bits[i].name, tensor->dtype_name) == 0) {
            bits = item_bits[i].bits;
        }
    }
    *is_known = bits != 0;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (__builtin_mul_overflow(bits, tensor->shape[i], &bits)) {
            return false;
        }
    }
    *out = bits / 8;
    return bits % 8 == 0;
}

static dk_status check_extent(const struct dk_st_tensor *tensor, uint64_t data_bytes, struct dk_error *error)
{
    unsigned long long begin = tensor->begin;
    unsigned long long end = tensor->end;
    if (begin > end) {
        return dk_fail(error, DK_BAD_FILE, "tensor \"%.*s\": begins at %llu behind its end %llu", NAME_SHOWN,
                       tensor->name, begin, end);
    }
    if (end > data_bytes) {
        return dk_fail(error, DK_BAD_FILE, "tensor \"%.*s\": ends at %llu, the file holds %llu bytes of data",
                       NAME_SHOWN, tensor->name, end, (unsigned long long)data_bytes);
    }
    bool is_known;
    uint64_t expected = 0;
    bool fits = expected_bytes(tensor, &is_known, &expected);
    if (is_known && !fits) {
        return dk_fail(error, DK_BAD_FILE,
                       "tensor \"%.*s\": shape times the size of %s is not a whole 64-bit number of bytes",
                       NAME_SHOWN, tensor->name, tensor->dtype_name);
    }
    if (is_known && expected != end - begin) {
        return dk_fail(error, DK_BAD_FILE,
                       "tensor \"%.*s\": its shape of %s needs %llu bytes, its offsets give %llu", NAME_SHOWN,
                       tensor->name, tensor->dtype_name, (unsigned long long)expected, end - begin);
    }
    return DK_OK;
}

dk_status dk_st_entry_parse(struct dk_json_cursor *cursor, uint64_t data_bytes, struct dk_st_tensor *tensor,
                            struct dk_error *error)
{
    unsigned seen = 0;
    struct dk_json_cursor start = *cursor;
    if (!dk_json_cursor_take(cursor, '{')) {
        return dk_fail(error, DK_BAD_FILE, "tensor \"%.*s\": its entry is not an object: %.*s", NAME_SHOWN,
                       tensor->name, shown(&start), start.next);
    }
    if (!dk_json_cursor_take(cursor, '}')) {
        do {
            dk_status status = parse_field(cursor, tensor, &seen, error);
            if (status != DK_OK) {
                return status;
            }
        } while (dk_json_cursor_take(cursor, ','));
        (void)dk_json_cursor_take(cursor, '}'); /* the text is strict: nothing else can stand here */
    }
    if (seen != FIELD_ALL) {
        return dk_fail(error, DK_BAD_FILE, "tensor \"%.*s\": %s is missing", NAME_SHOWN, tensor->name,
                       (seen & FIELD_DTYPE) == 0   ? "dtype"
                       : (seen & FIELD_SHAPE) == 0 ? "shape"
                                                   : "data_offsets");
    }
    return check_extent(tensor, data_bytes, error);
}

dk_status dk_st_metadata_check(struct dk_json_cursor *cursor, struct dk_error *error)
{
    struct dk_json_cursor start = *cursor;
    if (!dk_json_cursor_take(cursor, '{')) {
        return dk_fail(error, DK_BAD_FILE, "__metadata__ is not an object: %.*s", shown(&start), start.next);
    }
    if (dk_json_cursor_take(cursor, '}')) {
        return DK_OK;
    }
    do {
        const char *raw;
        size_t length;
        start = *cursor;
        if (!dk_json_cursor_string(cursor, &raw, &length) || !dk_json_cursor_take(cursor, ':') ||
            !dk_json_cursor_string(cursor, &raw, &length)) {
            return dk_fail(error, DK_BAD_FILE, "__metadata__ holds something else than strings: %.*s",
                           shown(&start), start.next);
        }
    } while (dk_json_cursor_take(cursor, ','));
    (void)dk_json_cursor_take(cursor, '}');
    return DK_OK;
}
