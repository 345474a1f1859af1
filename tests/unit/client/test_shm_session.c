/* test_shm_session.c: sessions of the ring: handshake with a daemon that errs, models, loss, reconnect, fork.
 */
#include <dirent.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

#include "decomposek_client.h"
#include "tests/unit/client/ring_server.h"

static struct ring_server server;

static int start(void **state)
{
    (void)state;
    ring_server_start(&server);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    ring_server_stop(&server);
    return 0;
}

static struct dk_client *open_client(struct dk_client_options options)
{
    struct dk_client *client = NULL;
    struct dk_error error = {0};
    if (dk_client_open(server.address, &options, &client, &error) != DK_OK)
        fail_msg("%s", error.message);
    return client;
}

static struct dk_client_model *open_model(struct dk_client *client, const char *name)
{
    struct dk_client_model *model = NULL;
    struct dk_error error = {0};
    if (dk_client_model_open(client, name, &model, &error) != DK_OK)
        fail_msg("%s", error.message);
    return model;
}

static const float row[4] = {1, 2, 3, 4.5F};
static const float sums[3] = {10.5F, 21, 31.5F};

static dk_status infer_row(struct dk_client_model *model, struct dk_error *error)
{
    float c[3] = {0};
    const struct dk_client_request request = {.rows = 1, .a = row, .c = c};
    dk_status status = dk_client_infer(model, &request, NULL, error);
    if (status == DK_OK)
        assert_memory_equal(c, sums, sizeof sums);
    else
        assert_true(c[0] == 0 && c[1] == 0 && c[2] == 0);
    return status;
}

static size_t count_descriptors(void)
{
    size_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* --- opening ------------------------------------------------------------------------------------------- */

static dk_status try_open(const char *address, const struct dk_client_options *options,
                          struct dk_error *error)
{
    struct dk_client *client = (void *)&server;
    dk_status status = dk_client_open(address, options, &client, error);
    assert_ptr_equal(client, &server); /* untouched on failure */
    assert_int_equal(error->status, status);
    return status;
}

static void test_addresses_and_options_that_cannot_be_meant_are_refused(void **state)
{
    (void)state;
    struct dk_error error;
    static const char *const addresses[] = {"", "unix:", "unix:relative", "/path", "https://a", "ftp://a"};
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        assert_int_equal(try_open(addresses[i], NULL, &error), DK_BAD_VALUE);
        check_contains(error.message, addresses[i]);
    }
    struct dk_client_options options = {.ring_entries = 4097};
    assert_int_equal(try_open(server.address, &options, &error), DK_BAD_VALUE);
    check_contains(error.message, "4097");
    options = (struct dk_client_options){.reserved[7] = 1};
    assert_int_equal(try_open(server.address, &options, &error), DK_BAD_VALUE);
    options = (struct dk_client_options){.data_bytes = UINT64_MAX};
    assert_int_equal(try_open(server.address, &options, &error), DK_BAD_VALUE);
    char path[256] = "unix:/";
    memset(path + 6, 'x', 200);
    assert_int_equal(try_open(path, NULL, &error), DK_BAD_VALUE);
    check_contains(error.message, "xxx");
}

static void test_a_missing_socket_is_unavailable(void **state)
{
    (void)state;
    struct dk_error error;
    assert_int_equal(try_open("unix:/nonexistent/ring.sock", NULL, &error), DK_UNAVAILABLE);
    check_contains(error.message, "/nonexistent/ring.sock");
}

static void test_faults_of_the_handshake_fail_with_a_reason(void **state)
{
    (void)state;
    static const struct {
        dk_status status;
        const char *part;
    } expected[RING_FAULT_COUNT] = {
        [RING_FAULT_REFUSE] = {DK_BUSY, "no session is free"},
        [RING_FAULT_REFUSE_AT_ONCE] = {DK_FORBIDDEN, "user 7 may not"},
        [RING_FAULT_MUTE] = {DK_TIMEOUT, "in time"},
        [RING_FAULT_MUTE_MAPPED] = {DK_TIMEOUT, "in time"},
        [RING_FAULT_VERSION] = {DK_UNSUPPORTED, "version 2"},
        [RING_FAULT_GARBAGE] = {DK_UNAVAILABLE, "5a5a5a5a"},
        [RING_FAULT_LAYOUT] = {DK_UNSUPPORTED, "differently"},
        [RING_FAULT_SHORT] = {DK_UNAVAILABLE, "4096 bytes"},
        [RING_FAULT_UNSEALED] = {DK_UNAVAILABLE, "seal"},
        [RING_FAULT_HEADER] = {DK_UNSUPPORTED, "data_bytes"},
        [RING_FAULT_NO_DESCRIPTORS] = {DK_UNAVAILABLE, "0 descriptors"},
        [RING_FAULT_PIPE] = {DK_UNAVAILABLE, "eventfd"},
    };
    struct dk_error error;
    const struct dk_client_options options = {.timeout_ms = 100};
    for (int fault = 1; fault < RING_FAULT_COUNT; fault++) {
        if (fault == RING_FAULT_MANY_DESCRIPTORS)
            continue; /* the surplus is closed: see below */
        server.fault = fault;
        dk_status status = try_open(server.address, &options, &error);
        if (status != expected[fault].status || !strstr(error.message, expected[fault].part))
            fail_msg("fault %d: %s, %s", fault, dk_status_name(status), error.message);
    }
}

static void test_no_descriptor_leaks_from_a_refused_session(void **state)
{
    (void)state;
    struct dk_error error;
    struct dk_client *client;
    const struct dk_client_options options = {.timeout_ms = 100};
    server.fault = RING_FAULT_SHORT;
    for (int i = 0; i < 20; i++)
        assert_int_equal(try_open(server.address, &options, &error), DK_UNAVAILABLE);
    server.fault = RING_FAULT_MANY_DESCRIPTORS;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(dk_client_open(server.address, NULL, &client, NULL), DK_OK);
        dk_client_close(client);
    }
    ring_server_await(&server.close_count, 20);
    /* Those of the server's own sessions come and go: give it the time to end the last. */
    for (int i = 0; i < 1000 && count_descriptors() > 12; i++)
        usleep(1000);
    assert_in_range(count_descriptors(), 4, 12);
}

static void test_info_says_what_was_granted(void **state)
{
    (void)state;
    struct dk_client_info info;
    struct dk_client *client =
        open_client((struct dk_client_options){.ring_entries = 5, .data_bytes = 100000});
    dk_client_get_info(client, &info);
    assert_string_equal(info.transport, "shm");
    assert_true(info.is_connected);
    assert_int_equal(info.ring_entries, 8);
    assert_int_equal(info.data_bytes, 102400);
    assert_int_equal(info.session_count, 1);
    dk_client_close(client);
    dk_client_close(NULL);
    ring_server_await(&server.close_count, 1); /* the daemon was told */
}

/* --- models -------------------------------------------------------------------------------------------- */

static void test_models_are_listed_and_opened(void **state)
{
    (void)state;
    server.wide_n = 1000;
    struct dk_client *client = open_client((struct dk_client_options){0});
    struct dk_client_model_info infos[2] = {{{0}, 0, 0, 0, 0, 0, 0, {0}}};
    size_t count = 0;
    assert_int_equal(dk_client_list_models(client, infos, 1, &count, NULL), DK_OK);
    assert_int_equal(count, 2);
    assert_string_equal(infos[0].name, "sum");
    assert_string_equal(infos[1].name, ""); /* no room was said to be there */
    assert_int_equal(dk_client_list_models(client, infos, 2, &count, NULL), DK_OK);
    assert_string_equal(infos[1].name, "wide");
    assert_int_equal(infos[1].n, 1000);
    struct dk_client_model *model = open_model(client, "sum");
    assert_int_equal(dk_client_model_get_info(model)->k, 4);
    struct dk_error error;
    assert_int_equal(dk_client_model_open(client, "no-such", &model, &error), DK_NOT_FOUND);
    assert_int_equal(dk_client_model_open(client, "a b", &model, &error), DK_BAD_VALUE);
    check_contains(error.message, "a b");
    dk_client_close(client);
}

static void test_weights_are_handed_over_and_open_handles_follow(void **state)
{
    (void)state;
    struct dk_client *client = open_client((struct dk_client_options){.data_bytes = 1 << 16});
    struct dk_client_model *model = open_model(client, "sum");
    static float w[16] = {1};
    ((unsigned char *)w)[0] = 3;
    static float bias[3];
    struct dk_client_weights weights = {
        .n = 3, .k = 4, .dtype = DK_FP32, .layout = DK_LAYOUT_NK, .data = w, .bias = bias};
    assert_int_equal(dk_client_load_model(client, "sum", &weights, 0, NULL), DK_OK);
    assert_int_equal(infer_row(model, NULL), DK_OK);
    struct dk_error error;
    weights.k = 5;
    assert_int_equal(dk_client_load_model(client, "sum", &weights, 0, &error), DK_TOO_LARGE);
    check_contains(error.message, "beyond the cap");
    weights.k = DK_MAX_K;
    assert_int_equal(dk_client_load_model(client, "sum", &weights, 0, &error), DK_TOO_LARGE);
    check_contains(error.message, "data_bytes");
    weights = (struct dk_client_weights){.n = 1, .k = 4, .dtype = DK_INT32, .data = w};
    assert_int_equal(dk_client_load_model(client, "sum", &weights, 0, &error), DK_BAD_DTYPE);
    weights.dtype = DK_FP32;
    weights.data = NULL;
    assert_int_equal(dk_client_load_model(client, "sum", &weights, 0, &error), DK_BAD_VALUE);
    dk_client_close(client);
}

static void test_a_question_without_answer_times_out_and_the_next_is_not_confused(void **state)
{
    (void)state;
    struct dk_client *client = open_client((struct dk_client_options){.timeout_ms = 50});
    struct dk_client_model *model;
    struct dk_error error;
    server.is_mute = true;
    assert_int_equal(dk_client_model_open(client, "sum", &model, &error), DK_TIMEOUT);
    dk_client_close(client);
}

/* --- loss ---------------------------------------------------------------------------------------------- */

static void test_a_daemon_that_dies_ends_calls_and_reconnect_starts_anew(void **state)
{
    (void)state;
    struct dk_client *client = open_client((struct dk_client_options){0});
    struct dk_client_model *model = open_model(client, "sum");
    struct dk_error error;
    assert_int_equal(infer_row(model, &error), DK_OK);
    server.holds = true;
    server.dies = true;
    assert_int_equal(infer_row(model, &error), DK_UNAVAILABLE);
    check_contains(error.message, server.path);
    assert_int_equal(infer_row(model, &error), DK_UNAVAILABLE); /* and stays so */
    struct dk_client_info info;
    dk_client_get_info(client, &info);
    assert_false(info.is_connected);
    server.holds = false;
    assert_int_equal(dk_client_reconnect(client, &error), DK_OK);
    assert_int_equal(infer_row(model, &error), DK_OK);
    dk_client_get_info(client, &info);
    assert_true(info.is_connected);
    assert_int_equal(info.session_count, 2);
    dk_client_close(client);
}

static void test_reconnecting_clients_go_on_by_themselves(void **state)
{
    (void)state;
    struct dk_client *client = open_client((struct dk_client_options){.is_reconnecting = true});
    struct dk_client_model *model = open_model(client, "sum");
    struct dk_error error;
    server.dies = true;
    ring_server_await(&server.session_count, 1);
    usleep(50000); /* the next call finds the end of file before it sends anything */
    if (infer_row(model, &error) != DK_OK)
        fail_msg("%s", error.message);
    assert_int_equal(server.session_count, 2);
    dk_client_close(client);
}

static void test_a_model_that_changed_its_shape_refuses_requests(void **state)
{
    (void)state;
    struct dk_client *client = open_client((struct dk_client_options){0});
    server.wide_n = 10;
    struct dk_client_model *sum = open_model(client, "sum"), *wide = open_model(client, "wide");
    struct dk_error error;
    server.sum_n = 4;
    server.wide_n = 0;
    assert_int_equal(dk_client_reconnect(client, &error), DK_OK);
    assert_int_equal(infer_row(sum, &error), DK_BAD_SHAPE);
    check_contains(error.message, "n=3");
    assert_int_equal(infer_row(wide, &error), DK_NOT_FOUND);
    server.sum_n = 3;
    assert_int_equal(dk_client_reconnect(client, &error), DK_OK);
    assert_int_equal(infer_row(sum, &error), DK_OK);
    dk_client_model_close(wide);
    dk_client_close(client);
}

static void test_a_goodbye_names_its_reason(void **state)
{
    (void)state;
    struct dk_client *client = open_client((struct dk_client_options){0});
    struct dk_client_model *model = open_model(client, "sum");
    struct dk_error error;
    server.holds = true;
    server.goodbye = DK_BAD_REQUEST;
    assert_int_equal(infer_row(model, &error), DK_UNAVAILABLE);
    check_contains(error.message, "because the test says so");
    dk_client_close(client);
}

static void test_a_child_process_is_refused_and_leaves_the_session_alone(void **state)
{
    (void)state;
    struct dk_client *client = open_client((struct dk_client_options){0});
    struct dk_client_model *model = open_model(client, "sum");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct dk_error error;
        struct dk_client_completion completion;
        size_t count;
        void *buffer;
        bool is_right = infer_row(model, &error) == DK_UNSUPPORTED && strstr(error.message, "fork") &&
                        dk_client_poll(client, &completion, 1) == 0 &&
                        dk_client_wait(client, 1, &completion, 1, &count, &error) == DK_UNSUPPORTED &&
                        dk_client_reconnect(client, &error) == DK_UNSUPPORTED &&
                        dk_client_buffer_acquire(client, 1, &buffer, &error) == DK_UNSUPPORTED;
        dk_client_model_close(model);
        dk_client_close(client);
        _exit(is_right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(infer_row(model, NULL), DK_OK);
    assert_int_equal(server.close_count, 0);
    dk_client_close(client);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(test_addresses_and_options_that_cannot_be_meant_are_refused),
        TEST(test_a_missing_socket_is_unavailable),
        TEST(test_faults_of_the_handshake_fail_with_a_reason),
        TEST(test_no_descriptor_leaks_from_a_refused_session),
        TEST(test_info_says_what_was_granted),
        TEST(test_models_are_listed_and_opened),
        TEST(test_weights_are_handed_over_and_open_handles_follow),
        TEST(test_a_question_without_answer_times_out_and_the_next_is_not_confused),
        TEST(test_a_daemon_that_dies_ends_calls_and_reconnect_starts_anew),
        TEST(test_reconnecting_clients_go_on_by_themselves),
        TEST(test_a_model_that_changed_its_shape_refuses_requests),
        TEST(test_a_goodbye_names_its_reason),
        TEST(test_a_child_process_is_refused_and_leaves_the_session_alone),
    };
    return cmocka_run_group_tests_name("shm session", tests, NULL, NULL);
}
