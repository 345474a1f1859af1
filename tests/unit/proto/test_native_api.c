/* test_native_api.c: requests, answers and errors of /v1. */
#include "tests/unit/proto/cmocka_all.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/native_api.h"

/* A body through the strict reader, as the server does it. */
static dk_status parse(const char *body, struct dk_matmul_request *request, struct dk_error *error)
{
    struct dk_json_reader *reader;
    const char *skeleton;
    size_t length;
    assert_int_equal(dk_json_reader_new(dk_native_paths, DK_NATIVE_TENSOR_COUNT, NULL, &reader), DK_OK);
    assert_int_equal(dk_json_reader_feed(reader, body, strlen(body), error), DK_OK);
    assert_int_equal(dk_json_reader_finish(reader, &skeleton, &length, error), DK_OK);
    dk_status status = dk_matmul_request_parse(skeleton, length, request, error);
    dk_json_reader_free(reader);
    return status;
}

static void test_model_request(void **state)
{
    (void)state;
    struct dk_matmul_request request;
    struct dk_error error;
    assert_int_equal(parse("{\"model\":\"gate\",\"x\":[[1]],\"dtype\":\"bf16\",\"out_dtype\":\"fp16\","
                           "\"epilogue\":\"sigmoid\",\"bias\":[1],\"id\":\"r-1 \\u00e9\"}",
                           &request, &error),
                     DK_OK);
    assert_string_equal(request.model, "gate");
    assert_true(request.has_model && request.has_dtype && request.has_out_dtype && request.has_epilogue);
    assert_false(request.has_b_layout);
    assert_int_equal(request.dtype, DK_BF16);
    assert_int_equal(request.out_dtype, DK_FP16);
    assert_int_equal(request.epilogue, DK_EPILOGUE_SIGMOID);
    assert_string_equal(request.id, "r-1 \xC3\xA9");
}

static void test_ad_hoc_request_and_defaults(void **state)
{
    (void)state;
    struct dk_matmul_request request;
    struct dk_error error;
    memset(&request, 0x55, sizeof request);
    assert_int_equal(parse("{\"a\":[1],\"b\":[[2]],\"b_layout\":\"nk\"}", &request, &error), DK_OK);
    assert_string_equal(request.model, "");
    assert_string_equal(request.id, "");
    assert_false(request.has_model || request.has_dtype || request.has_out_dtype || request.has_epilogue);
    assert_true(request.has_b_layout);
    assert_int_equal(request.dtype, DK_FP32);
    assert_int_equal(request.out_dtype, DK_FP32);
    assert_int_equal(request.epilogue, DK_EPILOGUE_NONE);
    assert_int_equal(request.b_layout, DK_LAYOUT_NK);
}

static void test_refusals_quote_member_and_value(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        dk_status status;
        const char *part;
    } cases[] = {
        {"{\"model\":\"g\",\"x\":[1],\"epilog\":\"relu\"}", DK_BAD_REQUEST, "unknown member \"epilog\""},
        {"{\"model\":7.5,\"x\":[1]}", DK_BAD_REQUEST, "model: expected a string, found 7.5"},
        {"{\"model\":null,\"x\":[1]}", DK_BAD_REQUEST, "model: expected a string, found null"},
        {"{\"model\":{},\"x\":[1]}", DK_BAD_REQUEST, "model: expected a string, found an object"},
        {"{\"model\":\"\",\"x\":[1]}", DK_BAD_VALUE, "model: expected 1 to 64 of [A-Za-z0-9._-], found \"\""},
        {"{\"model\":\"a b\",\"x\":[1]}", DK_BAD_VALUE, "found \"a b\""},
        {"{\"model\":\"..\",\"x\":[1]}", DK_BAD_VALUE, "found \"..\""},
        {"{\"model\":\"g\",\"x\":[1],\"dtype\":\"FP32\"}", DK_BAD_DTYPE,
         "dtype: expected fp32, bf16 or fp16, found \"FP32\""},
        {"{\"model\":\"g\",\"x\":[1],\"dtype\":\"int32\"}", DK_BAD_DTYPE, "found \"int32\""},
        {"{\"model\":\"g\",\"x\":[1],\"out_dtype\":\"fp8\"}", DK_BAD_DTYPE, "out_dtype: expected"},
        {"{\"model\":\"g\",\"x\":[1],\"out_dtype\":[]}", DK_BAD_REQUEST,
         "out_dtype: expected a string, found an array"},
        {"{\"model\":\"g\",\"x\":[1],\"epilogue\":\"gelu\"}", DK_BAD_VALUE,
         "epilogue: expected none, relu or sigmoid, found \"gelu\""},
        {"{\"a\":[1],\"b\":[1],\"b_layout\":\"NK\"}", DK_BAD_VALUE,
         "b_layout: expected kn or nk, found \"NK\""},
        {"{\"model\":\"g\",\"x\":[1],\"id\":\"\"}", DK_BAD_VALUE, "id: expected 1 to 64 bytes"},
        {"{\"model\":\"g\",\"x\":[1],\"id\":\"a\\nb\"}", DK_BAD_VALUE, "found \"a?b\""},
        {"{\"model\":\"g\",\"x\":[1],\"id\":\"\\u009b\"}", DK_BAD_VALUE, "control characters"},
        {"{\"model\":\"g\",\"x\":[1],\"id\":true}", DK_BAD_REQUEST, "id: expected a string, found true"},
        {"{\"model\":\"g\",\"x\":3}", DK_BAD_SHAPE, "x: expected an array of numbers, found 3"},
        {"{\"model\":\"g\",\"x\":\"AAAA\"}", DK_BAD_SHAPE, "x: expected an array of numbers, found \"AAAA\""},
        {"{\"a\":[1],\"b\":{\"c\":1}}", DK_BAD_SHAPE, "b: expected an array of numbers, found an object"},
        {"{\"model\":\"g\"}", DK_BAD_REQUEST, "x is missing for model \"g\""},
        {"{\"x\":[1]}", DK_BAD_REQUEST, "model is missing"},
        {"{\"a\":[1]}", DK_BAD_REQUEST, "b is missing"},
        {"{\"b\":[1]}", DK_BAD_REQUEST, "a is missing"},
        {"{}", DK_BAD_REQUEST, "neither model and x nor a and b"},
        {"{\"model\":\"g\",\"x\":[1],\"b\":[1]}", DK_BAD_REQUEST, "b belongs to a product without model"},
        {"{\"model\":\"g\",\"x\":[1],\"b_layout\":\"kn\"}", DK_BAD_REQUEST, "b_layout belongs"},
        {"{\"a\":[1],\"x\":[1],\"b\":[1]}", DK_BAD_REQUEST, "model is missing"},
        {"{\"Model\":\"g\",\"x\":[1]}", DK_BAD_REQUEST, "unknown member \"Model\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dk_matmul_request request;
        struct dk_matmul_request untouched;
        struct dk_error error = {0};
        memset(&request, 0x55, sizeof request);
        memset(&untouched, 0x55, sizeof untouched);
        dk_status status = parse(cases[i].body, &request, &error);
        if (status != cases[i].status || strstr(error.message, cases[i].part) == NULL) {
            fail_msg("%s: got %s \"%s\", expected \"%s\"", cases[i].body, dk_status_name(status),
                     error.message, cases[i].part);
        }
        assert_memory_equal(&request, &untouched, sizeof request);
    }
}

static void test_model_names(void **state)
{
    (void)state;
    char name[66];
    memset(name, 'n', sizeof name);
    assert_true(dk_model_name_is_valid(name, 64));
    assert_false(dk_model_name_is_valid(name, 65));
    assert_true(dk_model_name_is_valid("...", 3));
    assert_true(dk_model_name_is_valid("A-z_0.9", 7));
    static const char *const wrong[] = {"", ".", "..", "a/b", "a\\b", "a b", "a%20b", "\xC3\xA9", "a\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_false(dk_model_name_is_valid(wrong[i], strlen(wrong[i])));
    }
    assert_false(dk_model_name_is_valid("a\0b", 3));
}

static void test_query_parameters(void **state)
{
    (void)state;
    struct dk_matmul_request request = {0};
    struct dk_error error = {0};
    assert_int_equal(dk_matmul_request_set(&request, "model", "gate", &error), DK_OK);
    assert_int_equal(dk_matmul_request_set(&request, "dtype", "bf16", &error), DK_OK);
    assert_int_equal(dk_matmul_request_set(&request, "out_dtype", "fp32", &error), DK_OK);
    assert_int_equal(dk_matmul_request_set(&request, "epilogue", "relu", &error), DK_OK);
    assert_int_equal(dk_matmul_request_set(&request, "id", "7", &error), DK_OK);
    assert_string_equal(request.model, "gate");
    assert_int_equal(request.dtype, DK_BF16);
    assert_int_equal(request.epilogue, DK_EPILOGUE_RELU);
    static const struct {
        const char *name, *value;
        dk_status status;
        const char *part;
    } cases[] = {
        {"modle", "gate", DK_BAD_REQUEST, "unknown parameter \"modle\""},
        {"b_layout", "kn", DK_BAD_REQUEST, "unknown parameter \"b_layout\""},
        {"x", "1", DK_BAD_REQUEST, "unknown parameter \"x\""},
        {"model", NULL, DK_BAD_REQUEST, "parameter \"model\" has no value"},
        {"model", "other", DK_BAD_REQUEST, "parameter \"model\" is given twice, then as \"other\""},
        {"id", "8", DK_BAD_REQUEST, "given twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(dk_matmul_request_set(&request, cases[i].name, cases[i].value, &error),
                         cases[i].status);
        assert_non_null(strstr(error.message, cases[i].part));
    }
    struct dk_matmul_request fresh = {0};
    assert_int_equal(dk_matmul_request_set(&fresh, "dtype", "", &error), DK_BAD_DTYPE);
    assert_false(fresh.has_dtype);
    assert_int_equal(dk_matmul_request_set(&fresh, "id", "\xFF", &error), DK_BAD_VALUE);
}

static void test_c25_rows_of_x(void **state)
{
    (void)state;
    struct dk_error error = {0};
    uint64_t rows = 99;
    struct dk_json_tensor tensor = {.path_index = DK_NATIVE_X, .rank = 2, .shape = {17, 7168}};
    assert_int_equal(dk_matmul_rows(&tensor, 7168, &rows, &error), DK_OK);
    assert_int_equal(rows, 17);
    tensor = (struct dk_json_tensor){.rank = 1, .shape = {7168}};
    assert_int_equal(dk_matmul_rows(&tensor, 7168, &rows, &error), DK_OK);
    assert_int_equal(rows, 1);
    tensor = (struct dk_json_tensor){.rank = 1, .shape = {0}};
    assert_int_equal(dk_matmul_rows(&tensor, 7168, &rows, &error), DK_OK);
    assert_int_equal(rows, 0);
    static const struct {
        struct dk_json_tensor tensor;
        const char *message;
    } wrong[] = {
        {{.rank = 2, .shape = {1, 7167}}, "x: expected 7168 numbers in a row, found 7167"},
        {{.rank = 2, .shape = {7168, 1}}, "x: expected 7168 numbers in a row, found 1"},
        {{.rank = 2, .shape = {1, 0}}, "x: expected 7168 numbers in a row, found 0"},
        {{.rank = 1, .shape = {14336}}, "x: expected 7168 numbers in a row, found 14336"},
        {{.path_index = DK_NATIVE_A, .rank = 3, .shape = {1, 1, 7168}},
         "a: expected a list of rows of 7168 numbers, found 3 levels of lists"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        rows = 99;
        assert_int_equal(dk_matmul_rows(&wrong[i].tensor, 7168, &rows, &error), DK_BAD_SHAPE);
        assert_string_equal(error.message, wrong[i].message);
        assert_int_equal(rows, 99);
    }
}

/* The whole answer, in pieces of `size`. */
static char *write_reply(const struct dk_matmul_reply *reply, size_t size)
{
    struct dk_matmul_reply_writer writer;
    char *text = calloc(1, 1 << 16);
    char *piece = malloc(size);
    size_t length = 0;
    size_t written;
    assert_true(text != NULL && piece != NULL);
    dk_matmul_reply_writer_init(&writer, reply);
    while ((written = dk_matmul_reply_writer_next(&writer, piece, size)) > 0) {
        assert_true(written <= size);
        memcpy(text + length, piece, written);
        length += written;
    }
    dk_matmul_reply_writer_deinit(&writer);
    free(piece);
    return text;
}

static void test_reply_text(void **state)
{
    (void)state;
    static const float y[6] = {1, -0.25F, NAN, 1e-20F, 5, 6};
    const struct dk_matmul_reply reply = {.model = "gate",
                                          .id = "a\"b",
                                          .rows = 2,
                                          .n = 3,
                                          .y = y,
                                          .out_dtype = DK_FP32,
                                          .queue_ns = 1500,
                                          .kernel_ns = 63001,
                                          .total_ns = 100000000,
                                          .bucket_rows = 2,
                                          .split_k = 16,
                                          .piece_count = 1,
                                          .variant = "avx2_bf16_4x16",
                                          .backend = "cpu"};
    for (size_t size = 256; size < 600; size += 7) {
        char *text = write_reply(&reply, size);
        assert_string_equal(text, "{\"model\":\"gate\",\"id\":\"a\\\"b\",\"shape\":[2,3],\"dtype\":\"fp32\","
                                  "\"y\":[[1,-0.25,null],[1e-20,5,6]],"
                                  "\"timing_us\":{\"queue\":1.5,\"kernel\":63.001,\"total\":100000},"
                                  "\"plan\":{\"bucket\":2,\"variant\":\"avx2_bf16_4x16\",\"split_k\":16,"
                                  "\"pieces\":1,\"backend\":\"cpu\"},\"non_finite\":1}\n");
        free(text);
    }
}

static void test_c13_reply_without_rows(void **state)
{
    (void)state;
    const struct dk_matmul_reply reply = {
        .rows = 0, .n = 256, .out_dtype = DK_BF16, .variant = "", .backend = "cpu"};
    char *text = write_reply(&reply, 256);
    assert_string_equal(
        text, "{\"shape\":[0,256],\"dtype\":\"bf16\",\"y\":[],"
              "\"timing_us\":{\"queue\":0,\"kernel\":0,\"total\":0},"
              "\"plan\":{\"bucket\":0,\"variant\":\"\",\"split_k\":0,\"pieces\":0,\"backend\":\"cpu\"}}\n");
    free(text);
}

static void test_big_reply_is_json_in_every_piece_size(void **state)
{
    (void)state;
    enum { ROWS = 5, N = 300 };
    static float y[ROWS * N];
    for (int i = 0; i < ROWS * N; i++) {
        y[i] = (float)i / 7.0F - 100;
    }
    const struct dk_matmul_reply reply = {
        .model = "m", .rows = ROWS, .n = N, .y = y, .variant = "v", .backend = "cpu"};
    static const size_t sizes[] = {256, 257, 1000, 4096, 65536};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        char *text = write_reply(&reply, sizes[s]);
        cJSON *root = cJSON_Parse(text);
        assert_non_null(root);
        int row = 0;
        const cJSON *item;
        const cJSON *number;
        cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(root, "y"))
        {
            int column = 0;
            cJSON_ArrayForEach(number, item)
            {
                assert_true((float)number->valuedouble == y[row * N + column]);
                column++;
            }
            assert_int_equal(column, N);
            row++;
        }
        assert_int_equal(row, ROWS);
        assert_null(cJSON_GetObjectItemCaseSensitive(root, "non_finite"));
        cJSON_Delete(root);
        free(text);
    }
}

static void test_error_body(void **state)
{
    (void)state;
    struct dk_error error = {0};
    struct dk_json_text text = {0};
    dk_fail(&error, DK_NOT_FOUND, "unknown model \"%s\"", "a\"b");
    dk_error_body(&text, &error);
    assert_string_equal(text.data, "{\"error\":\"unknown model \\\"a\\\"b\\\"\",\"status\":\"NOT_FOUND\"}\n");
    dk_json_text_free(&text);
    error = (struct dk_error){.status = DK_BUSY};
    dk_error_body(&text, &error);
    assert_string_equal(text.data,
                        "{\"error\":\"a bounded resource is used up; try again\",\"status\":\"BUSY\"}\n");
    dk_json_text_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model_request),
        cmocka_unit_test(test_ad_hoc_request_and_defaults),
        cmocka_unit_test(test_refusals_quote_member_and_value),
        cmocka_unit_test(test_model_names),
        cmocka_unit_test(test_query_parameters),
        cmocka_unit_test(test_c25_rows_of_x),
        cmocka_unit_test(test_reply_text),
        cmocka_unit_test(test_c13_reply_without_rows),
        cmocka_unit_test(test_big_reply_is_json_in_every_piece_size),
        cmocka_unit_test(test_error_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
