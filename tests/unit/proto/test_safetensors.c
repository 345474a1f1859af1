/* test_safetensors.c: good headers, and each way a header can lie. */
#include "tests/unit/proto/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/safetensors.h"

/* Parse `header` followed by `data_bytes` of data. The bytes lie at the end of a block of their own, so that
 * AddressSanitizer sees a read outside. Only length word and header are there: the data must not be read. */
static dk_status parse_sized(const char *header, size_t header_length, uint64_t length_word,
                             uint64_t data_bytes, struct dk_st_index *index, struct dk_error *error)
{
    unsigned char *file = malloc(8 + header_length);
    assert_non_null(file);
    for (int i = 0; i < 8; i++) {
        file[i] = (unsigned char)(length_word >> (8 * i));
    }
    memcpy(file + 8, header, header_length);
    dk_status status =
        dk_st_index_parse(file, 8 + header_length, 8 + header_length + data_bytes, index, error);
    free(file);
    return status;
}

static dk_status parse(const char *header, uint64_t data_bytes, struct dk_st_index *index,
                       struct dk_error *error)
{
    return parse_sized(header, strlen(header), strlen(header), data_bytes, index, error);
}

static void test_good_header(void **state)
{
    (void)state;
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b\":{\"shape\":[256],\"dtype\":\"F32\",\"data_offsets\":[24,1048]},"
        "\"gate.\\u0077eight\":{\"dtype\":\"BF16\",\"shape\":[3,4],\"data_offsets\":[0,24]},"
        "\"scalar\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[1048,1056]},"
        "\"empty\":{\"dtype\":\"F16\",\"shape\":[0,7],\"data_offsets\":[24,24]},"
        "\"new\":{\"dtype\":\"Q4_K\",\"shape\":[5],\"data_offsets\":[1056,1059]}}   ";
    struct dk_st_index index;
    struct dk_error error = {0};
    assert_int_equal(parse(header, 1059, &index, &error), DK_OK);
    assert_int_equal(index.tensor_count, 5);
    assert_int_equal(index.header_bytes, sizeof header - 1);
    assert_int_equal(index.data_bytes, 1059);
    static const char *const order[] = {"gate.weight", "empty", "b", "scalar", "new"};
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(index.tensors[i].name, order[i]);
    }
    const struct dk_st_tensor *gate = dk_st_index_find(&index, "gate.weight");
    assert_int_equal(gate->dtype, DK_BF16);
    assert_string_equal(gate->dtype_name, "BF16");
    assert_int_equal(gate->rank, 2);
    assert_int_equal(gate->shape[0], 3);
    assert_int_equal(gate->shape[1], 4);
    const struct dk_st_tensor *bias = dk_st_index_find(&index, "b");
    assert_int_equal(bias->file_offset, 8 + sizeof header - 1 + 24);
    assert_int_equal(dk_st_index_find(&index, "scalar")->dtype, -1);
    assert_int_equal(dk_st_index_find(&index, "scalar")->rank, 0);
    assert_string_equal(dk_st_index_find(&index, "new")->dtype_name, "Q4_K");
    assert_null(dk_st_index_find(&index, "Gate.weight"));
    dk_st_index_deinit(&index);
    assert_null(index.tensors);
    dk_st_index_deinit(&index);
    dk_st_index_deinit(NULL);
}

static void test_empty_header_without_data(void **state)
{
    (void)state;
    struct dk_st_index index;
    struct dk_error error = {0};
    assert_int_equal(parse("{}", 0, &index, &error), DK_OK);
    assert_int_equal(index.tensor_count, 0);
    assert_null(dk_st_index_find(&index, ""));
    dk_st_index_deinit(&index);
    assert_int_equal(parse("{\"__metadata__\":{}}", 0, &index, &error), DK_OK);
    dk_st_index_deinit(&index);
}

static void expect_refused(dk_status status, const struct dk_error *error, const char *part,
                           const char *header)
{
    if (status != DK_BAD_FILE || strstr(error->message, part) == NULL) {
        fail_msg("%.200s: got %s \"%s\", expected \"%s\"", header, dk_status_name(status), error->message,
                 part);
    }
}

static void test_c56_length_word_that_lies(void **state)
{
    (void)state;
    static const struct {
        uint64_t length_word;
        const char *part;
    } cases[] = {
        {0, "the header's length is 0; allowed are 1 to 100000000"},
        {3, "the header's length is 3, but only 2 bytes follow"},
        {100000000, "the header's length is 100000000, but only 2 bytes follow"},
        {100000001, "the header's length is 100000001; allowed"},
        {UINT64_C(1) << 63, "the header's length is 9223372036854775808; allowed"},
        {UINT64_MAX, "the header's length is 18446744073709551615; allowed"},
        {1, "the body ends before"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dk_st_index index = {.tensor_count = 77};
        struct dk_error error = {0};
        dk_status status = parse_sized("{}", 2, cases[i].length_word, 0, &index, &error);
        expect_refused(status, &error, cases[i].part, "{}");
        assert_int_equal(index.tensor_count, 77);
    }
}

static void test_c56_files_shorter_than_a_header(void **state)
{
    (void)state;
    for (size_t length = 0; length <= 9; length++) {
        unsigned char *file = calloc(1, length == 0 ? 1 : length);
        struct dk_st_index index;
        struct dk_error error = {0};
        assert_non_null(file);
        if (length > 0) {
            file[0] = 2;
        }
        dk_status status = dk_st_index_parse(file, length, length, &index, &error);
        expect_refused(status, &error, length < 8 ? "the header's length alone takes 8" : "bytes follow", "");
        free(file);
    }
    /* A file that is long enough of which too little is mapped. */
    static const unsigned char word[8] = {2};
    struct dk_st_index index;
    struct dk_error error = {0};
    expect_refused(dk_st_index_parse(word, 8, 4096, &index, &error), &error, "header's length is 2", "");
}

#define T(name, dtype, shape, offsets)                                                                       \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void test_c56_headers_that_lie(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        uint64_t data_bytes;
        const char *part;
    } cases[] = {
        /* Not an object, or not strict JSON. */
        {"[]", 0, "begins with byte 0x5B; expected '{'"},
        {" {}", 0, "begins with byte 0x20"},
        {"\"a\"", 0, "begins with byte 0x22"},
        {"null", 0, "begins with byte 0x6E"},
        {"{\"a\":}", 0, "not a strict JSON object: at byte 5"},
        {"{} x", 0, "not a strict JSON object"},
        {"{}{}", 0, "not a strict JSON object"},
        {"{\"\xFF\":1}", 0, "malformed UTF-8"},
        {"{" T("a", "F32", "[1]", "[0,4]") "," T("a", "F32", "[1]", "[4,8]") "}", 8, "duplicate key \"a\""},
        {"{" T("a", "F32", "[1]", "[0,4]") "," T("\\u0061", "F32", "[1]", "[4,8]") "}", 8,
         "duplicate key \"a\""},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
         "duplicate key \"dtype\""},
        /* Entries. */
        {"{\"a\":5}", 0, "tensor \"a\": its entry is not an object: 5"},
        {"{\"a\":[]}", 0, "tensor \"a\": its entry is not an object"},
        {"{\"a\":{}}", 0, "tensor \"a\": dtype is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "tensor \"a\": data_offsets is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "tensor \"a\": shape is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"note\":\"x\"}}", 4,
         "unknown field \"note\""},
        {"{\"a\":{\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype is not a short string: 4"},
        {"{\"a\":{\"dtype\":\"\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype is not a short string"},
        {"{" T("a", "SIXTEEN_LETTERS_", "[1]", "[0,4]") "}", 4, "dtype is not a short string"},
        /* Shapes. */
        {"{" T("a", "F32", "[-1]", "[0,4]") "}", 4,
         "shape is not a list of at most 8 unsigned integers: [-1]"},
        {"{" T("a", "F32", "[1.0]", "[0,4]") "}", 4, "shape is not a list"},
        {"{" T("a", "F32", "[1e0]", "[0,4]") "}", 4, "shape is not a list"},
        {"{" T("a", "F32", "[\\\"1\\\"]", "[0,4]") "}", 4, "not a strict JSON"},
        {"{" T("a", "F32", "[\"1\"]", "[0,4]") "}", 4, "shape is not a list"},
        {"{" T("a", "F32", "[[1]]", "[0,4]") "}", 4, "shape is not a list"},
        {"{" T("a", "F32", "[true]", "[0,4]") "}", 4, "shape is not a list"},
        {"{" T("a", "F32", "1", "[0,4]") "}", 4, "shape is not a list"},
        {"{" T("a", "F32", "null", "[0,4]") "}", 4, "shape is not a list"},
        {"{" T("a", "F32", "[18446744073709551616]", "[0,4]") "}", 4, "shape is not a list"},
        {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, "at most 8"},
        {"{" T("a", "F32", "[4294967296,4294967296]", "[0,0]") "}", 0, "not a whole 64-bit number of bytes"},
        {"{" T("a", "F32", "[18446744073709551615]", "[0,4]") "}", 4, "not a whole 64-bit number of bytes"},
        {"{" T("a", "F4", "[3]", "[0,1]") "}", 1, "not a whole 64-bit number of bytes"},
        {"{" T("a", "F32", "[2]", "[0,4]") "}", 4, "its shape of F32 needs 8 bytes, its offsets give 4"},
        {"{" T("a", "BF16", "[256,7168]", "[0,4]") "}", 4, "needs 3670016 bytes, its offsets give 4"},
        {"{" T("a", "F32", "[1]", "[0,8]") "}", 8, "needs 4 bytes, its offsets give 8"},
        /* Offsets. */
        {"{" T("a", "F32", "[1]", "[4,0]") "}", 4, "begins at 4 behind its end 0"},
        {"{" T("a", "F32", "[1]", "[0,5]") "}", 4, "ends at 5, the file holds 4 bytes of data"},
        {"{" T("a", "F32", "[1]", "[0,18446744073709551615]") "}", 4, "ends at 18446744073709551615"},
        {"{" T("a", "F32", "[1]", "[9007199254740993,9007199254740997]") "}", 4, "ends at 9007199254740997"},
        {"{" T("a", "F32", "[1]", "[0]") "}", 4, "data_offsets is not two unsigned integers: [0]"},
        {"{" T("a", "F32", "[1]", "[0,4,8]") "}", 4, "data_offsets is not two"},
        {"{" T("a", "F32", "[1]", "[]") "}", 4, "data_offsets is not two"},
        {"{" T("a", "F32", "[1]", "[-4,0]") "}", 4, "data_offsets is not two"},
        {"{" T("a", "F32", "[1]", "[0.0,4]") "}", 4, "data_offsets is not two"},
        {"{" T("a", "F32", "[1]", "\"0,4\"") "}", 4, "data_offsets is not two"},
        {"{" T("a", "F32", "[1]", "{}") "}", 4, "data_offsets is not two"},
        /* Tiling. */
        {"{" T("a", "F32", "[1]", "[4,8]") "}", 8, "tensor \"a\": begins at 4, expected 0 (a hole)"},
        {"{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[8,12]") "}", 12,
         "tensor \"b\": begins at 8, expected 4 where tensor \"a\" ends (a hole)"},
        {"{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F32", "[2]", "[4,12]") "}", 12, "(an overlap)"},
        {"{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[0,4]") "}", 4, "(an overlap)"},
        {"{" T("a", "F32", "[1]", "[0,4]") "}", 5, "the last tensor ends at 4, the file holds 5 bytes"},
        {"{}", 1, "the last tensor ends at 0, the file holds 1 bytes"},
        /* Metadata. */
        {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
        {"{\"__metadata__\":null}", 0, "__metadata__ is not an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ holds something else than strings: \"a\":1"},
        {"{\"__metadata__\":{\"a\":\"b\",\"c\":{}}}", 0, "__metadata__ holds something else"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dk_st_index index = {.tensor_count = 77};
        struct dk_error error = {0};
        dk_status status = parse(cases[i].header, cases[i].data_bytes, &index, &error);
        expect_refused(status, &error, cases[i].part, cases[i].header);
        assert_int_equal(index.tensor_count, 77); /* untouched */
    }
}

static void test_c56_every_cut_of_a_header_is_refused(void **state)
{
    (void)state;
    static const char header[] =
        "{" T("a", "F32", "[1]", "[0,4]") "," T("b\\n", "BF16", "[2,1]", "[4,8]") "}";
    for (size_t length = 1; length < sizeof header - 1; length++) {
        struct dk_st_index index;
        struct dk_error error = {0};
        assert_int_equal(parse_sized(header, length, length, 8, &index, &error), DK_BAD_FILE);
    }
    struct dk_st_index index;
    assert_int_equal(parse(header, 8, &index, NULL), DK_OK);
    assert_string_equal(index.tensors[1].name, "b\n");
    dk_st_index_deinit(&index);
}

static void test_c31_deep_nesting_in_a_header(void **state)
{
    (void)state;
    enum { DEEP = 100000 };
    static char header[DEEP + 16] = "{\"a\":";
    memset(header + 5, '[', DEEP);
    struct dk_st_index index;
    struct dk_error error = {0};
    expect_refused(parse(header, 0, &index, &error), &error, "nested deeper than 32", "");
}

static void test_long_names(void **state)
{
    (void)state;
    char header[512];
    for (int length = 255; length <= 256; length++) {
        char name[300] = {0};
        memset(name, 'n', (size_t)length);
        (void)snprintf(header, sizeof header,
                       "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", name);
        struct dk_st_index index;
        struct dk_error error = {0};
        dk_status status = parse(header, 1, &index, &error);
        if (length == 255) {
            assert_int_equal(status, DK_OK);
            assert_string_equal(index.tensors[0].name, name);
            dk_st_index_deinit(&index);
        } else {
            expect_refused(status, &error, "its name has 256 bytes; allowed are 255", header);
        }
    }
}

/* As many tensors as a large checkpoint's shard or more: several megabytes of header. */
static void test_c40_a_header_of_megabytes(void **state)
{
    (void)state;
    enum { TENSORS = 50000 };
    size_t capacity = (size_t)TENSORS * 120;
    char *header = malloc(capacity);
    assert_non_null(header);
    size_t length = 0;
    for (int i = 0; i < TENSORS; i++) {
        int place = (int)((unsigned)i * 7919U % TENSORS); /* not in order */
        length += (size_t)snprintf(header + length, capacity - length,
                                   "%c\"model.layers.%d.mlp.weight\":{\"dtype\":\"F32\",\"shape\":[1,2],"
                                   "\"data_offsets\":[%d,%d]}",
                                   i == 0 ? '{' : ',', place, place * 8, place * 8 + 8);
    }
    header[length++] = '}';
    struct dk_st_index index;
    struct dk_error error = {0};
    assert_int_equal(parse_sized(header, length, length, (uint64_t)TENSORS * 8, &index, &error), DK_OK);
    assert_int_equal(index.tensor_count, TENSORS);
    assert_string_equal(index.tensors[TENSORS - 1].name, "model.layers.49999.mlp.weight");
    dk_st_index_deinit(&index);
    free(header);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_header),
        cmocka_unit_test(test_empty_header_without_data),
        cmocka_unit_test(test_c56_length_word_that_lies),
        cmocka_unit_test(test_c56_files_shorter_than_a_header),
        cmocka_unit_test(test_c56_headers_that_lie),
        cmocka_unit_test(test_c56_every_cut_of_a_header_is_refused),
        cmocka_unit_test(test_c31_deep_nesting_in_a_header),
        cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_c40_a_header_of_megabytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
