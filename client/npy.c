/* npy.c: the .npy header (a Python dictionary literal) and its values. */
#include "client/npy.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/gemm.h"

static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

bool dk_npy_has_magic(const void *bytes, size_t length)
{
    return length >= sizeof magic && memcmp(bytes, magic, sizeof magic) == 0;
}

/* --- the dictionary ------------------------------------------------------------------------------------ */

enum { MAX_RANK = 32 }; /* numpy's own limit in this format's day */

struct scanner {
    const char *at, *end;
    const char *start;
};

struct dictionary {
    bool has_descr, has_order, has_shape, is_fortran;
    char descr[16];
    uint32_t rank;
    uint64_t shape[MAX_RANK];
};

static dk_status syntax_error(const struct scanner *scanner, const char *expected, struct dk_error *error)
{
    if (scanner->at == scanner->end)
        return dk_fail(error, DK_BAD_FILE, "npy header ends where %s is expected", expected);
    return dk_fail(error, DK_BAD_FILE, "npy header, byte %zu: expected %s, found '%c'",
                   (size_t)(scanner->at - scanner->start), expected, *scanner->at);
}

static void skip_spaces(struct scanner *scanner)
{
    while (scanner->at < scanner->end &&
           (*scanner->at == ' ' || *scanner->at == '\t' || *scanner->at == '\n' || *scanner->at == '\r'))
        scanner->at++;
}

/* Consume `c` after spaces; false and nothing but spaces consumed when something else stands there. */
static bool take(struct scanner *scanner, char c)
{
    skip_spaces(scanner);
    if (scanner->at == scanner->end || *scanner->at != c)
        return false;
    scanner->at++;
    return true;
}

/* A quoted string without escapes: no legal key or descr needs one. */
static dk_status scan_string(struct scanner *scanner, char *out, size_t size, struct dk_error *error)
{
    skip_spaces(scanner);
    if (scanner->at == scanner->end || (*scanner->at != '\'' && *scanner->at != '"'))
        return syntax_error(scanner, "a quoted string", error);
    char quote = *scanner->at++;
    const char *begin = scanner->at;
    while (scanner->at < scanner->end && *scanner->at != quote && *scanner->at != '\\')
        scanner->at++;
    if (scanner->at == scanner->end || *scanner->at == '\\')
        return syntax_error(scanner, "a closing quote", error);
    size_t length = (size_t)(scanner->at++ - begin);
    if (length >= size || memchr(begin, 0, length))
        return dk_fail(error, DK_BAD_FILE, "npy header: string of %zu bytes where a short word is expected",
                       length);
    memcpy(out, begin, length);
    out[length] = 0;
    return DK_OK;
}

static dk_status scan_bool(struct scanner *scanner, bool *out, struct dk_error *error)
{
    skip_spaces(scanner);
    size_t left = (size_t)(scanner->end - scanner->at);
    if (left >= 4 && memcmp(scanner->at, "True", 4) == 0) {
        scanner->at += 4;
        *out = true;
        return DK_OK;
    }
    if (left >= 5 && memcmp(scanner->at, "False", 5) == 0) {
        scanner->at += 5;
        *out = false;
        return DK_OK;
    }
    return syntax_error(scanner, "True or False", error);
}

static dk_status scan_extent(struct scanner *scanner, uint64_t *out, struct dk_error *error)
{
    skip_spaces(scanner);
    const char *begin = scanner->at;
    uint64_t value = 0;
    while (scanner->at < scanner->end && *scanner->at >= '0' && *scanner->at <= '9') {
        uint64_t digit = (uint64_t)(*scanner->at - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return dk_fail(error, DK_BAD_SHAPE, "npy shape: an extent is above 2^64 - 1");
        value = value * 10 + digit;
        scanner->at++;
    }
    if (scanner->at == begin)
        return syntax_error(scanner, "a non-negative integer", error);
    *out = value;
    return DK_OK;
}

/* A tuple: (), (3,), (3, 4), (3, 4,). "(3)" is a plain number in Python, hence refused. */
static dk_status scan_shape(struct scanner *scanner, struct dictionary *dict, struct dk_error *error)
{
    if (!take(scanner, '('))
        return syntax_error(scanner, "'(' of the shape", error);
    bool has_comma = false;
    while (!take(scanner, ')')) {
        if (dict->rank > 0 && !has_comma)
            return syntax_error(scanner, "',' or ')' in the shape", error);
        if (dict->rank == MAX_RANK)
            return dk_fail(error, DK_BAD_SHAPE, "npy shape: more than %d dimensions", MAX_RANK);
        dk_status status = scan_extent(scanner, &dict->shape[dict->rank], error);
        if (status != DK_OK)
            return status;
        dict->rank++;
        has_comma = take(scanner, ',');
    }
    if (dict->rank == 1 && !has_comma)
        return dk_fail(error, DK_BAD_FILE, "npy header: the shape is a number, not a tuple");
    return DK_OK;
}

static dk_status scan_member(struct scanner *scanner, struct dictionary *dict, struct dk_error *error)
{
    char key[32];
    dk_status status = scan_string(scanner, key, sizeof key, error);
    if (status != DK_OK)
        return status;
    if (!take(scanner, ':'))
        return syntax_error(scanner, "':'", error);
    bool *is_known = strcmp(key, "descr") == 0           ? &dict->has_descr
                     : strcmp(key, "fortran_order") == 0 ? &dict->has_order
                     : strcmp(key, "shape") == 0         ? &dict->has_shape
                                                         : NULL;
    if (!is_known)
        return dk_fail(error, DK_BAD_FILE, "npy header: unknown key '%s'", key);
    if (*is_known)
        return dk_fail(error, DK_BAD_FILE, "npy header: key '%s' is there twice", key);
    *is_known = true;
    if (is_known == &dict->has_shape)
        return scan_shape(scanner, dict, error);
    if (is_known == &dict->has_order)
        return scan_bool(scanner, &dict->is_fortran, error);
    skip_spaces(scanner);
    if (scanner->at < scanner->end && (*scanner->at == '[' || *scanner->at == '('))
        return dk_fail(error, DK_BAD_DTYPE,
                       "npy descr: structured types are not supported; expected '<f2', "
                       "'<f4' or '<f8'");
    return scan_string(scanner, dict->descr, sizeof dict->descr, error);
}

static dk_status scan_dictionary(struct scanner *scanner, struct dictionary *dict, struct dk_error *error)
{
    if (!take(scanner, '{'))
        return syntax_error(scanner, "'{'", error);
    bool has_comma = true;
    while (!take(scanner, '}')) {
        if (!has_comma)
            return syntax_error(scanner, "',' or '}'", error);
        dk_status status = scan_member(scanner, dict, error);
        if (status != DK_OK)
            return status;
        has_comma = take(scanner, ',');
    }
    skip_spaces(scanner);
    if (scanner->at != scanner->end)
        return syntax_error(scanner, "the end", error);
    if (!dict->has_descr || !dict->has_order || !dict->has_shape)
        return dk_fail(error, DK_BAD_FILE, "npy header: key '%s' is missing",
                       !dict->has_descr   ? "descr"
                       : !dict->has_order ? "fortran_order"
                                          : "shape");
    return DK_OK;
}

/* --- the file ------------------------------------------------------------------------------------------ */

static const size_t type_bytes[] = {[DK_NPY_F2] = 2, [DK_NPY_F4] = 4, [DK_NPY_F8] = 8};

static dk_status read_type(const char *descr, enum dk_npy_type *out, struct dk_error *error)
{
    static const char *const names[] = {[DK_NPY_F2] = "f2", [DK_NPY_F4] = "f4", [DK_NPY_F8] = "f8"};
    if (descr[0] == '<' || descr[0] == '=') {
        for (int i = 0; i <= DK_NPY_F8; i++)
            if (strcmp(descr + 1, names[i]) == 0) {
                *out = (enum dk_npy_type)i;
                return DK_OK;
            }
    }
    if (descr[0] == '>')
        return dk_fail(error, DK_BAD_DTYPE, "npy descr '%s' is big-endian; expected '<f2', '<f4' or '<f8'",
                       descr);
    if (strcmp(descr + (descr[0] != 0), "V2") == 0)
        return dk_fail(
            error, DK_BAD_DTYPE,
            "npy descr '%s' does not say which type it is (bf16?): save float32, or bare values with "
            "--raw --dtype bf16",
            descr);
    return dk_fail(error, DK_BAD_DTYPE, "npy descr '%s' is not supported; expected '<f2', '<f4' or '<f8'",
                   descr);
}

/* Position and length of the dictionary text, from version and length word. */
static dk_status find_header(const unsigned char *bytes, size_t length, size_t *out_offset,
                             size_t *out_length, struct dk_error *error)
{
    if (!dk_npy_has_magic(bytes, length))
        return dk_fail(error, DK_BAD_FILE, "not an npy file: it does not start with \\x93NUMPY");
    if (length < 8)
        return dk_fail(error, DK_BAD_FILE, "npy file of %zu bytes ends before its version", length);
    unsigned major = bytes[6], minor = bytes[7];
    if (major < 1 || major > 3 || minor != 0)
        return dk_fail(error, DK_BAD_FILE, "npy version %u.%u is unknown; expected 1.0, 2.0 or 3.0", major,
                       minor);
    size_t word_bytes = major == 1 ? 2 : 4;
    if (length - 8 < word_bytes)
        return dk_fail(error, DK_BAD_FILE, "npy file of %zu bytes ends before its header length", length);
    size_t header_length = 0;
    for (size_t i = 0; i < word_bytes; i++)
        header_length |= (size_t)bytes[8 + i] << (8 * i);
    size_t offset = 8 + word_bytes;
    if (header_length > length - offset)
        return dk_fail(error, DK_BAD_FILE, "npy header of %zu bytes is longer than the file (%zu bytes)",
                       header_length, length);
    if (header_length > DK_NPY_MAX_HEADER_BYTES)
        return dk_fail(error, DK_BAD_FILE, "npy header of %zu bytes is above the limit of %d", header_length,
                       DK_NPY_MAX_HEADER_BYTES);
    *out_offset = offset;
    *out_length = header_length;
    return DK_OK;
}

static dk_status check_extent(const struct dk_npy *npy, size_t length, struct dk_error *error)
{
    size_t count, data_bytes;
    if (!dk_size_mul(npy->rows, npy->cols, &count) || !dk_size_mul(count, type_bytes[npy->type], &data_bytes))
        return dk_fail(error, DK_BAD_SHAPE, "npy shape [%llu, %llu] is larger than any file",
                       (unsigned long long)npy->rows, (unsigned long long)npy->cols);
    size_t found = length - npy->data_offset;
    if (found != data_bytes)
        return dk_fail(error, DK_BAD_FILE, "npy shape [%llu, %llu] needs %zu bytes of data, the file has %zu",
                       (unsigned long long)npy->rows, (unsigned long long)npy->cols, data_bytes, found);
    return DK_OK;
}

dk_status dk_npy_parse(const void *bytes, size_t length, struct dk_npy *out, struct dk_error *error)
{
    size_t offset = 0, header_length = 0;
    dk_status status = find_header(bytes, length, &offset, &header_length, error);
    if (status != DK_OK)
        return status;
    const char *text = (const char *)bytes + offset;
    struct scanner scanner = {.at = text, .end = text + header_length, .start = text};
    struct dictionary dict = {0};
    if ((status = scan_dictionary(&scanner, &dict, error)) != DK_OK)
        return status;
    struct dk_npy npy = {
        .is_fortran = dict.is_fortran, .rank = dict.rank, .data_offset = offset + header_length};
    if ((status = read_type(dict.descr, &npy.type, error)) != DK_OK)
        return status;
    if (dict.rank != 1 && dict.rank != 2)
        return dk_fail(error, DK_BAD_SHAPE, "npy array has %u dimensions; expected [T, K] or [K]", dict.rank);
    npy.cols = dict.shape[dict.rank - 1];
    npy.rows = dict.rank == 2 ? dict.shape[0] : npy.cols > 0;
    if ((status = check_extent(&npy, length, error)) != DK_OK)
        return status;
    *out = npy;
    return DK_OK;
}

/* --- values -------------------------------------------------------------------------------------------- */

enum { CHUNK = 1024 };

/* Values [first, first + count) of one row, widened to binary64, which is exact for all three types. */
static void gather(const struct dk_npy *npy, const unsigned char *data, uint64_t row, uint64_t first,
                   size_t count, double *out)
{
    size_t item = type_bytes[npy->type];
    size_t stride = npy->is_fortran ? npy->rows * item : item;
    const unsigned char *at =
        data + (npy->is_fortran ? (first * npy->rows + row) : (row * npy->cols + first)) * item;
    for (size_t i = 0; i < count; i++, at += stride) {
        uint16_t half;
        float single;
        switch (npy->type) {
        case DK_NPY_F2:
            memcpy(&half, at, sizeof half);
            out[i] = (double)dk_fp16_to_float(half);
            break;
        case DK_NPY_F4:
            memcpy(&single, at, sizeof single);
            out[i] = (double)single;
            break;
        case DK_NPY_F8:
            memcpy(&out[i], at, sizeof out[i]);
            break;
        }
    }
}

static dk_status fail_value(uint64_t row, uint64_t column, dk_dtype dtype, struct dk_error *error)
{
    return dk_fail(error, DK_BAD_VALUE, "x[%llu, %llu] does not fit %s: its magnitude is too large",
                   (unsigned long long)row, (unsigned long long)column,
                   dk_dtype_name(dtype, DK_DIALECT_NATIVE));
}

dk_status dk_npy_convert(const struct dk_npy *npy, const void *bytes, dk_dtype dtype, void *out,
                         struct dk_error *error)
{
    assert(dk_dtype_is_float(dtype));
    const unsigned char *data = (const unsigned char *)bytes + npy->data_offset;
    unsigned char *to = out;
    double values[CHUNK];
    uint64_t rows = npy->cols > 0 ? npy->rows : 0; /* (2^63, 0) is a legal shape of no data */
    for (uint64_t row = 0; row < rows; row++) {
        for (uint64_t first = 0; first < npy->cols; first += CHUNK) {
            size_t count = npy->cols - first < CHUNK ? (size_t)(npy->cols - first) : CHUNK;
            gather(npy, data, row, first, count, values);
            for (size_t i = 0; i < count; i++)
                if (isfinite(values[i]) && dk_dtype_overflows(dtype, values[i]))
                    return fail_value(row, first + i, dtype, error);
            dk_convert_from_double(values, to, dtype, count);
            to += count * dk_dtype_bytes(dtype);
        }
    }
    return DK_OK;
}

void dk_npy_header(char out[DK_NPY_HEADER_BYTES], dk_dtype dtype, uint64_t rows, uint64_t cols)
{
    assert(dtype == DK_FP32 || dtype == DK_FP16);
    static const unsigned char preamble[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, DK_NPY_HEADER_BYTES - 10,
                                               0};
    char text[DK_NPY_HEADER_BYTES];
    int length =
        snprintf(text, sizeof text, "{'descr': '<f%d', 'fortran_order': False, 'shape': (%llu, %llu), }",
                 dtype == DK_FP32 ? 4 : 2, (unsigned long long)rows, (unsigned long long)cols);
    assert(length > 0 && length < DK_NPY_HEADER_BYTES - (int)sizeof preamble);
    memset(out, ' ', DK_NPY_HEADER_BYTES);
    memcpy(out, preamble, sizeof preamble);
    memcpy(out + sizeof preamble, text, (size_t)length);
    out[DK_NPY_HEADER_BYTES - 1] = '\n';
}
