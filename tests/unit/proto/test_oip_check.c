/* test_oip_check.c: an infer request against its header, its binary part and the model. */
#include "tests/unit/proto/oip_parse.h"

#include "proto/gemm.h"

static const struct dk_oip_tensor_spec outputs[] = {
    {.name = "logits", .dtype = DK_FP32, .row_length = 3},
    {.name = "topk_ids", .dtype = DK_INT32, .row_length = 2},
};
static const struct dk_oip_model model = {.name = "gate",
                                          .platform = "decomposek",
                                          .input = {.name = "x", .dtype = DK_BF16, .row_length = 4},
                                          .outputs = outputs,
                                          .output_count = 2,
                                          .max_batch_size = 4096};

static void test_header_length_is_a_number(void **state)
{
    (void)state;
    struct dk_oip_framing framing;
    struct dk_error error;
    assert_int_equal(dk_oip_framing_parse(NULL, &framing, &error), DK_OK);
    assert_int_equal(framing.kind, DK_OIP_ALL_JSON);
    assert_int_equal(dk_oip_framing_parse("0", &framing, &error), DK_OK);
    assert_int_equal(framing.kind, DK_OIP_RAW);
    assert_int_equal(dk_oip_framing_parse("17", &framing, &error), DK_OK);
    assert_int_equal(framing.kind, DK_OIP_SPLIT);
    assert_true(framing.json_bytes == 17);
    assert_int_equal(dk_oip_framing_parse("18446744073709551615", &framing, &error), DK_OK);
    assert_true(framing.json_bytes == UINT64_MAX);
    static const char *const refused[] = {"",      "-1",
                                          "+1",    "1.0",
                                          "1e2",   "0x10",
                                          " 17",   "17 ",
                                          "17,17", "18446744073709551616",
                                          "abc",   "1\n2",
                                          "\xFF",  "17;",
                                          "1_0",   "99999999999999999999999999999999"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        framing = (struct dk_oip_framing){.kind = DK_OIP_SPLIT, .json_bytes = 5};
        assert_int_equal(dk_oip_framing_parse(refused[i], &framing, &error), DK_BAD_VALUE);
        assert_non_null(strstr(error.message, "Inference-Header-Content-Length: expected a number of bytes"));
        assert_true(framing.json_bytes == 5);
    }
}

static void test_header_length_is_within_the_body(void **state)
{
    (void)state;
    struct dk_error error;
    struct dk_oip_framing framing = {.kind = DK_OIP_SPLIT, .json_bytes = 10};
    assert_int_equal(dk_oip_framing_check(&framing, 10, &error), DK_OK);
    assert_int_equal(dk_oip_framing_check(&framing, 9, &error), DK_BAD_VALUE);
    assert_string_equal(error.message,
                        "Inference-Header-Content-Length: expected at most the body's 9 bytes, found 10");
    framing.kind = DK_OIP_ALL_JSON;
    assert_int_equal(dk_oip_framing_check(&framing, 9, &error), DK_OK);
}

static void test_c27_the_binary_part_is_as_long_as_announced(void **state)
{
    (void)state;
    struct dk_error error;
    struct dk_oip_request request = {.binary_bytes = 32};
    struct dk_oip_framing framing = {.kind = DK_OIP_SPLIT, .json_bytes = 100};
    assert_int_equal(dk_oip_request_check_binary(&request, &framing, 132, &error), DK_OK);
    assert_int_equal(dk_oip_request_check_binary(&request, &framing, 131, &error), DK_BAD_SHAPE);
    assert_string_equal(error.message,
                        "expected 32 bytes of binary tensors behind the 100 bytes of JSON, found 31");
    assert_int_equal(dk_oip_request_check_binary(&request, &framing, 133, &error), DK_BAD_SHAPE);
    assert_int_equal(dk_oip_request_check_binary(&request, &framing, 99, &error), DK_BAD_VALUE);
    framing = (struct dk_oip_framing){.kind = DK_OIP_ALL_JSON};
    assert_int_equal(dk_oip_request_check_binary(&request, &framing, 132, &error), DK_BAD_REQUEST);
    assert_non_null(strstr(error.message, "Inference-Header-Content-Length"));
    request.binary_bytes = 0;
    assert_int_equal(dk_oip_request_check_binary(&request, &framing, 132, &error), DK_OK);
    framing = (struct dk_oip_framing){.kind = DK_OIP_SPLIT, .json_bytes = 100};
    assert_int_equal(dk_oip_request_check_binary(&request, &framing, 100, &error), DK_OK);
    assert_int_equal(dk_oip_request_check_binary(&request, &framing, 101, &error), DK_BAD_SHAPE);
}

static dk_status check(const char *body, struct dk_oip_request *request, struct dk_error *error)
{
    oip_accept(body, request);
    return dk_oip_request_check(request, &model, error);
}

static void refuse(const char *body, dk_status expected, const char *text)
{
    struct dk_oip_request request;
    struct dk_error error = {0};
    assert_int_equal(check(body, &request, &error), expected);
    if (strstr(error.message, text) == NULL) {
        fail_msg("expected \"%s\", found: %s", text, error.message);
    }
}

static void test_inputs_must_be_the_models(void **state)
{
    (void)state;
    refuse("{\"inputs\":[{" OIP_X "," OIP_DATA
           "},{\"name\":\"y\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":"
           "[1]}]}",
           DK_BAD_REQUEST, "inputs: expected 1 input, \"x\", for model \"gate\", found 2");
    refuse("{\"inputs\":[{\"name\":\"X\",\"shape\":[1,4],\"datatype\":\"FP32\"," OIP_DATA "}]}",
           DK_BAD_REQUEST, "inputs[0].name: expected \"x\", the input of model \"gate\", found \"X\"");
}

static void test_c23_shapes_must_be_the_models(void **state)
{
    (void)state;
    refuse("{\"inputs\":[{\"name\":\"x\",\"shape\":[4],\"datatype\":\"FP32\"," OIP_DATA "}]}", DK_BAD_SHAPE,
           "inputs[0].shape of \"x\": expected [rows,4], found 1 dimension");
    refuse("{\"inputs\":[{\"name\":\"x\",\"shape\":[1,1,4],\"datatype\":\"FP32\"," OIP_DATA "}]}",
           DK_BAD_SHAPE, "expected [rows,4], found 3 dimensions");
    refuse("{\"inputs\":[{\"name\":\"x\",\"shape\":[4,1],\"datatype\":\"FP32\"," OIP_DATA "}]}", DK_BAD_SHAPE,
           "expected [rows,4], found [4,1]");
    refuse("{\"inputs\":[{\"name\":\"x\",\"shape\":[16777217,4],\"datatype\":\"FP32\",\"parameters\":{"
           "\"binary_data_size\":268435472}}]}",
           DK_BAD_SHAPE, "expected at most 16777216 rows, found 16777217");
}

static void test_outputs_omitted_means_all(void **state)
{
    (void)state;
    struct dk_oip_request request;
    struct dk_error error;
    assert_int_equal(check(OIP_GOOD, &request, &error), DK_OK);
    assert_true(request.rows == 1);
    assert_int_equal(request.output_count, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(request.outputs[i].name, outputs[i].name);
        assert_int_equal(request.outputs[i].index, i);
        assert_int_equal(request.outputs[i].kind, DK_OIP_OUTPUT_JSON);
        assert_int_equal(request.outputs[i].dtype, outputs[i].dtype);
    }
    assert_int_equal(request.outputs[0].bytes, 12);
    assert_int_equal(request.outputs[1].bytes, 8);
    assert_int_equal(check("{\"parameters\":{\"binary_data_output\":true},\"inputs\":[{" OIP_X "," OIP_DATA
                           "}]}",
                           &request, &error),
                     DK_OK);
    assert_int_equal(request.outputs[0].kind, DK_OIP_OUTPUT_BINARY);
    assert_int_equal(request.outputs[1].kind, DK_OIP_OUTPUT_BINARY);
}

#define ASKING(outputs) "{\"inputs\":[{" OIP_X "," OIP_DATA "}],\"outputs\":[" outputs "]}"

static void test_outputs_listed_are_returned_in_that_order(void **state)
{
    (void)state;
    struct dk_oip_request request;
    struct dk_error error;
    assert_int_equal(
        check(ASKING("{\"name\":\"topk_ids\",\"parameters\":{\"binary_data\":true}},{\"name\":\"logits\"}"),
              &request, &error),
        DK_OK);
    assert_int_equal(request.outputs[0].index, 1);
    assert_int_equal(request.outputs[0].kind, DK_OIP_OUTPUT_BINARY);
    assert_int_equal(request.outputs[1].index, 0);
    assert_int_equal(request.outputs[1].kind, DK_OIP_OUTPUT_JSON);
    /* A listed output says for itself how it comes. */
    assert_int_equal(check("{\"parameters\":{\"binary_data_output\":true},\"inputs\":[{" OIP_X "," OIP_DATA
                           "}],\"outputs\":[{\"name\":\"logits\"}]}",
                           &request, &error),
                     DK_OK);
    assert_int_equal(request.output_count, 1);
    assert_int_equal(request.outputs[0].kind, DK_OIP_OUTPUT_JSON);
    refuse(ASKING("{\"name\":\"logit\"}"), DK_BAD_REQUEST,
           "outputs: expected outputs of model \"gate\", as \"logits\", found \"logit\"");
}

static void test_output_datatype_is_of_float_outputs(void **state)
{
    (void)state;
    struct dk_oip_request request;
    struct dk_error error;
    assert_int_equal(check("{\"parameters\":{\"output_datatype\":\"FP16\"},\"inputs\":[{" OIP_X "," OIP_DATA
                           "}]}",
                           &request, &error),
                     DK_OK);
    assert_int_equal(request.outputs[0].dtype, DK_FP16);
    assert_int_equal(request.outputs[0].bytes, 6);
    assert_int_equal(request.outputs[1].dtype, DK_INT32);
    assert_int_equal(request.outputs[1].bytes, 8);
}

static void test_shared_memory_must_hold_the_output(void **state)
{
    (void)state;
    struct dk_oip_request request;
    struct dk_error error;
    assert_int_equal(check(ASKING("{\"name\":\"logits\",\"parameters\":{\"shared_memory_region\":\"r\","
                                  "\"shared_memory_byte_size\":12}}"),
                           &request, &error),
                     DK_OK);
    refuse(ASKING("{\"name\":\"logits\",\"parameters\":{\"shared_memory_region\":\"r\","
                  "\"shared_memory_byte_size\":11}}"),
           DK_BAD_VALUE,
           "shared_memory_byte_size of output \"logits\": expected at least 12 for 1 rows, found 11");
}

static void test_raw_body_is_the_one_tensor(void **state)
{
    (void)state;
    struct dk_oip_request request;
    struct dk_error error;
    memset(&request, 0x55, sizeof request);
    assert_int_equal(dk_oip_request_init_raw(&request, &model, 24, &error), DK_OK);
    assert_true(request.rows == 3 && request.input_count == 1 && request.binary_bytes == 24);
    assert_string_equal(request.inputs[0].name, "x");
    assert_int_equal(request.inputs[0].dtype, DK_BF16);
    assert_int_equal(request.inputs[0].source, DK_OIP_SOURCE_BINARY);
    assert_true(request.inputs[0].shape[0] == 3 && request.inputs[0].shape[1] == 4);
    assert_true(request.inputs[0].count == 12 && request.inputs[0].binary_offset == 0);
    assert_int_equal(request.output_count, 2);
    assert_int_equal(request.outputs[0].kind, DK_OIP_OUTPUT_BINARY);
    assert_int_equal(request.outputs[0].bytes, 36);
    assert_false(request.has_id);
    struct dk_oip_framing framing = {.kind = DK_OIP_RAW};
    assert_int_equal(dk_oip_request_check_binary(&request, &framing, 24, &error), DK_OK);
    assert_int_equal(dk_oip_request_init_raw(&request, &model, 0, &error), DK_OK);
    assert_true(request.rows == 0);
    assert_int_equal(dk_oip_request_init_raw(&request, &model, 25, &error), DK_BAD_SHAPE);
    assert_string_equal(error.message,
                        "raw body: expected up to 16777216 rows of 8 bytes (4 of BF16) for model "
                        "\"gate\", found 25 bytes");
    assert_int_equal(dk_oip_request_init_raw(&request, &model, (uint64_t)8 * (DK_MAX_M + 1), &error),
                     DK_BAD_SHAPE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header_length_is_a_number),
        cmocka_unit_test(test_header_length_is_within_the_body),
        cmocka_unit_test(test_c27_the_binary_part_is_as_long_as_announced),
        cmocka_unit_test(test_inputs_must_be_the_models),
        cmocka_unit_test(test_c23_shapes_must_be_the_models),
        cmocka_unit_test(test_outputs_omitted_means_all),
        cmocka_unit_test(test_outputs_listed_are_returned_in_that_order),
        cmocka_unit_test(test_output_datatype_is_of_float_outputs),
        cmocka_unit_test(test_shared_memory_must_hold_the_output),
        cmocka_unit_test(test_raw_body_is_the_one_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
