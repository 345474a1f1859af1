/* test_oip_input.c: type, shape and data of an input: what fits together and what does not. */
#include "tests/unit/proto/oip_parse.h"

#include <stdlib.h>

#define INPUT(text)   "{\"inputs\":[{\"name\":\"x\"," text "}]}"
#define SHAPED(shape) INPUT("\"datatype\":\"FP32\",\"data\":[1,2,3,4],\"shape\":" shape)
#define BINARY(size)                                                                                         \
    INPUT("\"datatype\":\"FP32\",\"shape\":[1,4],\"parameters\":{\"binary_data_size\":" size "}")

static void test_c23_shapes_are_lists_of_unsigned_integers(void **state)
{
    (void)state;
    struct dk_oip_request request;
    oip_refuse(SHAPED("[-1,4]"), DK_BAD_REQUEST,
               "inputs[0].shape[0]: expected an unsigned integer below 2^64, found -1");
    oip_refuse(SHAPED("\"[-1]\""), DK_BAD_REQUEST,
               "inputs[0].shape: expected an array of unsigned integers, found \"[-1]\"");
    oip_refuse(SHAPED("{}"), DK_BAD_REQUEST, "inputs[0].shape: expected an array of unsigned integers");
    oip_refuse(SHAPED("null"), DK_BAD_REQUEST, "found null");
    oip_refuse(SHAPED("[1.5,4]"), DK_BAD_REQUEST, "inputs[0].shape[0]: expected an unsigned integer");
    oip_refuse(SHAPED("[true,4]"), DK_BAD_REQUEST, "found true");
    oip_refuse(SHAPED("[\"1\",4]"), DK_BAD_REQUEST, "inputs[0].shape[0]");
    oip_refuse(SHAPED("[1,[4]]"), DK_BAD_REQUEST, "inputs[0].shape[1]");
    oip_refuse(SHAPED("[1e0,4]"), DK_BAD_REQUEST, "found 1e0");
    oip_refuse(SHAPED("[]"), DK_BAD_SHAPE, "inputs[0].shape: expected 1 to 8 dimensions, found 0");
    oip_refuse(SHAPED("[1,1,1,1,1,1,1,1,4]"), DK_BAD_SHAPE, "inputs[0].shape: expected at most 8 dimensions");
    oip_accept(SHAPED("[1,1,1,1,1,1,1,4]"), &request);
    assert_int_equal(request.inputs[0].rank, 8);
}

static void test_shapes_whose_product_overflows_are_refused(void **state)
{
    (void)state;
    oip_refuse(SHAPED("[4294967296,4294967296]"), DK_BAD_SHAPE,
               "inputs[0].shape: expected a tensor below 2^64 bytes, found [4294967296,4294967296]");
    oip_refuse(SHAPED("[4611686018427387904]"), DK_BAD_SHAPE, "expected a tensor below 2^64 bytes");
    oip_refuse(SHAPED("[18446744073709551615,18446744073709551615,18446744073709551615,18446744073709551615,"
                      "18446744073709551615,18446744073709551615,18446744073709551615,18446744073709551615]"),
               DK_BAD_SHAPE, "18446744073709551615]");
    oip_refuse(SHAPED("[1,18446744073709551616]"), DK_BAD_REQUEST, "inputs[0].shape[1]");
}

static void test_datatypes_are_exact_names(void **state)
{
    (void)state;
    static const char *const refused[] = {"fp32",        "FP99", "FP32 ", "",
                                          "BF16\\u0020", "FP64", "INT32", "BYTES"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char body[256];
        (void)snprintf(body, sizeof body, INPUT("\"shape\":[1],\"data\":[1],\"datatype\":\"%s\""),
                       refused[i]);
        oip_refuse(body, DK_BAD_DTYPE,
                   "inputs[0].datatype: expected \"FP32\", \"BF16\" or \"FP16\", found \"");
    }
}

static void test_c25_flat_and_nested_data_are_the_same(void **state)
{
    (void)state;
    struct dk_oip_request request;
    static const char *const accepted[] = {
        INPUT("\"datatype\":\"FP32\",\"shape\":[2,2],\"data\":[1,2,3,4]"),
        INPUT("\"datatype\":\"FP32\",\"shape\":[2,2],\"data\":[[1,2],[3,4]]"),
        INPUT("\"data\":[[[1,2]],[[3,4]]],\"shape\":[2,1,2],\"datatype\":\"FP32\""),
        INPUT("\"data\":[1,2,3,4],\"shape\":[4],\"datatype\":\"FP32\""),
    };
    for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++) {
        oip_accept(accepted[i], &request);
        assert_int_equal(request.inputs[0].count, 4);
    }
}

static void test_c25_data_that_does_not_fit_the_shape_is_refused(void **state)
{
    (void)state;
    oip_refuse(INPUT("\"datatype\":\"FP32\",\"shape\":[1,4],\"data\":[1,2,3]"), DK_BAD_SHAPE,
               "inputs[0].data of \"x\": expected 4 numbers for shape [1,4], found 3");
    oip_refuse(INPUT("\"datatype\":\"FP32\",\"shape\":[1,4],\"data\":[1,2,3,4,5]"), DK_BAD_SHAPE,
               "expected 4 numbers for shape [1,4], found 5");
    oip_refuse(INPUT("\"datatype\":\"FP32\",\"shape\":[3],\"data\":[1]"), DK_BAD_SHAPE,
               "expected 3 numbers for shape [3], found 1");
    oip_refuse(INPUT("\"datatype\":\"FP32\",\"shape\":[1,4],\"data\":[[1],[2],[3],[4]]"), DK_BAD_SHAPE,
               "expected a flat list or lists nested as [1,4], found [4,1]");
    oip_refuse(INPUT("\"datatype\":\"FP32\",\"shape\":[1,4],\"data\":[[[1,2,3,4]]]"), DK_BAD_SHAPE,
               "nested as [1,4], found [1,1,4]");
    oip_refuse(INPUT("\"datatype\":\"FP32\",\"shape\":[4],\"data\":[[1,2,3,4]]"), DK_BAD_SHAPE,
               "nested as [4], found [1,4]");
    oip_refuse(INPUT("\"datatype\":\"FP32\",\"shape\":[2,2],\"data\":[[1,2],[3]]"), DK_BAD_SHAPE,
               "inputs[0].data[1]: expected 2 values, found 1");
    oip_refuse(INPUT("\"datatype\":\"FP32\",\"shape\":[2,2],\"data\":[[1,2],3,4]"), DK_BAD_SHAPE,
               "inputs[0].data[1]: expected an array, found a number");
}

static void test_c25_data_that_is_no_list_of_numbers_is_refused(void **state)
{
    (void)state;
    static const char *const values[] = {"1", "null", "\"1\"", "{}", "true"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char body[256];
        (void)snprintf(body, sizeof body, INPUT("\"shape\":[1],\"datatype\":\"FP32\",\"data\":%s"),
                       values[i]);
        oip_refuse(body, DK_BAD_SHAPE, "inputs[0].data: expected an array of numbers, found ");
    }
    oip_refuse(INPUT("\"shape\":[1],\"datatype\":\"FP32\",\"data\":[null]"), DK_BAD_JSON, "inputs[0].data");
    oip_refuse(INPUT("\"shape\":[1],\"datatype\":\"FP32\",\"data\":[\"1\"]"), DK_BAD_JSON, "inputs[0].data");
    oip_refuse(INPUT("\"shape\":[1],\"datatype\":\"FP32\",\"data\":[true]"), DK_BAD_JSON, "inputs[0].data");
}

/* The null that a second input sends must not pass because the first one's list was taken. */
static void test_data_belongs_to_its_own_input(void **state)
{
    (void)state;
    oip_refuse("{\"inputs\":[{\"name\":\"a\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1]},"
               "{\"name\":\"b\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":null}]}",
               DK_BAD_SHAPE, "inputs[1].data: expected an array of numbers, found null");
    oip_refuse("{\"inputs\":[{\"name\":\"a\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1]},"
               "{\"name\":\"b\",\"shape\":[2],\"datatype\":\"FP32\",\"data\":[1,2,3]}]}",
               DK_BAD_SHAPE, "inputs[1].data of \"b\": expected 2 numbers for shape [2], found 3");
}

static void test_c13_zero_rows(void **state)
{
    (void)state;
    struct dk_oip_request request;
    static const char *const accepted[] = {
        INPUT("\"datatype\":\"FP32\",\"shape\":[0,4],\"data\":[]"),
        INPUT("\"datatype\":\"FP32\",\"shape\":[0,4],\"parameters\":{\"binary_data_size\":0}"),
        INPUT("\"datatype\":\"FP32\",\"shape\":[0,4],\"parameters\":{\"shared_memory_region\":\"r\","
              "\"shared_memory_byte_size\":0}"),
    };
    for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++) {
        oip_accept(accepted[i], &request);
        assert_true(request.inputs[0].count == 0 && request.inputs[0].bytes == 0);
        assert_int_equal(request.inputs[0].source, i);
    }
    oip_refuse(INPUT("\"datatype\":\"FP32\",\"shape\":[0,4],\"data\":[1]"), DK_BAD_SHAPE,
               "expected 0 numbers");
    oip_refuse(INPUT("\"datatype\":\"FP32\",\"shape\":[0,4],\"data\":[[]]"), DK_BAD_SHAPE,
               "nested as [0,4], found [1,0]");
}

static void test_c27_binary_sizes_must_fit(void **state)
{
    (void)state;
    struct dk_oip_request request;
    oip_accept(BINARY("16"), &request);
    assert_int_equal(request.binary_bytes, 16);
    static const char *const wrong[] = {"15", "17", "0", "4", "9223372036854775808", "18446744073709551615"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char body[256];
        (void)snprintf(body, sizeof body, BINARY("%s"), wrong[i]);
        char expected[160];
        (void)snprintf(
            expected, sizeof expected,
            "inputs[0].parameters.binary_data_size of \"x\": expected 16 bytes for FP32 of shape [1,4], "
            "found %s",
            wrong[i]);
        oip_refuse(body, DK_BAD_SHAPE, expected);
    }
    static const char *const no_number[] = {"-16", "16.0", "1.6e1", "\"16\"", "true", "null", "[16]"};
    for (size_t i = 0; i < sizeof no_number / sizeof no_number[0]; i++) {
        char body[256];
        (void)snprintf(body, sizeof body, BINARY("%s"), no_number[i]);
        oip_refuse(body, DK_BAD_REQUEST,
                   "inputs[0].parameters.binary_data_size: expected an unsigned integer below 2^64");
    }
}

static void test_c27_there_is_exactly_one_source_of_data(void **state)
{
    (void)state;
    oip_refuse("{\"inputs\":[{" OIP_X "}]}", DK_BAD_REQUEST,
               "inputs[0] \"x\": expected data, binary_data_size or shared_memory_region, found none");
    oip_refuse("{\"inputs\":[{" OIP_X "," OIP_DATA ",\"parameters\":{\"binary_data_size\":16}}]}",
               DK_BAD_REQUEST,
               "inputs[0] \"x\": expected one source of data, found data and binary_data_size");
    oip_refuse("{\"inputs\":[{" OIP_X "," OIP_DATA ",\"parameters\":{\"shared_memory_region\":\"r\","
               "\"shared_memory_byte_size\":16}}]}",
               DK_BAD_REQUEST, "found data and shared_memory_region");
    oip_refuse("{\"inputs\":[{" OIP_X
               ",\"parameters\":{\"binary_data_size\":16,\"shared_memory_region\":\"r\","
               "\"shared_memory_byte_size\":16}}]}",
               DK_BAD_REQUEST, "found binary_data_size and shared_memory_region");
}

#define SHARED(text) "{\"inputs\":[{" OIP_X ",\"parameters\":{" text "}}]}"

static void test_shared_memory_inputs_are_whole(void **state)
{
    (void)state;
    oip_refuse(SHARED("\"shared_memory_region\":\"r\""), DK_BAD_REQUEST,
               "inputs[0].parameters.shared_memory_byte_size is missing");
    oip_refuse(SHARED("\"shared_memory_byte_size\":16"), DK_BAD_REQUEST,
               "inputs[0].parameters.shared_memory_region is missing");
    oip_refuse(SHARED("\"shared_memory_offset\":16"), DK_BAD_REQUEST,
               "inputs[0].parameters.shared_memory_region is missing");
    oip_refuse(SHARED("\"shared_memory_region\":\"r\",\"shared_memory_byte_size\":17"), DK_BAD_SHAPE,
               "shared_memory_byte_size of \"x\": expected 16 bytes");
    oip_refuse(
        SHARED("\"shared_memory_region\":\"r\",\"shared_memory_byte_size\":16,\"shared_memory_offset\":"
               "18446744073709551600"),
        DK_BAD_VALUE, "found 18446744073709551600 + 16");
    oip_refuse(
        SHARED("\"shared_memory_region\":\"r\",\"shared_memory_byte_size\":16,\"shared_memory_offset\":-1"),
        DK_BAD_REQUEST, "inputs[0].parameters.shared_memory_offset: expected an unsigned integer");
    static const char *const names[] = {"", "a/b", "..", "a b", "\\u00e9"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char body[256];
        (void)snprintf(body, sizeof body,
                       SHARED("\"shared_memory_region\":\"%s\",\"shared_memory_byte_size\":16"), names[i]);
        oip_refuse(body, DK_BAD_VALUE, "inputs[0].parameters.shared_memory_region: expected a region name");
    }
}

#define OUTPUT(text)                                                                                         \
    "{\"inputs\":[{" OIP_X "," OIP_DATA "}],\"outputs\":[{\"name\":\"o\",\"parameters\":{" text "}}]}"

static void test_outputs_go_to_one_place(void **state)
{
    (void)state;
    struct dk_oip_request request;
    oip_refuse(OUTPUT("\"binary_data\":true,\"shared_memory_region\":\"r\",\"shared_memory_byte_size\":4"),
               DK_BAD_REQUEST,
               "outputs[0].parameters: expected binary_data or shared_memory_region, found both");
    oip_refuse(OUTPUT("\"shared_memory_region\":\"r\""), DK_BAD_REQUEST,
               "outputs[0].parameters.shared_memory_byte_size is missing");
    oip_refuse(OUTPUT("\"shared_memory_offset\":1"), DK_BAD_REQUEST,
               "outputs[0].parameters.shared_memory_region is missing");
    oip_accept(OUTPUT("\"binary_data\":false,\"shared_memory_region\":\"r\",\"shared_memory_byte_size\":4"),
               &request);
    assert_int_equal(request.outputs[0].kind, DK_OIP_OUTPUT_SHARED_MEMORY);
    oip_refuse(OUTPUT("\"classification\":3"), DK_UNSUPPORTED, "outputs[0].parameters.classification");
    oip_refuse(OUTPUT("\"classification\":\"3\""), DK_BAD_REQUEST, "outputs[0].parameters.classification");
    oip_accept(OUTPUT("\"classification\":0,\"binary_data\":true"), &request);
    assert_int_equal(request.outputs[0].kind, DK_OIP_OUTPUT_BINARY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_c23_shapes_are_lists_of_unsigned_integers),
        cmocka_unit_test(test_shapes_whose_product_overflows_are_refused),
        cmocka_unit_test(test_datatypes_are_exact_names),
        cmocka_unit_test(test_c25_flat_and_nested_data_are_the_same),
        cmocka_unit_test(test_c25_data_that_does_not_fit_the_shape_is_refused),
        cmocka_unit_test(test_c25_data_that_is_no_list_of_numbers_is_refused),
        cmocka_unit_test(test_data_belongs_to_its_own_input),
        cmocka_unit_test(test_c13_zero_rows),
        cmocka_unit_test(test_c27_binary_sizes_must_fit),
        cmocka_unit_test(test_c27_there_is_exactly_one_source_of_data),
        cmocka_unit_test(test_shared_memory_inputs_are_whole),
        cmocka_unit_test(test_outputs_go_to_one_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
