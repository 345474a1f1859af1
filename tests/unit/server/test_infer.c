/* test_infer.c: infer bodies into jobs: where the tensor lands, levels and deadlines, shared memory in turns,
 * and that nothing is held after any end. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/body_reader.h"
#include "server/clock.h"
#include "server/daemon.h"
#include "server/infer.h"
#include "server/job.h"
#include "server/log.h"
#include "server/models.h"
#include "server/regions.h"
#include "server/slab.h"
#include "tests/unit/server/weights_writer.h"

enum { N = 3, K = 64, ROW_BYTES = K * (int)sizeof(float), LARGE_ROWS = 40000 };

struct fixture {
    char folder[64], path[96];
    struct dk_config config;
    struct dk_daemon daemon;
};

static const struct dk_slab_class_size sizes[DK_SLAB_CLASS_COUNT] = {
    [DK_SLAB_TINY] = {.bytes = 1024, .count = 4},
    [DK_SLAB_SMALL] = {.bytes = 64 * 1024, .count = 2},
    [DK_SLAB_LARGE] = {.bytes = (size_t)LARGE_ROWS * ROW_BYTES, .count = 1},
};

static int setup(void **state)
{
    static float weights[N * K];
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    strcpy(f->folder, "/tmp/dk-infer-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    (void)snprintf(f->path, sizeof f->path, "%s/w.safetensors", f->folder);
    dk_log_init(DK_LOG_WARN, DK_LOG_FORMAT_KV);
    const struct test_tensor tensor = {"w", "F32", "[3,64]", weights, sizeof weights};
    write_weights(f->path, &tensor, 1);
    const struct dk_engine_options options = {.backend = DK_BACKEND_CPU, .thread_count = 1, .max_tokens = 16};
    const struct dk_model_spec spec = {.name = "m", .path = f->path, .layout = DK_LAYOUT_NK};
    struct dk_daemon *daemon = &f->daemon;
    daemon->config = &f->config;
    daemon->max_body_bytes = (uint64_t)LARGE_ROWS * ROW_BYTES + 65536;
    assert_int_equal(dk_engine_new(&options, &daemon->engine, NULL), DK_OK);
    assert_int_equal(dk_models_new(daemon->engine, NULL, &spec, 1, &daemon->models, NULL), DK_OK);
    assert_int_equal(dk_slabs_new(sizes, NULL, &daemon->slabs, NULL), DK_OK);
    assert_int_equal(dk_jobs_new(2, daemon->slabs, NULL, &daemon->jobs, NULL), DK_OK);
    assert_int_equal(
        dk_body_readers_new(dk_oip_paths, DK_OIP_PATH_COUNT, &dk_infer_sink, 1, &daemon->infer_readers, NULL),
        DK_OK);
    assert_int_equal(dk_regions_new(f->folder, 4, NULL, &daemon->regions, NULL), DK_OK);
    atomic_store(&daemon->state, DK_DAEMON_READY);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    char object[128];
    dk_regions_free(f->daemon.regions);
    dk_body_readers_free(f->daemon.infer_readers);
    dk_jobs_free(f->daemon.jobs); /* asserts that every job was released, as do the others */
    dk_slabs_free(f->daemon.slabs);
    dk_models_free(f->daemon.models);
    dk_engine_free(f->daemon.engine);
    (void)snprintf(object, sizeof object, "%s/object", f->folder);
    (void)unlink(object);
    (void)unlink(f->path);
    assert_int_equal(rmdir(f->folder), 0);
    free(f);
    return 0;
}

static void assert_nothing_held(struct fixture *f)
{
    for (int i = 0; i < DK_SLAB_CLASS_COUNT; i++) {
        assert_int_equal(dk_slabs_used(f->daemon.slabs, (enum dk_slab_class)i), 0);
    }
    assert_int_equal(dk_jobs_in_flight(f->daemon.jobs), 0);
}

/* The body of T rows of fp32, `padding` blanks behind the JSON; the caller frees. */
static char *make_body(uint64_t rows, size_t padding, const char *parameters, char length_text[24],
                       size_t *length)
{
    size_t tensor_bytes = (size_t)rows * ROW_BYTES;
    char *body = malloc(1024 + padding + tensor_bytes);
    assert_non_null(body);
    int json =
        snprintf(body, 1024,
                 "{\"parameters\":{%s},\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[%llu,%d],"
                 "\"parameters\":{\"binary_data_size\":%zu}}]}",
                 parameters, (unsigned long long)rows, K, tensor_bytes);
    memset(body + json, ' ', padding);
    for (size_t i = 0; i < tensor_bytes; i++) {
        body[(size_t)json + padding + i] = (char)(i * 7 + i / 256);
    }
    (void)snprintf(length_text, 24, "%zu", (size_t)json + padding);
    *length = (size_t)json + padding + tensor_bytes;
    return body;
}

static void assert_tensor(const void *data, uint64_t rows)
{
    const char *bytes = data;
    for (size_t i = 0; i < (size_t)rows * ROW_BYTES; i++) {
        assert_int_equal(bytes[i], (char)(i * 7 + i / 256));
    }
}

static void test_tensor_starts_a_slab_wherever_the_json_ends(void **state)
{
    struct fixture *f = *state;
    static const uint64_t rows[] = {1, 3, 20};
    static const size_t steps[] = {1, 100, 1 << 20};
    for (size_t r = 0; r < 3; r++) {
        for (size_t padding = 0; padding < 9; padding++) {
            for (size_t s = 0; s < 3; s++) {
                struct dk_infer infer;
                char length_text[24];
                size_t length;
                char *body = make_body(rows[r], padding, "", length_text, &length);
                uint64_t told = padding % 2 == 0 ? length : UINT64_MAX;
                assert_int_equal(dk_infer_begin(&infer, &f->daemon, "m", length_text, told, NULL), DK_OK);
                for (size_t at = 0; at < length; at += steps[s]) {
                    size_t piece = length - at < steps[s] ? length - at : steps[s];
                    assert_int_equal(dk_infer_feed(&infer, body + at, piece, NULL), DK_OK);
                }
                assert_int_equal(dk_infer_finish(&infer, 0, NULL), DK_OK);
                assert_int_equal(infer.job->gemm.m, rows[r]);
                assert_ptr_equal(infer.job->a, infer.job->slabs[DK_JOB_SLAB_A]->data);
                assert_int_equal((uintptr_t)infer.job->a % DK_SLAB_ALIGNMENT, 0);
                assert_int_equal((uintptr_t)infer.job->c % DK_SLAB_ALIGNMENT, 0);
                assert_tensor(infer.job->a, rows[r]);
                dk_infer_end(&infer);
                dk_infer_end(&infer); /* idempotent */
                assert_nothing_held(f);
                free(body);
            }
        }
    }
}

static void test_large_tensor_goes_to_a_large_slab_without_steps(void **state)
{
    struct fixture *f = *state;
    struct dk_infer infer;
    char length_text[24];
    size_t length;
    char *body = make_body(1000, 0, "", length_text, &length);
    size_t json = strtoull(length_text, NULL, 10);
    assert_int_equal(dk_infer_begin(&infer, &f->daemon, "m", length_text, length, NULL), DK_OK);
    assert_int_equal(dk_infer_feed(&infer, body, json + 1000, NULL), DK_OK);
    assert_int_equal(infer.x.slab->class_index, DK_SLAB_TINY); /* all that a slow sender holds */
    assert_int_equal(dk_infer_feed(&infer, body + json + 1000, 1000, NULL), DK_OK);
    assert_int_equal(infer.x.slab->class_index, DK_SLAB_LARGE);
    assert_int_equal(dk_infer_feed(&infer, body + json + 2000, length - json - 2000, NULL), DK_OK);
    assert_int_equal(dk_infer_finish(&infer, 0, NULL), DK_OK);
    assert_tensor(infer.job->a, 1000);
    dk_infer_end(&infer);
    assert_nothing_held(f);
    free(body);
}

/* One row with `parameters`; the caller ends it. */
static void finish_one(struct fixture *f, struct dk_infer *infer, const char *parameters, uint64_t arrived_ns)
{
    char length_text[24];
    size_t length;
    char *body = make_body(1, 0, parameters, length_text, &length);
    assert_int_equal(dk_infer_begin(infer, &f->daemon, "m", length_text, length, NULL), DK_OK);
    assert_int_equal(dk_infer_feed(infer, body, length, NULL), DK_OK);
    assert_int_equal(dk_infer_finish(infer, arrived_ns, NULL), DK_OK);
    free(body);
}

static void test_priority_chooses_the_level(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *parameters;
        enum dk_job_level level;
    } cases[] = {{"", DK_JOB_NORMAL},
                 {"\"priority\":0", DK_JOB_NORMAL},
                 {"\"priority\":1", DK_JOB_HIGH},
                 {"\"priority\":2", DK_JOB_NORMAL},
                 {"\"priority\":3", DK_JOB_LOW},
                 {"\"priority\":18446744073709551615", DK_JOB_LOW}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dk_infer infer;
        finish_one(f, &infer, cases[i].parameters, 1000);
        assert_int_equal(infer.job->level, cases[i].level);
        assert_int_equal(infer.job->deadline_ns, 0);
        dk_infer_end(&infer);
    }
}

static void test_timeout_counts_from_the_head(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *parameters;
        uint64_t arrived_ns, deadline_ns;
    } cases[] = {{"\"timeout\":0", 1000, 0},
                 {"\"timeout\":5", 1000, 6000},
                 {"\"timeout\":18446744073709551615", 1000, 0}, /* beyond the clock: never */
                 {"\"timeout\":18446744073709551", 0, UINT64_C(18446744073709551000)},
                 {"\"timeout\":18446744073709551", 1000, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dk_infer infer;
        finish_one(f, &infer, cases[i].parameters, cases[i].arrived_ns);
        assert_true(infer.job->deadline_ns == cases[i].deadline_ns);
        dk_infer_end(&infer);
    }
}

static void test_nothing_is_held_after_any_failure(void **state)
{
    struct fixture *f = *state;
    char length_text[24];
    size_t length;
    char *body = make_body(3, 0, "", length_text, &length);
    struct dk_infer infer;
    assert_int_equal(dk_infer_begin(&infer, &f->daemon, "nope", length_text, length, NULL), DK_NOT_FOUND);
    dk_infer_end(&infer);
    assert_int_equal(dk_infer_begin(&infer, &f->daemon, "m", "x", length, NULL), DK_BAD_VALUE);
    dk_infer_end(&infer);
    assert_int_equal(dk_infer_begin(&infer, &f->daemon, "m", "0", 7, NULL), DK_BAD_SHAPE);
    dk_infer_end(&infer);
    assert_int_equal(dk_infer_begin(&infer, &f->daemon, "m", "0", f->daemon.max_body_bytes + 1, NULL),
                     DK_TOO_LARGE);
    dk_infer_end(&infer);
    for (size_t cut = 0; cut < length; cut += 13) { /* the body ends early, or the client leaves */
        assert_int_equal(dk_infer_begin(&infer, &f->daemon, "m", length_text, UINT64_MAX, NULL), DK_OK);
        assert_int_equal(dk_infer_feed(&infer, body, cut, NULL), DK_OK);
        if (cut % 2 == 0) {
            assert_int_not_equal(dk_infer_finish(&infer, 0, NULL), DK_OK);
        }
        dk_infer_end(&infer);
        assert_nothing_held(f);
    }
    assert_int_equal(dk_infer_begin(&infer, &f->daemon, "m", length_text, UINT64_MAX, NULL), DK_OK);
    assert_int_equal(dk_infer_feed(&infer, body, length, NULL), DK_OK);
    assert_int_equal(dk_infer_feed(&infer, "x", 1, NULL), DK_BAD_SHAPE); /* one byte too many */
    dk_infer_end(&infer);
    atomic_store(&f->daemon.state, DK_DAEMON_LOADING);
    assert_int_equal(dk_infer_begin(&infer, &f->daemon, "m", NULL, 10, NULL), DK_UNAVAILABLE);
    dk_infer_end(&infer);
    assert_nothing_held(f);
    free(body);
}

static void test_busy_pools_are_busy_and_recover(void **state)
{
    struct fixture *f = *state;
    struct dk_infer first, second, third;
    struct dk_error error;
    char length_text[24];
    size_t length;
    finish_one(f, &first, "", 0);
    finish_one(f, &second, "", 0);
    char *body = make_body(1, 0, "", length_text, &length);
    assert_int_equal(dk_infer_begin(&third, &f->daemon, "m", length_text, length, NULL), DK_OK);
    assert_int_equal(dk_infer_feed(&third, body, length, NULL), DK_OK);
    assert_int_equal(dk_infer_finish(&third, 0, &error), DK_BUSY); /* two jobs at most */
    dk_infer_end(&third);
    dk_infer_end(&first);
    finish_one(f, &third, "", 0);
    dk_infer_end(&third);
    dk_infer_end(&second);
    assert_nothing_held(f);
    free(body);
}

/* The last byte of the file says whether it was written at all. */
static void make_object(const struct fixture *f, uint64_t rows)
{
    char path[128];
    size_t bytes = (size_t)rows * ROW_BYTES;
    char *content = malloc(bytes);
    assert_non_null(content);
    for (size_t i = 0; i < bytes; i++) {
        content[i] = (char)(i * 7 + i / 256);
    }
    (void)snprintf(path, sizeof path, "%s/object", f->folder);
    int fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, bytes), bytes);
    (void)close(fd);
    free(content);
    struct dk_oip_system_region wanted = {.key = "/object", .byte_size = bytes};
    wanted.object = wanted.key + 1;
    assert_int_equal(dk_regions_register(f->daemon.regions, "r", &wanted, NULL), DK_OK);
}

static void test_shared_memory_is_copied_in_turns(void **state)
{
    struct fixture *f = *state;
    struct dk_infer infer;
    char json[512];
    make_object(f, LARGE_ROWS);
    size_t bytes = (size_t)LARGE_ROWS * ROW_BYTES;
    int length =
        snprintf(json, sizeof json,
                 "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[%d,%d],\"parameters\":{"
                 "\"shared_memory_region\":\"r\",\"shared_memory_byte_size\":%zu}}],"
                 "\"outputs\":[{\"name\":\"logits\",\"parameters\":{\"shared_memory_region\":\"r\","
                 "\"shared_memory_offset\":64,\"shared_memory_byte_size\":%d}}]}",
                 LARGE_ROWS, K, bytes, LARGE_ROWS * N * 4);
    assert_int_equal(dk_infer_begin(&infer, &f->daemon, "m", NULL, (uint64_t)length, NULL), DK_OK);
    assert_int_equal(dk_infer_feed(&infer, json, (size_t)length, NULL), DK_OK);
    struct dk_error error;
    dk_status status = dk_infer_finish(&infer, 0, &error);
    assert_int_equal(status, DK_BUSY); /* x takes the one large slab, and the answer would need another */
    dk_infer_end(&infer);
    assert_nothing_held(f);

    /* Fewer rows: x in the large slab with room behind it for the answer. */
    enum { ROWS = LARGE_ROWS * 9 / 10 };
    length = snprintf(json, sizeof json,
                      "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[%d,%d],\"parameters\":{"
                      "\"shared_memory_region\":\"r\",\"shared_memory_byte_size\":%d}}],"
                      "\"outputs\":[{\"name\":\"logits\",\"parameters\":{\"shared_memory_region\":\"r\","
                      "\"shared_memory_offset\":64,\"shared_memory_byte_size\":%d}}]}",
                      ROWS, K, ROWS * ROW_BYTES, ROWS * N * 4);
    assert_int_equal(dk_infer_begin(&infer, &f->daemon, "m", NULL, (uint64_t)length, NULL), DK_OK);
    assert_int_equal(dk_infer_feed(&infer, json, (size_t)length, NULL), DK_OK);
    assert_int_equal(dk_infer_finish(&infer, 0, &error), DK_OK);
    dk_regions_unregister_all(f->daemon.regions); /* C49: the request keeps it */
    bool is_done = false;
    int turn_count = 0;
    while (!is_done) {
        assert_int_equal(dk_infer_load(&infer, &is_done, &error), DK_OK);
        turn_count++;
    }
    assert_int_equal(turn_count, (ROWS * ROW_BYTES + DK_INFER_TURN_BYTES - 1) / DK_INFER_TURN_BYTES);
    assert_tensor(infer.job->a, ROWS);
    memset(infer.job->c, 0x55, (size_t)ROWS * N * 4);
    is_done = false;
    while (!is_done) {
        assert_int_equal(dk_infer_store(&infer, &is_done, &error), DK_OK);
    }
    dk_infer_end(&infer);
    assert_nothing_held(f);
    char path[128], byte = 0;
    (void)snprintf(path, sizeof path, "%s/object", f->folder);
    int fd = open(path, O_RDONLY);
    assert_int_equal(pread(fd, &byte, 1, 64 + ROWS * N * 4 - 1), 1);
    assert_int_equal(byte, 0x55);
    assert_int_equal(pread(fd, &byte, 1, 64 + ROWS * N * 4), 1);
    assert_int_equal(byte, (char)((64 + ROWS * N * 4) * 7 + (64 + ROWS * N * 4) / 256));
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(test_tensor_starts_a_slab_wherever_the_json_ends),
        TEST(test_large_tensor_goes_to_a_large_slab_without_steps),
        TEST(test_priority_chooses_the_level),
        TEST(test_timeout_counts_from_the_head),
        TEST(test_nothing_is_held_after_any_failure),
        TEST(test_busy_pools_are_busy_and_recover),
        TEST(test_shared_memory_is_copied_in_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
