/* test_oip_request.c: members of an infer request: what is read, ignored and refused. */
#include "tests/unit/proto/oip_parse.h"

#define WITH_PARAMETERS(text) "{\"parameters\":{" text "},\"inputs\":[{" OIP_X "," OIP_DATA "}]}"

static void test_every_member_is_read(void **state)
{
    (void)state;
    struct dk_oip_request request;
    oip_accept(
        "{\"id\":\"r-1 \\u00e9\",\"parameters\":{\"priority\":3,\"timeout\":1500,"
        "\"binary_data_output\":true,\"output_datatype\":\"BF16\"},"
        "\"inputs\":[{\"name\":\"x\",\"shape\":[2,3],\"datatype\":\"FP16\",\"data\":[[1,2,3],[4,5,6]]},"
        "{\"name\":\"y\",\"shape\":[2,3],\"datatype\":\"BF16\",\"parameters\":{\"binary_data_size\":12}},"
        "{\"name\":\"z\",\"shape\":[5],\"datatype\":\"FP32\",\"parameters\":{\"binary_data_size\":20}},"
        "{\"name\":\"w\",\"shape\":[1],\"datatype\":\"FP32\",\"parameters\":{\"shared_memory_region\":"
        "\"in.0\",\"shared_memory_byte_size\":4,\"shared_memory_offset\":8}}],"
        "\"outputs\":[{\"name\":\"logits\"},{\"name\":\"b\",\"parameters\":{\"binary_data\":true}},"
        "{\"name\":\"s\",\"parameters\":{\"shared_memory_region\":\"out\",\"shared_memory_byte_size\":"
        "64}}]}",
        &request);
    assert_true(request.has_id);
    assert_string_equal(request.id, "r-1 \xC3\xA9");
    assert_true(request.priority == 3 && request.timeout_us == 1500);
    assert_true(request.is_output_binary && request.has_output_dtype);
    assert_int_equal(request.output_dtype, DK_BF16);
    assert_int_equal(request.input_count, 4);
    assert_int_equal(request.inputs[0].source, DK_OIP_SOURCE_JSON);
    assert_int_equal(request.inputs[0].dtype, DK_FP16);
    assert_int_equal(request.inputs[0].rank, 2);
    assert_true(request.inputs[0].shape[0] == 2 && request.inputs[0].shape[1] == 3);
    assert_true(request.inputs[0].count == 6 && request.inputs[0].bytes == 12);
    assert_int_equal(request.inputs[1].source, DK_OIP_SOURCE_BINARY);
    assert_true(request.inputs[1].binary_offset == 0);
    assert_true(request.inputs[2].binary_offset == 12);
    assert_int_equal(request.binary_bytes, 32);
    assert_int_equal(request.inputs[3].source, DK_OIP_SOURCE_SHARED_MEMORY);
    assert_string_equal(request.inputs[3].shared_memory.region, "in.0");
    assert_true(request.inputs[3].shared_memory.offset == 8);
    assert_true(request.inputs[3].shared_memory.byte_size == 4);
    assert_int_equal(request.output_count, 3);
    assert_string_equal(request.outputs[0].name, "logits");
    assert_int_equal(request.outputs[0].kind, DK_OIP_OUTPUT_JSON);
    assert_int_equal(request.outputs[1].kind, DK_OIP_OUTPUT_BINARY);
    assert_int_equal(request.outputs[2].kind, DK_OIP_OUTPUT_SHARED_MEMORY);
    assert_string_equal(request.outputs[2].shared_memory.region, "out");
    assert_true(request.outputs[2].shared_memory.byte_size == 64);
}

static void test_defaults(void **state)
{
    (void)state;
    struct dk_oip_request request;
    memset(&request, 0x55, sizeof request);
    oip_accept(OIP_GOOD, &request);
    assert_false(request.has_id || request.is_output_binary || request.has_output_dtype);
    assert_true(request.priority == 0 && request.timeout_us == 0);
    assert_true(request.input_count == 1 && request.output_count == 0 && request.binary_bytes == 0);
    oip_accept("{\"inputs\":[{" OIP_X "," OIP_DATA "}],\"outputs\":[]}", &request);
    assert_int_equal(request.output_count, 0);
}

static void test_what_the_protocol_does_not_name_is_ignored(void **state)
{
    (void)state;
    struct dk_oip_request request;
    oip_accept("{\"model_name\":\"m\",\"extra\":{\"a\":[1,{\"b\":null}]},\"inputs\":[{" OIP_X "," OIP_DATA
               ",\"note\":[null],\"parameters\":{\"content_type\":\"np\",\"f\":1.5e3,\"t\":false}}],"
               "\"outputs\":[{\"name\":\"logits\",\"datatype\":7,\"parameters\":{\"binary_data\":false,"
               "\"binary_data_size\":\"odd\"}}],\"parameters\":{\"sequence_id\":-5,\"s\":\"x\",\"b\":true}}",
               &request);
    assert_int_equal(request.output_count, 1);
    assert_int_equal(request.outputs[0].kind, DK_OIP_OUTPUT_JSON);
}

static void test_escaped_keys_are_the_same_keys(void **state)
{
    (void)state;
    struct dk_oip_request request;
    oip_accept("{\"\\u0069d\":\"a\",\"inputs\":[{\"n\\u0061me\":\"x\",\"shape\":[1,4],\"datatype\":"
               "\"F\\u005032\",\"d\\u0061ta\":[1,2,3,4]}]}",
               &request);
    assert_string_equal(request.id, "a");
    assert_string_equal(request.inputs[0].name, "x");
    assert_int_equal(request.inputs[0].dtype, DK_FP32);
    oip_refuse(WITH_PARAMETERS("\"tri\\u0074on_x\":1"), DK_BAD_REQUEST, "parameters.triton_x: ");
}

static void test_wrong_types_are_refused_by_name(void **state)
{
    (void)state;
    oip_refuse("{\"id\":1,\"inputs\":[]}", DK_BAD_REQUEST, "id: expected a string, found 1");
    oip_refuse("{\"id\":null,\"inputs\":[]}", DK_BAD_REQUEST, "id: expected a string, found null");
    oip_refuse("{\"parameters\":[1]}", DK_BAD_REQUEST, "parameters: expected an object, found an array");
    oip_refuse("{\"inputs\":{}}", DK_BAD_REQUEST, "inputs: expected an array of inputs, found an object");
    oip_refuse("{\"inputs\":[3]}", DK_BAD_REQUEST, "inputs[0]: expected an object, found 3");
    oip_refuse("{\"inputs\":[{\"name\":[]}]}", DK_BAD_REQUEST,
               "inputs[0].name: expected a string, found an array");
    oip_refuse("{\"inputs\":[{\"datatype\":null}]}", DK_BAD_REQUEST,
               "inputs[0].datatype: expected a string, found null");
    oip_refuse("{\"inputs\":[{\"parameters\":\"p\"}]}", DK_BAD_REQUEST,
               "inputs[0].parameters: expected an object, found \"p\"");
    oip_refuse("{\"inputs\":[{" OIP_X "," OIP_DATA "}],\"outputs\":{}}", DK_BAD_REQUEST,
               "outputs: expected an array of outputs, found an object");
    oip_refuse("{\"outputs\":[\"logits\"]}", DK_BAD_REQUEST,
               "outputs[0]: expected an object, found \"logits\"");
    oip_refuse("{\"outputs\":[{\"name\":\"a\"},{\"name\":true}]}", DK_BAD_REQUEST,
               "outputs[1].name: expected a string, found true");
    oip_refuse("{\"outputs\":[{\"name\":\"a\",\"parameters\":{\"binary_data\":1}}]}", DK_BAD_REQUEST,
               "outputs[0].parameters.binary_data: expected true or false, found 1");
}

static void test_missing_members_are_refused_by_name(void **state)
{
    (void)state;
    oip_refuse("{}", DK_BAD_REQUEST, "inputs is missing");
    oip_refuse("{\"inputs\":[]}", DK_BAD_REQUEST, "inputs: expected at least one input, found none");
    oip_refuse("{\"inputs\":[{}]}", DK_BAD_REQUEST, "inputs[0].name is missing");
    oip_refuse("{\"inputs\":[{\"name\":\"x\",\"shape\":[1]}]}", DK_BAD_REQUEST,
               "inputs[0].datatype is missing");
    oip_refuse("{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\"}]}", DK_BAD_REQUEST,
               "inputs[0].shape is missing");
    oip_refuse("{\"inputs\":[{" OIP_X "," OIP_DATA "}],\"outputs\":[{}]}", DK_BAD_REQUEST,
               "outputs[0].name is missing");
}

static void test_integers_of_64_bits_are_exact(void **state)
{
    (void)state;
    struct dk_oip_request request;
    oip_accept(WITH_PARAMETERS("\"priority\":18446744073709551615,\"timeout\":9007199254740993"), &request);
    assert_true(request.priority == UINT64_MAX);
    assert_true(request.timeout_us == 9007199254740993U);
    oip_refuse(WITH_PARAMETERS("\"priority\":18446744073709551616"), DK_BAD_REQUEST,
               "parameters.priority: expected an unsigned integer below 2^64, found 18446744073709551616");
    static const char *const refused[] = {"-1", "-0", "1.0", "1e3", "\"1\"", "true", "null", "{}"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char body[256];
        (void)snprintf(body, sizeof body, WITH_PARAMETERS("\"timeout\":%s"), refused[i]);
        oip_refuse(body, DK_BAD_REQUEST, "parameters.timeout: expected an unsigned integer");
    }
}

static void test_parameters_have_scalar_values_and_no_reserved_names(void **state)
{
    (void)state;
    oip_refuse(WITH_PARAMETERS("\"triton_enable_empty_final_response\":true"), DK_BAD_REQUEST, "reserved");
    oip_refuse(WITH_PARAMETERS("\"p\":null"), DK_BAD_REQUEST,
               "parameters.p: expected a string, a number or a boolean, found null");
    oip_refuse(WITH_PARAMETERS("\"p\":[1]"), DK_BAD_REQUEST, "found an array");
    oip_refuse(WITH_PARAMETERS("\"p\":{}"), DK_BAD_REQUEST, "found an object");
    oip_refuse(WITH_PARAMETERS("\"binary_data_output\":\"true\""), DK_BAD_REQUEST,
               "parameters.binary_data_output: expected true or false, found \"true\"");
    oip_refuse(WITH_PARAMETERS("\"output_datatype\":\"INT32\""), DK_BAD_DTYPE,
               "parameters.output_datatype: expected \"FP32\", \"BF16\" or \"FP16\", found \"INT32\"");
    oip_refuse("{\"inputs\":[{" OIP_X "," OIP_DATA ",\"parameters\":{\"triton_x\":1}}]}", DK_BAD_REQUEST,
               "inputs[0].parameters.triton_x: ");
    struct dk_oip_request request;
    oip_accept(WITH_PARAMETERS("\"triton\":1,\"Triton_x\":2"), &request);
}

static void test_ids_are_echoable(void **state)
{
    (void)state;
    struct dk_oip_request request;
    char body[2048];
    oip_accept("{\"id\":\"\",\"inputs\":[{" OIP_X "," OIP_DATA "}]}", &request);
    assert_true(request.has_id && request.id[0] == '\0');
    for (int length = 256; length <= 257; length++) {
        (void)snprintf(body, sizeof body, "{\"id\":\"%0*d\",\"inputs\":[{" OIP_X "," OIP_DATA "}]}", length,
                       7);
        if (length == 256) {
            oip_accept(body, &request);
            assert_int_equal(strlen(request.id), 256);
        } else {
            oip_refuse(body, DK_BAD_VALUE, "id: expected a string of at most 256 bytes, found \"000");
        }
    }
    oip_refuse("{\"id\":\"a\\nb\",\"inputs\":[]}", DK_BAD_VALUE, "id: expected a string without control");
    oip_refuse("{\"id\":\"\\u0085\",\"inputs\":[]}", DK_BAD_VALUE, "id: ");
}

static void test_names_are_bounded_and_used_once(void **state)
{
    (void)state;
    char body[512];
    oip_refuse("{\"inputs\":[{" OIP_X "," OIP_DATA "},{" OIP_X "," OIP_DATA "}]}", DK_BAD_REQUEST,
               "inputs[1]: the name \"x\" is used already by element 0");
    oip_refuse("{\"inputs\":[{" OIP_X "," OIP_DATA "}],\"outputs\":[{\"name\":\"a\"},{\"name\":\"b\"},"
               "{\"name\":\"a\"}]}",
               DK_BAD_REQUEST, "outputs[2]: the name \"a\" is used already by element 0");
    (void)snprintf(body, sizeof body, "{\"inputs\":[{\"name\":\"%065d\"}]}", 1);
    oip_refuse(body, DK_BAD_VALUE, "inputs[0].name: expected a string of at most 64 bytes");
}

static void test_lists_are_bounded(void **state)
{
    (void)state;
    char body[4096] = "{\"inputs\":[";
    for (int i = 0; i < 9; i++) {
        size_t length = strlen(body);
        (void)snprintf(body + length, sizeof body - length,
                       "%s{\"name\":\"x%d\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1]}",
                       i == 0 ? "" : ",", i);
    }
    strcat(body, "]}");
    oip_refuse(body, DK_BAD_REQUEST, "inputs: expected at most 8 inputs");
    strcpy(body, "{\"outputs\":[");
    for (int i = 0; i < 9; i++) {
        size_t length = strlen(body);
        (void)snprintf(body + length, sizeof body - length, "%s{\"name\":\"y%d\"}", i == 0 ? "" : ",", i);
    }
    strcat(body, "]}");
    oip_refuse(body, DK_BAD_REQUEST, "outputs: expected at most 8 outputs");
}

static void test_c31_deep_nesting_is_refused(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    static char body[DEPTH + 128];
    static const char *const heads[] = {
        "{\"inputs\":[{\"name\":\"x\",\"shape\":[1,4],\"datatype\":\"FP32\",\"data\":",
        "{\"parameters\":{\"p\":", "{\"extra\":"};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        size_t length = strlen(heads[i]);
        memcpy(body, heads[i], length);
        memset(body + length, '[', DEPTH);
        body[length + DEPTH] = '\0';
        oip_refuse(body, i == 0 ? DK_BAD_SHAPE : DK_BAD_JSON, "deeper than");
    }
}

/* What the daemon sees at the opening bracket of the data, when it decides how to keep the numbers. */
struct peek {
    struct dk_json_reader *reader;
    int results[4]; /* per input: a dtype, or -1 */
};

static dk_status peek_begin(void *context, const struct dk_json_tensor *tensor, struct dk_error *error)
{
    (void)error;
    struct peek *peek = context;
    dk_dtype dtype;
    bool is_known = dk_oip_peek_datatype(peek->reader, tensor->indices[0], &dtype);
    peek->results[tensor->indices[0]] = is_known ? (int)dtype : -1;
    return DK_OK;
}

static void test_datatype_is_known_before_the_data_when_it_was_sent_before(void **state)
{
    (void)state;
    struct peek peek = {.results = {7, 7, 7, 7}};
    const struct dk_json_sink sink = {.context = &peek, .begin = peek_begin};
    struct dk_error error;
    static const char body[] =
        "{\"id\":\"{\\\"datatype\",\"inputs\":[{\"datatype\":\"BF16\",\"n\":{\"datatype\":\"FP32\"},\"data\":"
        "[1]},"
        "{\"data\":[2],\"datatype\":\"FP16\"},{\"datatyp\\u0065\":\"FP16\",\"data\":[[3]]},"
        "{\"datatype\":\"BYTES\",\"data\":[4]}]}";
    assert_int_equal(dk_json_reader_new(dk_oip_paths, DK_OIP_PATH_COUNT, &sink, &peek.reader), DK_OK);
    dk_dtype untouched = DK_INT32;
    assert_false(dk_oip_peek_datatype(peek.reader, 0, &untouched));
    for (size_t i = 0; i < sizeof body - 1; i++) {
        assert_int_equal(dk_json_reader_feed(peek.reader, body + i, 1, &error), DK_OK);
    }
    assert_int_equal(peek.results[0], DK_BF16);
    assert_int_equal(peek.results[1], -1);
    assert_int_equal(peek.results[2], DK_FP16);
    assert_int_equal(peek.results[3], -1);
    assert_false(dk_oip_peek_datatype(peek.reader, 4, &untouched));
    assert_int_equal(untouched, DK_INT32);
    dk_json_reader_free(peek.reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_member_is_read),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_what_the_protocol_does_not_name_is_ignored),
        cmocka_unit_test(test_escaped_keys_are_the_same_keys),
        cmocka_unit_test(test_wrong_types_are_refused_by_name),
        cmocka_unit_test(test_missing_members_are_refused_by_name),
        cmocka_unit_test(test_integers_of_64_bits_are_exact),
        cmocka_unit_test(test_parameters_have_scalar_values_and_no_reserved_names),
        cmocka_unit_test(test_ids_are_echoable),
        cmocka_unit_test(test_names_are_bounded_and_used_once),
        cmocka_unit_test(test_lists_are_bounded),
        cmocka_unit_test(test_c31_deep_nesting_is_refused),
        cmocka_unit_test(test_datatype_is_known_before_the_data_when_it_was_sent_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
