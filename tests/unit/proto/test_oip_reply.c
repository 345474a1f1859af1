/* test_oip_reply.c: infer answers: JSON, binary, mixed, and in pieces of every size. */
#include "tests/unit/proto/oip_parse.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>

static const float logits[] = {0.5F, -1.25F, 3.0F, 0.1F, 1e-20F, -0.0F};
static const int32_t ids[] = {7, -1, INT32_MIN, INT32_MAX};

static const struct dk_oip_output json_logits = {
    .name = "logits", .dtype = DK_FP32, .rows = 2, .row_length = 3, .data = logits};
static const struct dk_oip_output binary_ids = {.name = "topk_ids",
                                                .dtype = DK_INT32,
                                                .rows = 2,
                                                .row_length = 2,
                                                .data = ids,
                                                .kind = DK_OIP_OUTPUT_BINARY};

/* Write the answer in pieces of `size` bytes, each into a block of its own. */
static size_t write_all(const struct dk_oip_reply *reply, size_t size, char *out, size_t out_size)
{
    struct dk_oip_reply_writer writer;
    dk_oip_reply_writer_init(&writer, reply);
    size_t length = 0;
    for (;;) {
        char *piece = malloc(size);
        assert_non_null(piece);
        size_t written = dk_oip_reply_writer_next(&writer, piece, size);
        assert_true(written <= size && length + written <= out_size);
        memcpy(out + length, piece, written);
        free(piece);
        length += written;
        if (written == 0) {
            break;
        }
    }
    assert_int_equal(dk_oip_reply_writer_next(&writer, out + length, out_size - length), 0);
    dk_oip_reply_writer_deinit(&writer);
    return length;
}

static void expect_text(const struct dk_oip_reply *reply, const char *json, const void *tail,
                        size_t tail_bytes)
{
    char out[4096];
    size_t length = write_all(reply, 512, out, sizeof out - 512);
    assert_int_equal(dk_oip_reply_json_bytes(reply), strlen(json));
    assert_int_equal(dk_oip_reply_binary_bytes(reply), tail_bytes);
    assert_int_equal(length, strlen(json) + tail_bytes);
    if (memcmp(out, json, strlen(json)) != 0) {
        fail_msg("expected %s\nfound    %.*s", json, (int)strlen(json), out);
    }
    if (tail_bytes > 0) {
        assert_memory_equal(out + strlen(json), tail, tail_bytes);
    }
}

static void test_json_output_is_flat(void **state)
{
    (void)state;
    const struct dk_oip_reply reply = {
        .model_name = "gate", .id = "a\"b", .outputs = &json_logits, .output_count = 1};
    expect_text(&reply,
                "{\"id\":\"a\\\"b\",\"model_name\":\"gate\",\"model_version\":\"1\",\"outputs\":[{\"name\":"
                "\"logits\",\"datatype\":\"FP32\",\"shape\":[2,3],\"data\":[0.5,-1.25,3,0.1,1e-20,-0]}]}",
                NULL, 0);
}

static void test_binary_output_follows_the_json(void **state)
{
    (void)state;
    const struct dk_oip_reply reply = {.model_name = "gate", .outputs = &binary_ids, .output_count = 1};
    static const char json[] =
        "{\"model_name\":\"gate\",\"model_version\":\"1\",\"outputs\":[{\"name\":\"topk_ids\",\"datatype\":"
        "\"INT32\",\"shape\":[2,2],\"parameters\":{\"binary_data_size\":16}}]}";
    expect_text(&reply, json, ids, sizeof ids);
    struct dk_json_text text = {0};
    dk_oip_reply_json(&text, &reply);
    assert_string_equal(text.data, json);
    dk_json_text_free(&text);
}

static void test_shared_memory_output_has_no_parameters(void **state)
{
    (void)state;
    struct dk_oip_output output = json_logits;
    output.kind = DK_OIP_OUTPUT_SHARED_MEMORY;
    output.data = NULL;
    const struct dk_oip_reply reply = {.model_name = "g", .id = "", .outputs = &output, .output_count = 1};
    expect_text(&reply,
                "{\"id\":\"\",\"model_name\":\"g\",\"model_version\":\"1\",\"outputs\":[{\"name\":\"logits\","
                "\"datatype\":\"FP32\",\"shape\":[2,3]}]}",
                NULL, 0);
}

static void test_mixed_outputs_keep_their_order(void **state)
{
    (void)state;
    struct dk_oip_output shared = json_logits;
    struct dk_oip_output second = binary_ids;
    struct dk_oip_output json_ids = binary_ids;
    char tail[2 * sizeof ids];
    memcpy(tail, ids, sizeof ids);
    memcpy(tail + sizeof ids, ids, sizeof ids);
    shared.kind = DK_OIP_OUTPUT_SHARED_MEMORY;
    shared.name = "s";
    second.name = "t";
    json_ids.kind = DK_OIP_OUTPUT_JSON;
    json_ids.name = "u";
    const struct dk_oip_output outputs[] = {binary_ids, json_logits, shared, second, json_ids};
    const struct dk_oip_reply reply = {.model_name = "g", .outputs = outputs, .output_count = 5};
    expect_text(
        &reply,
        "{\"model_name\":\"g\",\"model_version\":\"1\",\"outputs\":["
        "{\"name\":\"topk_ids\",\"datatype\":\"INT32\",\"shape\":[2,2],\"parameters\":{"
        "\"binary_data_size\":16}},"
        "{\"name\":\"logits\",\"datatype\":\"FP32\",\"shape\":[2,3],\"data\":[0.5,-1.25,3,0.1,1e-20,-0]},"
        "{\"name\":\"s\",\"datatype\":\"FP32\",\"shape\":[2,3]},"
        "{\"name\":\"t\",\"datatype\":\"INT32\",\"shape\":[2,2],\"parameters\":{"
        "\"binary_data_size\":16}},"
        "{\"name\":\"u\",\"datatype\":\"INT32\",\"shape\":[2,2],\"data\":[7,-1,-2147483648,2147483647]}]}",
        tail, sizeof tail);
}

static void test_c13_zero_rows(void **state)
{
    (void)state;
    struct dk_oip_output outputs[] = {json_logits, binary_ids};
    outputs[0].rows = outputs[1].rows = 0;
    outputs[0].data = outputs[1].data = NULL;
    const struct dk_oip_reply reply = {.model_name = "g", .outputs = outputs, .output_count = 2};
    expect_text(&reply,
                "{\"model_name\":\"g\",\"model_version\":\"1\",\"outputs\":["
                "{\"name\":\"logits\",\"datatype\":\"FP32\",\"shape\":[0,3],\"data\":[]},"
                "{\"name\":\"topk_ids\",\"datatype\":\"INT32\",\"shape\":[0,2],\"parameters\":{"
                "\"binary_data_size\":0}}]}",
                NULL, 0);
}

static void test_non_finite_values_are_null_in_json_and_exact_in_binary(void **state)
{
    (void)state;
    const float values[] = {NAN, INFINITY, -INFINITY, 1.0F};
    struct dk_oip_output output = {.name = "y", .dtype = DK_FP32, .rows = 1, .row_length = 4, .data = values};
    const struct dk_oip_reply reply = {.model_name = "g", .outputs = &output, .output_count = 1};
    expect_text(
        &reply,
        "{\"model_name\":\"g\",\"model_version\":\"1\",\"outputs\":[{\"name\":\"y\",\"datatype\":\"FP32\","
        "\"shape\":[1,4],\"data\":[null,null,null,1]}]}",
        NULL, 0);
    output.kind = DK_OIP_OUTPUT_BINARY;
    char out[4096];
    size_t length = write_all(&reply, 512, out, sizeof out - 512);
    assert_memory_equal(out + length - sizeof values, values, sizeof values);
}

/* 3.140625 is 49 40 as BF16 and 48 42 as FP16: the two must never be taken for each other. */
static void test_c28_bf16_and_fp16_are_told_apart(void **state)
{
    (void)state;
    static const unsigned char bytes[][2] = {{0x49, 0x40}, {0x48, 0x42}};
    static const dk_dtype dtypes[] = {DK_BF16, DK_FP16};
    for (int i = 0; i < 2; i++) {
        struct dk_oip_output output = {
            .name = "y", .dtype = dtypes[i], .rows = 1, .row_length = 1, .data = bytes[i]};
        const struct dk_oip_reply reply = {.model_name = "g", .outputs = &output, .output_count = 1};
        char json[256];
        (void)snprintf(
            json, sizeof json,
            "{\"model_name\":\"g\",\"model_version\":\"1\",\"outputs\":[{\"name\":\"y\",\"datatype\":"
            "\"%s\",\"shape\":[1,1],\"data\":[3.140625]}]}",
            i == 0 ? "BF16" : "FP16");
        expect_text(&reply, json, NULL, 0);
        output.kind = DK_OIP_OUTPUT_BINARY;
        char out[4096];
        size_t length = write_all(&reply, 512, out, sizeof out - 512);
        assert_memory_equal(out + length - 2, bytes[i], 2);
    }
}

static void test_pieces_of_any_size_are_the_same_bytes(void **state)
{
    (void)state;
    enum { ROWS = 40, LENGTH = 25, OUT = 64 * 1024 };
    static float values[ROWS * LENGTH];
    static char expected[OUT];
    static char found[OUT];
    for (int i = 0; i < ROWS * LENGTH; i++) {
        values[i] = (float)i * 0.37F - 100.0F;
    }
    struct dk_oip_output outputs[] = {
        {.name = "a", .dtype = DK_FP32, .rows = ROWS, .row_length = LENGTH, .data = values},
        {.name = "b",
         .dtype = DK_FP32,
         .rows = ROWS,
         .row_length = LENGTH,
         .data = values,
         .kind = DK_OIP_OUTPUT_BINARY}};
    const struct dk_oip_reply reply = {.model_name = "g", .id = "1", .outputs = outputs, .output_count = 2};
    size_t length = write_all(&reply, OUT / 2, expected, OUT - OUT / 2);
    size_t json_bytes = dk_oip_reply_json_bytes(&reply);
    assert_int_equal(json_bytes + sizeof values, length);
    for (size_t size = 256; size < 700; size += 7) {
        assert_int_equal(write_all(&reply, size, found, OUT - 700), length);
        assert_memory_equal(found, expected, length);
    }
    cJSON *root = cJSON_ParseWithLength(expected, json_bytes);
    assert_non_null(root);
    const cJSON *data =
        cJSON_GetObjectItem(cJSON_GetArrayItem(cJSON_GetObjectItem(root, "outputs"), 0), "data");
    assert_int_equal(cJSON_GetArraySize(data), ROWS * LENGTH);
    int i = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, data)
    {
        assert_true((float)item->valuedouble == values[i++]);
    }
    cJSON_Delete(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_output_is_flat),
        cmocka_unit_test(test_binary_output_follows_the_json),
        cmocka_unit_test(test_shared_memory_output_has_no_parameters),
        cmocka_unit_test(test_mixed_outputs_keep_their_order),
        cmocka_unit_test(test_c13_zero_rows),
        cmocka_unit_test(test_non_finite_values_are_null_in_json_and_exact_in_binary),
        cmocka_unit_test(test_c28_bf16_and_fp16_are_told_apart),
        cmocka_unit_test(test_pieces_of_any_size_are_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
