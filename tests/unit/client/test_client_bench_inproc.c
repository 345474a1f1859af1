/* test_client_bench_inproc.c: the times that the kernels' own program writes, whole and cut short. */
#include "tests/unit/client/check.h"

#include "client/bench_inproc.h"

#define HEADER "{\"version\":\"1\",\"backend\":\"cpu\",\"device\":\"d\",\"isa\":\"avx2\"}\n"

/* A pipe that holds `header` and `records`, and ends. */
static int make_pipe(const char *header, const uint64_t (*records)[2], size_t bytes)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], header, strlen(header)), strlen(header));
    assert_int_equal(write(ends[1], records, bytes), bytes);
    close(ends[1]);
    return ends[0];
}

static dk_status read_run(const char *header, const uint64_t (*records)[2], size_t bytes,
                          struct dk_bench_server *server, struct dk_load_result *result,
                          struct dk_error *error)
{
    int fd = make_pipe(header, records, bytes);
    memset(result, 0, sizeof *result);
    dk_status status = dk_bench_inproc_read(fd, server, result, error);
    close(fd);
    return status;
}

static void test_times_unsent_calls_and_the_header_are_read(void **state)
{
    (void)state;
    static struct dk_load_result result;
    static const uint64_t records[][2] = {{200, 150}, {100, 90}, {5000, UINT64_MAX}, {UINT64_MAX, 77}};
    struct dk_bench_server server = {0};
    struct dk_error error = {0};
    assert_int_equal(read_run(HEADER, records, sizeof records, &server, &result, &error), DK_OK);
    assert_string_equal(server.backend, "cpu");
    assert_string_equal(server.isa, "avx2");
    assert_int_equal(result.codes[DK_OK], 2);
    assert_int_equal(result.answered_count, 2);
    assert_int_equal(result.unsent_count, 1);
    assert_int_equal(result.max_late_ns, 77);
    assert_int_equal(result.latency.count, 3);
    assert_int_equal(result.latency.max_ns, 5000);
    assert_int_equal(result.kernel.count, 2);
    assert_int_equal(result.above_kernel.min_ns, 10);
    assert_int_equal(result.above_kernel.max_ns, 50);
}

static void test_a_run_that_was_cut_short_is_an_error(void **state)
{
    (void)state;
    static struct dk_load_result result;
    static const uint64_t records[][2] = {{200, 150}, {100, 90}, {UINT64_MAX, 0}};
    struct dk_bench_server server;
    struct dk_error error = {0};
    assert_int_equal(read_run(HEADER, records, 32, &server, &result, &error), DK_BAD_FILE);
    check_contains(error.message, "before its time");
    assert_int_equal(result.codes[DK_OK], 2);
    assert_int_equal(read_run(HEADER, records, 41, &server, &result, &error), DK_BAD_FILE);
    assert_int_equal(read_run("", records, 0, &server, &result, &error), DK_BAD_FILE);
    check_contains(error.message, "without a result");
    assert_int_equal(read_run("not json\n", records, 0, &server, &result, &error), DK_BAD_FILE);
    check_contains(error.message, "JSON");
}

static void test_shapes_are_parsed_and_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",     "1",    "1,",         ",1",        "0,1",
                                      "1,0",  "1,2,", "1,2,int8",   "1,2,bf16,", "a,b",
                                      "-1,2", "1 ,2", "16777217,1", "1,1048577", "99999999999999999999,1",
                                      "1,2x"};
    struct dk_remote_model model;
    struct dk_error error;
    assert_int_equal(dk_bench_inproc_parse_shape("7168,256", &model, &error), DK_OK);
    assert_true(model.k == 7168 && model.n == 256 && model.dtype == DK_BF16);
    assert_int_equal(dk_bench_inproc_parse_shape("16777216,1048576,fp32", &model, &error), DK_OK);
    assert_true(model.k == 16777216 && model.n == 1048576 && model.dtype == DK_FP32);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (dk_bench_inproc_parse_shape(bad[i], &model, &error) != DK_BAD_VALUE)
            fail_msg("accepted: '%s'", bad[i]);
        check_contains(error.message, bad[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times_unsent_calls_and_the_header_are_read),
        cmocka_unit_test(test_a_run_that_was_cut_short_is_an_error),
        cmocka_unit_test(test_shapes_are_parsed_and_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
