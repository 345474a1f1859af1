/* test_json_tensor.c: number arrays at declared paths: shapes, values, runs, and what is refused. */
#include "tests/unit/proto/json_feed.h"

#include <stdio.h>

static struct feed_result result;

static void expect_shape(const char *array, uint32_t rank, const uint64_t *shape)
{
    char body[256];
    (void)snprintf(body, sizeof body, "{\"x\":%s}", array);
    feed_every_way(body, strlen(body), &result);
    if (result.status != DK_OK) {
        fail_msg("refused: %s: %s", body, result.message);
    }
    assert_int_equal(result.tensor_count, 1);
    assert_int_equal(result.tensors[0].rank, rank);
    uint64_t count = 1;
    for (uint32_t i = 0; i < rank; i++) {
        assert_int_equal(result.tensors[0].shape[i], shape[i]);
        count *= shape[i];
    }
    assert_int_equal(result.tensors[0].count, count);
    assert_int_equal(result.value_count, count);
    assert_int_equal(result.begin_count, 1);
    assert_int_equal(result.end_count, 1);
    for (size_t i = 0; i < result.value_count; i++) {
        assert_true(result.values[i] == (double)(i + 1));
    }
    assert_string_equal(result.skeleton, "{\"x\":null}");
}

static void test_shapes(void **state)
{
    (void)state;
    expect_shape("[1,2,3]", 1, (uint64_t[]){3});
    expect_shape("[ 1 , 2\n,\t3 ]", 1, (uint64_t[]){3});
    expect_shape("[1.0,2e0,0.3E+1,400e-2]", 1, (uint64_t[]){4});
    expect_shape("[[1,2,3],[4,5,6]]", 2, (uint64_t[]){2, 3});
    expect_shape("[[1],[2]]", 2, (uint64_t[]){2, 1});
    expect_shape("[[[1,2],[3,4]],[[5,6],[7,8]],[[9,10],[11,12]]]", 3, (uint64_t[]){3, 2, 2});
    expect_shape("[[[[[[[[1]]]]]]]]", 8, (uint64_t[]){1, 1, 1, 1, 1, 1, 1, 1});
}

static void test_c13_empty_shapes(void **state)
{
    (void)state;
    expect_shape("[]", 1, (uint64_t[]){0});
    expect_shape("[ ]", 1, (uint64_t[]){0});
    expect_shape("[[]]", 2, (uint64_t[]){1, 0});
    expect_shape("[[],[],[]]", 2, (uint64_t[]){3, 0});
    expect_shape("[[[],[]]]", 3, (uint64_t[]){1, 2, 0});
}

static void expect_refused(const char *array, dk_status status, const char *part)
{
    char body[256];
    (void)snprintf(body, sizeof body, "{\"x\":%s}", array);
    feed_every_way(body, strlen(body), &result);
    if (result.status != status || strstr(result.message, part) == NULL) {
        fail_msg("%s: got %s \"%s\", expected %s with \"%s\"", array, dk_status_name(result.status),
                 result.message, dk_status_name(status), part);
    }
    assert_int_equal(result.end_count, 0);
}

static void test_c25_ragged_arrays_name_row_and_counts(void **state)
{
    (void)state;
    expect_refused("[[1,2],[3]]", DK_BAD_SHAPE, "x[1]: expected 2 values, found 1");
    expect_refused("[[1,2],[3,4,5,6]]", DK_BAD_SHAPE, "x[1]: expected 2 values, found 4");
    expect_refused("[[1,2],[3,4],[]]", DK_BAD_SHAPE, "x[2]: expected 2 values, found 0");
    expect_refused("[[],[1]]", DK_BAD_SHAPE, "x[1]: expected 0 values, found 1");
    expect_refused("[[[1],[2]],[[3]]]", DK_BAD_SHAPE, "x[1]: expected 2 rows, found 1");
    expect_refused("[[[1],[2]],[[3],[4],[5]]]", DK_BAD_SHAPE, "x[1]: expected 2 rows, found 3");
    expect_refused("[[[1],[2]],[[3],[4,5]]]", DK_BAD_SHAPE, "x[1][1]: expected 1 values, found 2");
    expect_refused("[[[1]],[]]", DK_BAD_SHAPE, "x[1]: expected 1 rows, found 0");
}

static void test_c25_numbers_must_be_at_one_depth(void **state)
{
    (void)state;
    expect_refused("[1,[2]]", DK_BAD_SHAPE, "x[1]: expected a number, found an array");
    expect_refused("[[1],2]", DK_BAD_SHAPE, "x[1]: expected an array, found a number");
    expect_refused("[[1],[[2]]]", DK_BAD_SHAPE, "x[1][0]: expected a number, found an array");
    expect_refused("[[[1]],[2]]", DK_BAD_SHAPE, "x[1][0]: expected an array, found a number");
    expect_refused("[[],1]", DK_BAD_SHAPE, "x[1]: expected an array, found a number");
    expect_refused("[[],[[]]]", DK_BAD_SHAPE, "x[1][0]: expected a number, found an array");
    expect_refused("[[[[[[[[[1]]]]]]]]]", DK_BAD_SHAPE, "x: arrays are nested deeper than 8");
}

static void test_other_values_in_a_tensor_are_refused(void **state)
{
    (void)state;
    expect_refused("[null]", DK_BAD_JSON, "found 'n'");
    expect_refused("[1,true]", DK_BAD_JSON, "x[1]: expected a number or '[', found 't'");
    expect_refused("[\"1\"]", DK_BAD_JSON, "found '\"'");
    expect_refused("[{}]", DK_BAD_JSON, "found '{'");
    expect_refused("[[1],{}]", DK_BAD_JSON, "found '{'");
    expect_refused("[1,NaN]", DK_BAD_JSON, "found 'N'");
    expect_refused("[1,Infinity]", DK_BAD_JSON, "found 'I'");
    expect_refused("[1,]", DK_BAD_JSON, "expected a number or '[', found ']'");
    expect_refused("[,1]", DK_BAD_JSON, "found ','");
    expect_refused("[1,,2]", DK_BAD_JSON, "found ','");
    expect_refused("[1 2]", DK_BAD_JSON, "expected ',' or ']', found '2'");
    expect_refused("[1;2]", DK_BAD_JSON, "found ';'");
    expect_refused("[1}", DK_BAD_JSON, "found '}'");
    expect_refused("[[1][2]]", DK_BAD_JSON, "expected ',' or ']', found '['");
    expect_refused("[1\v]", DK_BAD_JSON, "found 0x0B");
    expect_refused("[1e999]", DK_BAD_VALUE, "1e999 is beyond");
    feed("{\"x\":[1]]}", &result);
    assert_int_equal(result.status, DK_BAD_JSON);
    assert_string_equal(result.message, "at byte 8: expected ',' or '}', found ']'");
}

static void test_paths_with_elements_give_their_indices(void **state)
{
    (void)state;
    static const char body[] =
        "{\"inputs\":[{\"name\":\"p\",\"data\":[1,2]},{\"data\":3},{\"d\":[0],\"data\":[[4]]}],"
        "\"a\":[5]}";
    feed_every_way(body, sizeof body - 1, &result);
    assert_int_equal(result.status, DK_OK);
    assert_int_equal(result.tensor_count, 3);
    assert_int_equal(result.tensors[0].path_index, 2);
    assert_int_equal(result.tensors[0].indices[0], 0);
    assert_int_equal(result.tensors[1].path_index, 2);
    assert_int_equal(result.tensors[1].indices[0], 2);
    assert_int_equal(result.tensors[1].rank, 2);
    assert_int_equal(result.tensors[2].path_index, 1);
    assert_string_equal(result.skeleton, "{\"inputs\":[{\"name\":\"p\",\"data\":null},{\"data\":3},"
                                         "{\"d\":[0],\"data\":null}],\"a\":null}");
    static const char ragged[] = "{\"inputs\":[{},{\"data\":[[1],[2,3]]}]}";
    feed_every_way(ragged, sizeof ragged - 1, &result);
    assert_int_equal(result.status, DK_BAD_SHAPE);
    assert_non_null(strstr(result.message, "inputs[1].data[1]: expected 1 values, found 2"));
}

static void test_more_numbers_than_one_run_arrive_in_order(void **state)
{
    (void)state;
    static const size_t rows[] = {1, 2, 3, 4};
    static const size_t columns[] = {511, 512, 513, 1024};
    static char body[64 * 1024];
    for (size_t r = 0; r < 4; r++) {
        for (size_t c = 0; c < 4; c++) {
            size_t length = (size_t)snprintf(body, sizeof body, "{\"a\":[");
            for (size_t i = 0; i < rows[r] * columns[c]; i++) {
                length += (size_t)snprintf(body + length, sizeof body - length, "%s%zu%s",
                                           i % columns[c] == 0 ? (i == 0 ? "[" : ",[") : ",", i,
                                           i % columns[c] == columns[c] - 1 ? "]" : "");
            }
            memcpy(body + length, "]}", 3);
            uint64_t seed = 5;
            feed_split(body, strlen(body), feed_random_parts, &seed, &result);
            assert_int_equal(result.status, DK_OK);
            assert_int_equal(result.value_count, rows[r] * columns[c]);
            assert_int_equal(result.tensors[0].shape[1], columns[c]);
            for (size_t i = 0; i < result.value_count; i++) {
                assert_true(result.values[i] == (double)i);
            }
        }
    }
}

static dk_status refuse_begin(void *context, const struct dk_json_tensor *tensor, struct dk_error *error)
{
    (void)context;
    return dk_fail(error, DK_BUSY, "no slab for path %d", tensor->path_index);
}

static dk_status refuse_silently(void *context, const struct dk_json_tensor *tensor, uint64_t offset,
                                 const double *values, size_t count, struct dk_error *error)
{
    (void)context;
    (void)tensor;
    (void)offset;
    (void)values;
    (void)count;
    (void)error;
    return DK_TOO_LARGE;
}

static void test_an_error_of_the_sink_stops_the_reader(void **state)
{
    (void)state;
    const struct dk_json_sink sinks[] = {{NULL, refuse_begin, NULL, NULL},
                                         {NULL, NULL, refuse_silently, NULL}};
    const dk_status expected[] = {DK_BUSY, DK_TOO_LARGE};
    for (size_t i = 0; i < 2; i++) {
        struct dk_json_reader *reader;
        struct dk_error error = {0};
        const char *skeleton;
        size_t length;
        assert_int_equal(dk_json_reader_new(feed_default_paths, 1, &sinks[i], &reader), DK_OK);
        assert_int_equal(dk_json_reader_feed(reader, "{\"x\":[1]", 8, &error), expected[i]);
        assert_int_equal(error.status, expected[i]);
        assert_string_equal(error.message, i == 0 ? "no slab for path 0" : "");
        assert_int_equal(dk_json_reader_feed(reader, "}", 1, NULL), expected[i]);
        assert_int_equal(dk_json_reader_finish(reader, &skeleton, &length, &error), expected[i]);
        dk_json_reader_free(reader);
    }
}

static void test_without_a_sink_tensors_are_checked_and_dropped(void **state)
{
    (void)state;
    struct dk_json_reader *reader;
    const char *skeleton;
    size_t length;
    assert_int_equal(dk_json_reader_new(feed_default_paths, 1, NULL, &reader), DK_OK);
    assert_int_equal(dk_json_reader_feed(reader, "{\"x\":[1,2]}", 11, NULL), DK_OK);
    assert_int_equal(dk_json_reader_finish(reader, &skeleton, &length, NULL), DK_OK);
    assert_int_equal(dk_json_reader_tensor(reader, 0)->count, 2);
    dk_json_reader_free(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_c13_empty_shapes),
        cmocka_unit_test(test_c25_ragged_arrays_name_row_and_counts),
        cmocka_unit_test(test_c25_numbers_must_be_at_one_depth),
        cmocka_unit_test(test_other_values_in_a_tensor_are_refused),
        cmocka_unit_test(test_paths_with_elements_give_their_indices),
        cmocka_unit_test(test_more_numbers_than_one_run_arrive_in_order),
        cmocka_unit_test(test_an_error_of_the_sink_stops_the_reader),
        cmocka_unit_test(test_without_a_sink_tensors_are_checked_and_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
