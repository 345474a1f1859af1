/* test_models.c: choosing tensors, refusals, reload, and references under a concurrent reload. */
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
#include "server/models.h"
#include "tests/unit/server/weights_writer.h"

enum { N = 3, K = 2 };

static char folder[64], path[96], second_path[96];
static struct dk_engine *engine;
static struct dk_error error;

static int start(void **state)
{
    (void)state;
    const struct dk_engine_options options = {.backend = DK_BACKEND_CPU, .thread_count = 1, .max_tokens = 16};
    dk_log_init(DK_LOG_WARN, DK_LOG_FORMAT_KV);
    snprintf(folder, sizeof folder, "/tmp/dk_models_XXXXXX");
    if (mkdtemp(folder) == NULL || dk_engine_new(&options, &engine, &error) != DK_OK)
        return -1;
    snprintf(path, sizeof path, "%s/a.safetensors", folder);
    snprintf(second_path, sizeof second_path, "%s/b.safetensors", folder);
    memset(&error, 0, sizeof error);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    dk_engine_free(engine);
    unlink(path);
    unlink(second_path);
    return rmdir(folder);
}

/* [n=3, k=2] row-major, the rows (1,2), (3,4), (5,6), and the same as [k, n]; all exact in bf16 and fp16. */
static const float matrix_nk[N * K] = {1, 2, 3, 4, 5, 6};
static const float matrix_kn[N * K] = {1, 3, 5, 2, 4, 6};
static const float bias_values[N] = {10, 20, 30};

static void write_gate(const char *file, const float *values)
{
    const struct test_tensor tensor = {"gate.weight", "F32", "[3,2]", values, sizeof matrix_nk};
    write_weights(file, &tensor, 1);
}

/* y = epilogue([1, 10] * B + bias) of the model, by the product itself. */
static void compute(const struct dk_model *model, float y[N])
{
    const float x[K] = {1, 10};
    void *workspace = NULL;
    assert_int_equal(dk_workspace_new(engine, dk_workspace_bytes(model->weights, 1), &workspace, &error),
                     DK_OK);
    const struct dk_call call = {.m = 1,
                                 .a = x,
                                 .a_row_elements = K,
                                 .a_dtype = DK_FP32,
                                 .c = y,
                                 .c_row_elements = N,
                                 .c_dtype = DK_FP32,
                                 .epilogue = model->epilogue,
                                 .workspace = workspace};
    assert_int_equal(dk_run_host(model->weights, &call, NULL, &error), DK_OK);
    dk_workspace_free(engine, workspace);
}

static void check_values(struct dk_models *models, const char *name, float first, float second, float third)
{
    float y[N];
    struct dk_model *model = dk_models_acquire(models, name);
    assert_non_null(model);
    compute(model, y);
    assert_true(y[0] == first && y[1] == second && y[2] == third);
    dk_model_release(model);
}

static struct dk_models *load(const struct dk_model_spec *specs, size_t count, struct dk_metrics *metrics)
{
    struct dk_models *models = NULL;
    if (dk_models_new(engine, metrics, specs, count, &models, &error) != DK_OK)
        fail_msg("refused: %s", error.message);
    return models;
}

static void refuse(const struct dk_model_spec *spec, dk_status wanted, const char *const *texts)
{
    struct dk_models *models = NULL;
    memset(&error, 0, sizeof error);
    assert_int_equal(dk_models_new(engine, NULL, spec, 1, &models, &error), wanted);
    assert_null(models);
    for (; *texts != NULL; texts++) {
        if (strstr(error.message, *texts) == NULL)
            fail_msg("'%s' is not in '%s'", *texts, error.message);
    }
}
#define REFUSE(spec, status, ...) refuse(spec, status, (const char *[]){__VA_ARGS__, NULL})

static void test_the_only_matrix_is_taken_and_computes(void **state)
{
    (void)state;
    const struct test_tensor tensors[] = {{"norm", "F32", "[3]", bias_values, sizeof bias_values},
                                          {"gate.weight", "F32", "[3,2]", matrix_nk, sizeof matrix_nk},
                                          {"ids", "I32", "[1,1]", bias_values, 4},
                                          {"cube", "F32", "[1,1,1]", bias_values, 4}};
    write_weights(path, tensors, 4);
    const struct dk_model_spec spec = {.name = "gate", .path = path, .layout = DK_LAYOUT_NK};
    struct dk_models *models = load(&spec, 1, NULL);
    struct dk_model *model = dk_models_acquire(models, "gate");
    assert_string_equal(model->name, "gate");
    assert_string_equal(model->tensor_name, "gate.weight");
    assert_string_equal(model->source_path, path);
    assert_null(model->bias_name);
    assert_true(model->n == N && model->k == K && model->dtype == DK_FP32 && !model->has_bias);
    assert_true(model->version == 1);
    dk_model_release(model);
    check_values(models, "gate", 21, 43, 65);
    assert_null(dk_models_acquire(models, "gat"));
    assert_null(dk_models_acquire(models, ""));
    size_t cursor = 0;
    dk_model_release(dk_models_next(models, &cursor));
    assert_null(dk_models_next(models, &cursor));
    dk_models_free(models);
}

static void test_layout_kn_bias_and_epilogue_of_the_spec(void **state)
{
    (void)state;
    uint16_t half_matrix[N * K], brain_bias[N];
    dk_convert_from_float(matrix_kn, half_matrix, DK_FP16, N * K);
    const float negative[N] = {-100, 20, -30};
    dk_convert_from_float(negative, brain_bias, DK_BF16, N);
    const struct test_tensor tensors[] = {{"w", "F16", "[2,3]", half_matrix, sizeof half_matrix},
                                          {"w2", "F32", "[3,2]", matrix_nk, sizeof matrix_nk},
                                          {"b", "BF16", "[3]", brain_bias, sizeof brain_bias}};
    write_weights(path, tensors, 3);
    const struct dk_model_spec spec = {.name = "g",
                                       .path = path,
                                       .tensor = "w",
                                       .bias = "b",
                                       .layout = DK_LAYOUT_KN,
                                       .epilogue = DK_EPILOGUE_RELU};
    struct dk_models *models = load(&spec, 1, NULL);
    struct dk_model *model = dk_models_acquire(models, "g");
    assert_true(model->n == N && model->k == K && model->dtype == DK_FP16 && model->has_bias);
    assert_string_equal(model->bias_name, "b");
    assert_int_equal(model->epilogue, DK_EPILOGUE_RELU);
    dk_model_release(model);
    check_values(models, "g", 0, 63, 35);
    dk_models_free(models);
}

static void test_tensor_choice_is_refused_with_the_list(void **state)
{
    (void)state;
    const struct test_tensor tensors[] = {{"w1", "F32", "[3,2]", matrix_nk, 24},
                                          {"w2", "BF16", "[2,3]", matrix_nk, 12},
                                          {"n", "F32", "[3]", bias_values, 12}};
    write_weights(path, tensors, 3);
    struct dk_model_spec spec = {.name = "gate", .path = path, .layout = DK_LAYOUT_NK};
    REFUSE(&spec, DK_BAD_FILE, "model 'gate'", path, "2 2-D float tensors", "tensor=", "'w1' F32 [3, 2]",
           "'w2' BF16 [2, 3]");
    spec.tensor = "w3";
    REFUSE(&spec, DK_BAD_FILE, path, "tensor 'w3' is not in the file", "'w1'", "'n' F32 [3]");
    write_weights(path, tensors + 2, 1);
    spec.tensor = NULL;
    REFUSE(&spec, DK_BAD_FILE, path, "expected a 2-D tensor", "'n' F32 [3]");
    write_weights(path, tensors, 0);
    REFUSE(&spec, DK_BAD_FILE, path, "found none");
}

static void test_a_long_list_of_tensors_is_cut_and_counted(void **state)
{
    (void)state;
    enum { COUNT = 200 };
    static char names[COUNT][128];
    struct test_tensor tensors[COUNT];
    for (int i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "model.layers.%d.mlp.gate.weight", i);
        tensors[i] = (struct test_tensor){names[i], "F32", "[3,2]", matrix_nk, 24};
    }
    write_weights(path, tensors, COUNT);
    const struct dk_model_spec spec = {.name = "gate", .path = path, .layout = DK_LAYOUT_NK};
    REFUSE(&spec, DK_BAD_FILE, "200 2-D float tensors", "'model.layers.0.mlp.gate.weight' F32 [3, 2]",
           " more");
}

static void test_wrong_types_and_ranks_are_named(void **state)
{
    (void)state;
    const struct test_tensor tensors[] = {{"i", "I32", "[3,2]", matrix_nk, 24},
                                          {"v", "F32", "[3]", bias_values, 12},
                                          {"d", "F64", "[1,3]", matrix_nk, 24},
                                          {"empty", "F32", "[0,2]", matrix_nk, 0}};
    write_weights(path, tensors, 4);
    struct dk_model_spec spec = {.name = "gate", .path = path, .tensor = "i", .layout = DK_LAYOUT_NK};
    REFUSE(&spec, DK_BAD_DTYPE, path, "'i'", "F32, BF16 or F16", "found I32");
    spec.tensor = "d";
    REFUSE(&spec, DK_BAD_DTYPE, "'d'", "found F64");
    spec.tensor = "v";
    REFUSE(&spec, DK_BAD_SHAPE, "'v'", "expected 2 dimensions", "[3]");
    spec.tensor = "empty";
    REFUSE(&spec, DK_BAD_SHAPE, "'empty'", "n 1..", "[0, 2]");
}

static void test_a_bias_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    const struct test_tensor tensors[] = {{"w", "F32", "[3,2]", matrix_nk, 24},
                                          {"b2", "F32", "[2]", bias_values, 8},
                                          {"b31", "F32", "[3,1]", bias_values, 12},
                                          {"bi", "I32", "[3]", bias_values, 12}};
    write_weights(path, tensors, 4);
    struct dk_model_spec spec = {
        .name = "gate", .path = path, .tensor = "w", .bias = "b2", .layout = DK_LAYOUT_NK};
    REFUSE(&spec, DK_BAD_SHAPE, path, "bias tensor 'b2'", "expected shape [3]", "found [2]");
    spec.bias = "b31";
    REFUSE(&spec, DK_BAD_SHAPE, "'b31'", "[3, 1]");
    spec.bias = "bi";
    REFUSE(&spec, DK_BAD_DTYPE, "'bi'", "found I32");
    spec.bias = "missing";
    REFUSE(&spec, DK_BAD_FILE, "'missing' is not in the file");
    spec.path = "/nonexistent.safetensors";
    REFUSE(&spec, DK_IO_ERROR, "model 'gate'", "/nonexistent.safetensors", "No such file");
}

static void test_one_bad_model_of_several_loads_none(void **state)
{
    (void)state;
    write_gate(path, matrix_nk);
    const struct dk_model_spec specs[] = {{.name = "good", .path = path, .layout = DK_LAYOUT_NK},
                                          {.name = "bad", .path = second_path, .layout = DK_LAYOUT_NK}};
    struct dk_models *models = NULL;
    assert_int_equal(dk_models_new(engine, NULL, specs, 2, &models, &error), DK_IO_ERROR);
    assert_non_null(strstr(error.message, "model 'bad'"));
    assert_null(models);
}

static void test_no_models_is_allowed(void **state)
{
    (void)state;
    struct dk_models *models = load(NULL, 0, NULL);
    assert_int_equal(dk_models_count(models), 0);
    struct dk_models_extent extent = dk_models_get_extent(models);
    assert_true(extent.max_n == 0 && extent.max_k == 0 && extent.workspace_bytes == 0 &&
                extent.weights_bytes == 0);
    assert_int_equal(dk_models_reload(models, &error), DK_OK);
    dk_models_free(models);
    dk_models_free(NULL);
}

static void test_extent_is_the_largest_of_each_and_metrics_are_filled(void **state)
{
    (void)state;
    const uint32_t bucket_rows[] = {1, 2};
    struct dk_metrics *metrics = NULL;
    assert_int_equal(dk_metrics_new(bucket_rows, 2, &metrics, &error), DK_OK);
    write_gate(path, matrix_nk);
    static const float wide[5];
    const struct test_tensor tensor = {"w", "F32", "[1,5]", wide, sizeof wide};
    write_weights(second_path, &tensor, 1);
    const struct dk_model_spec specs[] = {{.name = "a", .path = path, .layout = DK_LAYOUT_NK},
                                          {.name = "b", .path = second_path, .layout = DK_LAYOUT_NK},
                                          {.name = "a2", .path = path, .layout = DK_LAYOUT_NK}};
    struct dk_models *models = load(specs, 3, metrics);
    struct dk_models_extent extent = dk_models_get_extent(models);
    assert_true(extent.max_n == 3 && extent.max_k == 5);
    struct dk_model *a = dk_models_acquire(models, "a"), *a2 = NULL;
    for (size_t cursor = 0, i = 0; i < 3; i++) {
        dk_model_release(a2);
        a2 = dk_models_next(models, &cursor);
    }
    assert_string_equal(a2->name, "a2");
    assert_int_equal(a->metrics_shape, 1);
    assert_int_equal(a2->metrics_shape, 1); /* equal shapes share their series */
    assert_int_equal(a->metrics_model, 0);
    assert_int_equal(a2->metrics_model, 2);
    for (uint32_t rows = 1; rows <= 16; rows *= 2)
        assert_true(dk_workspace_bytes(a->weights, rows) <= extent.workspace_bytes);
    assert_int_equal(dk_metrics_get(metrics, DK_METRIC_WEIGHTS_BYTES), extent.weights_bytes);
    assert_true(extent.weights_bytes >= 2 * sizeof matrix_nk + sizeof wide);
    dk_model_release(a);
    dk_model_release(a2);
    dk_model_release(NULL);
    dk_models_free(models);
    dk_metrics_free(metrics);
}

static void test_reload_swaps_and_a_held_version_stays(void **state)
{
    (void)state;
    const uint32_t bucket_rows[] = {1};
    struct dk_metrics *metrics = NULL;
    float y[N];
    assert_int_equal(dk_metrics_new(bucket_rows, 1, &metrics, &error), DK_OK);
    const float next[N * K] = {2, 2, 2, 2, 2, 2};
    write_gate(path, matrix_nk);
    const struct dk_model_spec spec = {.name = "gate", .path = path, .layout = DK_LAYOUT_NK};
    struct dk_models *models = load(&spec, 1, metrics);
    struct dk_model *held = dk_models_acquire(models, "gate");
    write_gate(path, next);
    assert_int_equal(dk_models_reload(models, &error), DK_OK);
    check_values(models, "gate", 22, 22, 22);
    struct dk_model *now = dk_models_acquire(models, "gate");
    assert_true(now->version == 2 && held->version == 1 && now != held);
    assert_int_equal(now->metrics_model, held->metrics_model);
    dk_model_release(now);
    compute(held, y);
    assert_true(y[0] == 21 && y[1] == 43 && y[2] == 65);
    dk_model_release(held);
    dk_models_free(models);
    dk_metrics_free(metrics);
}

static void test_a_bad_file_keeps_the_old_version_and_the_others_are_swapped(void **state)
{
    (void)state;
    const float next[N * K] = {2, 2, 2, 2, 2, 2};
    write_gate(path, matrix_nk);
    write_gate(second_path, matrix_nk);
    const struct dk_model_spec specs[] = {{.name = "a", .path = path, .layout = DK_LAYOUT_NK},
                                          {.name = "b", .path = second_path, .layout = DK_LAYOUT_NK}};
    struct dk_models *models = load(specs, 2, NULL);
    write_raw_weights(path, "{\"broken\"", "", 0);
    write_gate(second_path, next);
    int saved = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY); /* the expected error line */
    dup2(null, STDERR_FILENO);
    dk_status status = dk_models_reload(models, &error);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(null);
    assert_int_equal(status, DK_BAD_FILE);
    assert_non_null(strstr(error.message, "model 'a'"));
    check_values(models, "a", 21, 43, 65);
    check_values(models, "b", 22, 22, 22);
    write_gate(path, next); /* and a good file cures it */
    assert_int_equal(dk_models_reload(models, &error), DK_OK);
    check_values(models, "a", 22, 22, 22);
    dk_models_free(models);
}

static void test_a_reload_may_change_dtype_and_the_bytes_gauge_follows(void **state)
{
    (void)state;
    const uint32_t bucket_rows[] = {1};
    struct dk_metrics *metrics = NULL;
    uint16_t narrow[N * K];
    assert_int_equal(dk_metrics_new(bucket_rows, 1, &metrics, &error), DK_OK);
    write_gate(path, matrix_nk);
    const struct dk_model_spec spec = {.name = "gate", .path = path, .layout = DK_LAYOUT_NK};
    struct dk_models *models = load(&spec, 1, metrics);
    dk_convert_from_float(matrix_nk, narrow, DK_BF16, N * K);
    const struct test_tensor tensor = {"gate.weight", "BF16", "[3,2]", narrow, sizeof narrow};
    write_weights(path, &tensor, 1);
    assert_int_equal(dk_models_reload(models, &error), DK_OK);
    check_values(models, "gate", 21, 43, 65);
    struct dk_model *model = dk_models_acquire(models, "gate");
    assert_int_equal(model->dtype, DK_BF16);
    assert_int_equal(dk_metrics_get(metrics, DK_METRIC_WEIGHTS_BYTES), dk_weights_bytes(model->weights));
    dk_model_release(model);
    assert_int_equal(dk_metrics_get(metrics, DK_METRIC_RELOADS), 1);
    assert_int_equal(dk_metrics_get(metrics, DK_METRIC_RELOAD_FAILURES), 0);
    dk_models_free(models);
    dk_metrics_free(metrics);
}

static void test_a_new_shape_needs_a_restart(void **state)
{
    (void)state;
    const uint32_t bucket_rows[] = {1};
    struct dk_metrics *metrics = NULL;
    assert_int_equal(dk_metrics_new(bucket_rows, 1, &metrics, &error), DK_OK);
    write_gate(path, matrix_nk);
    const struct dk_model_spec spec = {.name = "gate", .path = path, .layout = DK_LAYOUT_NK};
    struct dk_models *models = load(&spec, 1, metrics);
    const struct test_tensor tensor = {"gate.weight", "F32", "[2,3]", matrix_nk, 24};
    write_weights(path, &tensor, 1);
    int saved = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);
    dup2(null, STDERR_FILENO);
    dk_status status = dk_models_reload(models, &error);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(null);
    assert_int_equal(status, DK_BAD_SHAPE);
    assert_non_null(strstr(error.message, "expected n 3 and k 2 as served, found n 2 and k 3"));
    check_values(models, "gate", 21, 43, 65);
    assert_int_equal(dk_metrics_get(metrics, DK_METRIC_RELOADS), 0);
    assert_int_equal(dk_metrics_get(metrics, DK_METRIC_RELOAD_FAILURES), 1);
    dk_models_free(models);
    dk_metrics_free(metrics);
}

struct traffic {
    struct dk_models *models;
    _Atomic bool is_over;
    _Atomic unsigned acquired;
};

static void *acquire_until_over(void *context)
{
    struct traffic *traffic = context;
    uint64_t last_version = 0;
    while (!traffic->is_over) {
        struct dk_model *model = dk_models_acquire(traffic->models, "gate");
        if (model == NULL || model->version < last_version || model->n != N ||
            dk_weights_bytes(model->weights) < sizeof matrix_nk)
            abort(); /* cmocka's asserts belong to the main thread */
        last_version = model->version;
        traffic->acquired++;
        dk_model_release(model);
    }
    return NULL;
}

static void test_references_hold_while_a_reload_swaps(void **state)
{
    (void)state;
    write_gate(path, matrix_nk);
    const struct dk_model_spec spec = {.name = "gate", .path = path, .layout = DK_LAYOUT_NK};
    struct traffic traffic = {.models = load(&spec, 1, NULL)};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, acquire_until_over, &traffic), 0);
    for (int i = 0; i < 50; i++) {
        unsigned before = traffic.acquired;
        assert_int_equal(dk_models_reload(traffic.models, &error), DK_OK);
        while (traffic.acquired == before) /* somebody ran between two reloads */
            sched_yield();
    }
    assert_true(dk_models_get_extent(traffic.models).weights_bytes > 0);
    traffic.is_over = true;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    struct dk_model *model = dk_models_acquire(traffic.models, "gate");
    assert_true(model->version == 51);
    assert_int_equal(model->reference_count, 2);
    dk_model_release(model);
    dk_models_free(traffic.models);
}

static void *reload_some(void *context)
{
    struct traffic *traffic = context;
    for (int i = 0; i < 10; i++) {
        if (dk_models_reload(traffic->models, NULL) != DK_OK)
            abort();
    }
    return NULL;
}

static void test_reloads_from_two_threads_take_turns(void **state)
{
    (void)state;
    write_gate(path, matrix_nk);
    const struct dk_model_spec spec = {.name = "gate", .path = path, .layout = DK_LAYOUT_NK};
    struct traffic traffic = {.models = load(&spec, 1, NULL)};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, reload_some, &traffic), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    struct dk_model *model = dk_models_acquire(traffic.models, "gate");
    assert_true(model->version == 21);
    dk_model_release(model);
    dk_models_free(traffic.models);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_only_matrix_is_taken_and_computes),
        TEST(test_layout_kn_bias_and_epilogue_of_the_spec),
        TEST(test_tensor_choice_is_refused_with_the_list),
        TEST(test_a_long_list_of_tensors_is_cut_and_counted),
        TEST(test_wrong_types_and_ranks_are_named),
        TEST(test_a_bias_that_does_not_fit_is_refused),
        TEST(test_one_bad_model_of_several_loads_none),
        TEST(test_no_models_is_allowed),
        TEST(test_extent_is_the_largest_of_each_and_metrics_are_filled),
        TEST(test_reload_swaps_and_a_held_version_stays),
        TEST(test_a_bad_file_keeps_the_old_version_and_the_others_are_swapped),
        TEST(test_a_reload_may_change_dtype_and_the_bytes_gauge_follows),
        TEST(test_a_new_shape_needs_a_restart),
        TEST(test_references_hold_while_a_reload_swaps),
        TEST(test_reloads_from_two_threads_take_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
