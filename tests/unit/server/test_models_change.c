/* test_models_change.c: uploads, loads and removals: refusals with both numbers, versions, and traffic
 * meanwhile. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/log.h"
#include "server/metrics.h"
#include "server/model_control.h"
#include "server/models.h"
#include "tests/unit/server/weights_writer.h"

enum { WIDE_K = 40000 };

static char folder[64], path[96], other_path[96], wide_path[96];
static struct dk_engine *engine;
static struct dk_models *models;
static struct dk_error error;

static const float small_values[6] = {1, 2, 3, 4, 5, 6};
static const float other_values[4] = {7, 8, 9, 10};

static int start(void **state)
{
    (void)state;
    const struct dk_engine_options options = {.backend = DK_BACKEND_CPU, .thread_count = 2, .max_tokens = 16};
    dk_log_init(DK_LOG_ERROR, DK_LOG_FORMAT_KV);
    snprintf(folder, sizeof folder, "/tmp/dk_change_XXXXXX");
    if (mkdtemp(folder) == NULL || dk_engine_new(&options, &engine, &error) != DK_OK)
        return -1;
    snprintf(path, sizeof path, "%s/a.safetensors", folder);
    snprintf(other_path, sizeof other_path, "%s/b.safetensors", folder);
    snprintf(wide_path, sizeof wide_path, "%s/c.safetensors", folder);
    static float wide[WIDE_K];
    const struct test_tensor tensors[] = {{"w", "F32", "[3,2]", small_values, sizeof small_values},
                                          {"w", "F32", "[2,2]", other_values, sizeof other_values},
                                          {"w", "F32", "[1,40000]", wide, sizeof wide}};
    write_weights(path, &tensors[0], 1);
    write_weights(other_path, &tensors[1], 1);
    write_weights(wide_path, &tensors[2], 1);
    static struct dk_model_spec spec;
    spec = (struct dk_model_spec){.name = "gate", .path = path, .layout = DK_LAYOUT_NK};
    memset(&error, 0, sizeof error);
    return dk_models_new(engine, NULL, &spec, 1, &models, &error) == DK_OK ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    dk_models_free(models);
    dk_engine_free(engine);
    unlink(path);
    unlink(other_path);
    unlink(wide_path);
    return rmdir(folder);
}

static dk_status put(const char *name, const char *file, bool *is_new)
{
    const struct dk_model_spec spec = {.name = name, .path = "upload", .layout = DK_LAYOUT_NK};
    int fd = open(file, O_RDONLY);
    assert_true(fd >= 0);
    dk_status status = dk_models_put(models, &spec, fd, NULL, is_new, &error);
    assert_int_equal(close(fd), 0);
    return status;
}

static void check_serving(const char *name, uint64_t n, uint64_t version)
{
    struct dk_model *model = dk_models_acquire(models, name);
    assert_non_null(model);
    assert_int_equal(model->n, n);
    assert_int_equal(model->version, version);
    dk_model_release(model);
}

static void test_an_upload_serves_under_a_new_name_and_is_forgotten(void **state)
{
    (void)state;
    bool is_new = false;
    assert_int_equal(put("fresh", other_path, &is_new), DK_OK);
    assert_true(is_new);
    check_serving("fresh", 2, 1);
    assert_int_equal(dk_models_count(models), 2);
    assert_int_equal(put("fresh", path, &is_new), DK_OK);
    assert_false(is_new);
    check_serving("fresh", 3, 2);
    assert_int_equal(dk_models_load(models, "fresh", &error), DK_BAD_VALUE);
    assert_int_equal(dk_models_remove(models, "fresh", &error), DK_OK);
    assert_null(dk_models_acquire(models, "fresh"));
    assert_int_equal(dk_models_remove(models, "fresh", &error), DK_NOT_FOUND);
    struct dk_models_entry entry;
    size_t cursor = 0;
    assert_true(dk_models_next_entry(models, &cursor, &entry));
    assert_string_equal(entry.name, "gate");
    assert_false(dk_models_next_entry(models, &cursor, &entry));
}

static void test_a_configured_model_can_be_removed_loaded_and_replaced(void **state)
{
    (void)state;
    assert_int_equal(dk_models_remove(models, "gate", &error), DK_OK);
    assert_null(dk_models_acquire(models, "gate"));
    assert_int_equal(dk_models_remove(models, "gate", &error), DK_OK); /* nothing left to do */
    assert_int_equal(dk_models_reload(models, &error), DK_OK);         /* leaves it alone */
    assert_null(dk_models_acquire(models, "gate"));
    struct dk_models_entry entry;
    size_t cursor = 0;
    assert_true(dk_models_next_entry(models, &cursor, &entry));
    assert_true(strcmp(entry.name, "gate") == 0 && !entry.is_serving && !entry.is_loading);
    assert_int_equal(dk_models_load(models, "gate", &error), DK_OK);
    check_serving("gate", 3, 2);
    assert_int_equal(put("gate", other_path, NULL), DK_OK);
    check_serving("gate", 2, 3);
    assert_int_equal(dk_models_reload(models, &error), DK_OK); /* not over what was uploaded */
    check_serving("gate", 2, 3);
    assert_int_equal(dk_models_load(models, "gate", &error), DK_OK);
    check_serving("gate", 3, 4);
    assert_int_equal(dk_models_load(models, "nobody", &error), DK_NOT_FOUND);
    assert_int_equal(dk_models_load(models, "", &error), DK_NOT_FOUND);
    assert_int_equal(dk_models_remove(models, "", &error), DK_NOT_FOUND);
}

static void test_a_held_version_outlives_its_removal(void **state)
{
    (void)state;
    struct dk_model *held = dk_models_acquire(models, "gate");
    assert_int_equal(dk_models_remove(models, "gate", &error), DK_OK);
    assert_int_equal(put("gate", other_path, NULL), DK_OK);
    assert_true(held->n == 3 && held->version == 1 && held->reference_count == 1);
    assert_true(dk_weights_bytes(held->weights) >= sizeof small_values);
    dk_model_release(held);
}

static void test_what_does_not_fit_is_refused_with_both_numbers(void **state)
{
    (void)state;
    struct dk_models_room room = {.workspace_bytes = 1, .buffer_bytes = 1 << 20, .model_count = 2};
    struct dk_models_room roomy = {.workspace_bytes = 1 << 24, .buffer_bytes = 1 << 20, .model_count = 2};
    char needed[32];
    assert_int_equal(put("fresh", wide_path, NULL), DK_TOO_LARGE); /* more than the one model needs */
    dk_models_set_room(models, &room);
    assert_int_equal(put("fresh", wide_path, NULL), DK_TOO_LARGE);
    assert_non_null(strstr(error.message, "1 were allocated"));
    assert_non_null(strstr(error.message, "--workspace-bytes"));
    room = roomy;
    room.buffer_bytes = 319999;
    snprintf(needed, sizeof needed, "%d bytes", WIDE_K * 8);
    dk_models_set_room(models, &room);
    assert_int_equal(put("fresh", wide_path, NULL), DK_TOO_LARGE);
    assert_non_null(strstr(error.message, needed));
    assert_non_null(strstr(error.message, "319999"));
    dk_models_set_room(models, &roomy);
    assert_int_equal(put("fresh", wide_path, NULL), DK_OK);
    assert_int_equal(put("third", wide_path, NULL), DK_TOO_LARGE);
    assert_non_null(strstr(error.message, "--max-models"));
    assert_int_equal(put("fresh", path, NULL), DK_OK); /* takes a place that counts already */
    assert_int_equal(dk_models_remove(models, "gate", &error), DK_OK);
    assert_int_equal(put("third", path, NULL), DK_OK);
    assert_int_equal(dk_models_load(models, "gate", &error), DK_TOO_LARGE);
    assert_null(dk_models_acquire(models, "gate"));
}

static void test_a_bad_file_changes_nothing(void **state)
{
    (void)state;
    write_raw_weights(other_path, "{\"w\":{}}", "", 0);
    assert_int_equal(put("gate", other_path, NULL), DK_BAD_FILE);
    assert_non_null(strstr(error.message, "upload: "));
    check_serving("gate", 3, 1);
    assert_int_equal(put("fresh", other_path, NULL), DK_BAD_FILE);
    assert_null(dk_models_acquire(models, "fresh"));
    assert_int_equal(dk_models_count(models), 1);
}

static void test_every_name_can_be_taken_and_comes_back(void **state)
{
    (void)state;
    char name[16];
    for (int i = 1; i < DK_MAX_MODELS; i++) {
        snprintf(name, sizeof name, "m%d", i);
        assert_int_equal(put(name, other_path, NULL), DK_OK);
    }
    assert_int_equal(put("over", other_path, NULL), DK_TOO_LARGE);
    assert_int_equal(dk_models_remove(models, "gate", &error), DK_OK); /* keeps its name */
    assert_int_equal(put("over", other_path, NULL), DK_TOO_LARGE);
    assert_non_null(strstr(error.message, "names are taken"));
    assert_int_equal(dk_models_remove(models, "m17", &error), DK_OK);
    assert_int_equal(put("over", other_path, NULL), DK_OK);
    check_serving("over", 2, 1);
}

/* --- threads ---------------------------------------------------------------------------------------------
 */

static _Atomic bool is_over;
static _Atomic unsigned met;

static void *use_until_over(void *context)
{
    (void)context;
    while (!is_over) {
        size_t cursor = 0;
        struct dk_model *model = dk_models_acquire(models, "gate");
        if (model != NULL && (model->n < 2 || dk_weights_bytes(model->weights) == 0))
            abort(); /* cmocka's asserts belong to the main thread */
        dk_model_release(model);
        while ((model = dk_models_next(models, &cursor)) != NULL) {
            met++;
            dk_model_release(model);
        }
        sched_yield();
    }
    return NULL;
}

static void test_traffic_goes_on_while_models_come_and_go(void **state)
{
    (void)state;
    pthread_t threads[3];
    is_over = false;
    met = 0;
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_until_over, NULL), 0);
    for (int i = 0; i < 60; i++) {
        unsigned before = met;
        assert_int_equal(put("gate", i % 2 == 0 ? other_path : path, NULL), DK_OK);
        assert_int_equal(put("fresh", path, NULL), DK_OK);
        while (met == before) /* somebody ran between two changes */
            sched_yield();
        assert_int_equal(dk_models_remove(models, i % 3 == 0 ? "gate" : "fresh", &error), DK_OK);
        assert_int_equal(dk_models_load(models, "gate", &error), DK_OK);
    }
    is_over = true;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    struct dk_model *model = dk_models_acquire(models, "gate");
    assert_int_equal(model->reference_count, 2);
    dk_model_release(model);
}

static _Atomic int completed;

static void count_completed(struct dk_model_task *task)
{
    completed++;
    (void)task;
}

static void test_tasks_run_in_order_and_stop_finishes_them(void **state)
{
    (void)state;
    struct dk_model_control *control = NULL;
    struct dk_model_task tasks[3] = {{.change = DK_MODEL_REMOVE, .name = "gate", .fd = -1},
                                     {.change = DK_MODEL_REMOVE, .name = "nobody", .fd = -1},
                                     {.change = DK_MODEL_LOAD, .name = "gate", .fd = -1}};
    completed = 0;
    assert_int_equal(dk_model_control_new(models, NULL, &control, &error), DK_OK);
    for (int i = 0; i < 3; i++) {
        tasks[i].complete = count_completed;
        assert_int_equal(dk_model_control_submit(control, &tasks[i], &error), DK_OK);
    }
    dk_model_control_stop(control);
    assert_int_equal(completed, 3);
    assert_int_equal(tasks[0].error.status, DK_OK);
    assert_int_equal(tasks[1].error.status, DK_NOT_FOUND);
    assert_int_equal(tasks[2].error.status, DK_OK);
    check_serving("gate", 3, 2);
    assert_int_equal(dk_model_control_submit(control, &tasks[0], &error), DK_UNAVAILABLE);
    assert_true(dk_model_upload_begin(control));
    assert_false(dk_model_upload_begin(control));
    dk_model_upload_end(control);
    assert_true(dk_model_upload_begin(control));
    dk_model_control_free(control);
    dk_model_control_free(NULL);
    dk_model_control_stop(NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_an_upload_serves_under_a_new_name_and_is_forgotten),
        TEST(test_a_configured_model_can_be_removed_loaded_and_replaced),
        TEST(test_a_held_version_outlives_its_removal),
        TEST(test_what_does_not_fit_is_refused_with_both_numbers),
        TEST(test_a_bad_file_changes_nothing),
        TEST(test_every_name_can_be_taken_and_comes_back),
        TEST(test_traffic_goes_on_while_models_come_and_go),
        TEST(test_tasks_run_in_order_and_stop_finishes_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
