/* test_engine.c: which backend is taken and why; refusals of wrong arguments. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/kernels/fake_path.h"
#include "tests/unit/kernels/gemm_reference.h"

static struct dk_engine *open_engine(struct dk_engine_options options)
{
    struct dk_engine *engine = NULL;
    struct dk_error error;
    if (dk_engine_new(&options, &engine, &error) != DK_OK) {
        fail_msg("%s", error.message);
    }
    return engine;
}

static void expect_refusal(struct dk_engine_options options, dk_status status, const char *words)
{
    struct dk_engine *engine = (struct dk_engine *)(void *)&options;
    struct dk_error error;
    assert_int_equal(dk_engine_new(&options, &engine, &error), status);
    assert_ptr_equal(engine, &options); /* untouched */
    assert_int_equal(error.status, status);
    if (!strstr(error.message, words)) {
        fail_msg("\"%s\" does not say \"%s\"", error.message, words);
    }
}

static void expect_cpu_because(const char *plugin_path, const char *words)
{
    struct dk_engine *engine = open_engine((struct dk_engine_options){.plugin_path = plugin_path});
    const struct dk_engine_info *info = dk_engine_get_info(engine);
    assert_string_equal(info->backend, "cpu");
    assert_int_equal(strncmp(info->reason, "cpu: ", 5), 0);
    if (!strstr(info->reason, words)) {
        fail_msg("\"%s\" does not say \"%s\"", info->reason, words);
    }
    dk_engine_free(engine);
}

static void test_info_of_the_cpu_backend(void **state)
{
    (void)state;
    struct dk_engine *engine = open_engine(
        (struct dk_engine_options){.backend = DK_BACKEND_CPU, .thread_count = 3, .max_tokens = 100});
    const struct dk_engine_info *info = dk_engine_get_info(engine);
    assert_string_equal(info->backend, "cpu");
    assert_string_equal(info->reason, "cpu: asked for");
    assert_int_equal(info->thread_count, 3);
    assert_int_equal(info->max_tokens, 128);
    assert_int_equal(info->bucket_count, 10);
    assert_true(info->isa[0] != '\0' && info->device_name[0] != '\0' && info->driver_version[0] == '\0');
    assert_int_equal(dk_engine_bucket_rows(engine, 9), 128);
    assert_int_equal(dk_engine_bucket_rows(engine, 10), 0);
    assert_int_equal(dk_engine_bucket_index(engine, 65), 8);
    assert_int_equal(dk_engine_bucket_index(engine, 129), UINT32_MAX);
    dk_engine_free(engine);
    dk_engine_free(NULL);
}

static void test_defaults(void **state)
{
    (void)state;
    struct dk_engine *engine = open_engine((struct dk_engine_options){.backend = DK_BACKEND_CPU});
    const struct dk_engine_info *info = dk_engine_get_info(engine);
    assert_int_equal(info->max_tokens, 4096);
    assert_int_equal(info->bucket_count, 25);
    assert_true(info->thread_count >= 1);
    dk_engine_free(engine);
}

static void test_wrong_options_are_refused(void **state)
{
    (void)state;
    expect_refusal((struct dk_engine_options){.backend = (dk_backend_kind)9}, DK_BAD_VALUE, "backend 9");
    expect_refusal((struct dk_engine_options){.max_tokens = 65537}, DK_BAD_VALUE, "65537");
    expect_refusal((struct dk_engine_options){.backend = DK_BACKEND_CPU, .thread_count = 5000}, DK_BAD_VALUE,
                   "5000");
    expect_refusal((struct dk_engine_options){.backend = DK_BACKEND_CPU, .cpu_isa = "sse9"}, DK_BAD_VALUE,
                   "sse9");
}

static void test_c75_auto_falls_back_to_cpu_and_says_why(void **state)
{
    (void)state;
    expect_cpu_because("/nonexistent/libdecomposek_cuda.so", "/nonexistent/libdecomposek_cuda.so not found");
    expect_cpu_because(fake_path(FAKE_OLD_ABI), "ABI 999");
    expect_cpu_because(fake_path(FAKE_NO_ENTRY), "no symbol dk_cuda_plugin");
    expect_cpu_because(fake_path(FAKE_NO_DEVICE), "no CUDA device 0");
    expect_cpu_because("/proc/version", "does not load");
}

static void test_c75_demanded_cuda_is_refused_with_the_reason(void **state)
{
    (void)state;
    struct dk_engine_options options = {.backend = DK_BACKEND_CUDA, .plugin_path = "/nonexistent/x.so"};
    expect_refusal(options, DK_UNAVAILABLE, "/nonexistent/x.so not found");
    options.plugin_path = fake_path(FAKE_OLD_ABI);
    expect_refusal(options, DK_UNAVAILABLE, "ABI 999");
    options.plugin_path = fake_path(FAKE_NO_DEVICE);
    options.device_index = 7;
    expect_refusal(options, DK_UNAVAILABLE, "no CUDA device 7");
}

static void test_c75_missing_driver_is_named(void **state)
{
    (void)state;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver) {
        dlclose(driver);
        skip();
    }
    expect_cpu_because(fake_path(FAKE_NEEDS_DRIVER), "cpu: no CUDA driver (libcuda.so.1 missing)");
}

static void test_a_good_plugin_is_taken(void **state)
{
    (void)state;
    struct dk_engine *engine = open_engine(
        (struct dk_engine_options){.plugin_path = fake_path(FAKE_GOOD), .device_index = 3, .max_tokens = 5});
    assert_string_equal(dk_engine_get_info(engine)->backend, "cuda");
    assert_string_equal(dk_engine_get_info(engine)->reason, "cuda: fake device 3, 8 tokens");
    assert_int_equal(dk_engine_get_info(engine)->max_tokens, 8);
    dk_engine_free(engine);
}

static void expect_weights_refusal(struct dk_engine *engine, struct dk_weights_desc desc, dk_status status,
                                   const char *words)
{
    struct dk_weights *weights = (struct dk_weights *)(void *)&desc;
    struct dk_error error;
    assert_int_equal(dk_weights_new(engine, &desc, &weights, &error), status);
    assert_ptr_equal(weights, &desc);
    if (!strstr(error.message, words)) {
        fail_msg("\"%s\" does not say \"%s\"", error.message, words);
    }
}

static void test_wrong_weights_are_refused(void **state)
{
    (void)state;
    struct dk_engine *engine = open_engine((struct dk_engine_options){.backend = DK_BACKEND_CPU});
    float data[1] = {1};
    struct dk_weights_desc good = {1, 1, DK_FP32, DK_LAYOUT_KN, data, NULL}, bad = good;
    bad.n = 0;
    expect_weights_refusal(engine, bad, DK_BAD_SHAPE, "0");
    bad = good;
    bad.k = (uint64_t)DK_MAX_K + 1;
    expect_weights_refusal(engine, bad, DK_BAD_SHAPE, "16777217");
    bad = good;
    bad.dtype = DK_INT32;
    expect_weights_refusal(engine, bad, DK_BAD_DTYPE, "");
    bad = good;
    bad.data = NULL;
    expect_weights_refusal(engine, bad, DK_BAD_VALUE, "data");
    bad = good;
    bad.layout = (dk_layout)5;
    expect_weights_refusal(engine, bad, DK_BAD_VALUE, "5");
    dk_engine_free(engine);
}

struct call_fixture {
    struct dk_engine *engine;
    struct dk_weights *weights;
    struct dk_call good;
    float a[2 * 1000], c[2 * 3];
    void *workspace;
};

static void expect_call_refusal(const struct call_fixture *f, struct dk_call call, dk_status status,
                                const char *words)
{
    struct dk_error error;
    assert_int_equal(dk_enqueue(f->weights, &call, &error), status);
    if (!strstr(error.message, words)) {
        fail_msg("\"%s\" does not say \"%s\"", error.message, words);
    }
    assert_int_equal(dk_run_host(f->weights, &call, NULL, NULL), status);
}

static void test_wrong_calls_are_refused(void **state)
{
    (void)state;
    static struct call_fixture f;
    static float b[1000 * 3];
    f.engine = open_engine(
        (struct dk_engine_options){.backend = DK_BACKEND_CPU, .thread_count = 2, .max_tokens = 2});
    struct dk_weights_desc desc = {3, 1000, DK_FP32, DK_LAYOUT_KN, b, NULL};
    assert_int_equal(dk_weights_new(f.engine, &desc, &f.weights, NULL), DK_OK);
    assert_int_equal(dk_workspace_new(f.engine, dk_workspace_bytes(f.weights, 2), &f.workspace, NULL), DK_OK);
    f.good = (struct dk_call){
        .m = 2, .a = f.a, .a_row_elements = 1000, .c = f.c, .c_row_elements = 3, .workspace = f.workspace};
    assert_int_equal(dk_enqueue(f.weights, &f.good, NULL), DK_OK);
    struct dk_call bad = f.good;
    bad.m = 3;
    expect_call_refusal(&f, bad, DK_TOO_LARGE, "m=3");
    bad = f.good;
    bad.a_row_elements = 999;
    expect_call_refusal(&f, bad, DK_BAD_SHAPE, "999");
    bad = f.good;
    bad.c_row_elements = 2;
    expect_call_refusal(&f, bad, DK_BAD_SHAPE, "2 elements");
    bad = f.good;
    bad.a_row_elements = SIZE_MAX;
    expect_call_refusal(&f, bad, DK_BAD_SHAPE, "overflow");
    bad = f.good;
    bad.a_dtype = DK_INT32;
    expect_call_refusal(&f, bad, DK_BAD_DTYPE, "A (3)");
    bad = f.good;
    bad.c_dtype = (dk_dtype)77;
    expect_call_refusal(&f, bad, DK_BAD_DTYPE, "C (77)");
    bad = f.good;
    bad.epilogue = (dk_epilogue)DK_EPILOGUE_COUNT;
    expect_call_refusal(&f, bad, DK_BAD_VALUE, "epilogue");
    bad = f.good;
    bad.a = NULL;
    expect_call_refusal(&f, bad, DK_BAD_VALUE, "a is NULL");
    bad = f.good;
    bad.c = NULL;
    expect_call_refusal(&f, bad, DK_BAD_VALUE, "c is NULL");
    bad = f.good;
    bad.workspace = NULL;
    expect_call_refusal(&f, bad, DK_BAD_VALUE, "workspace is NULL");
    bad = f.good;
    bad.workspace = (char *)f.workspace + 4;
    expect_call_refusal(&f, bad, DK_BAD_VALUE, "64-byte");
    dk_workspace_free(f.engine, f.workspace);
    dk_weights_free(f.weights);
    dk_weights_free(NULL);
    dk_engine_free(f.engine);
}

static void test_plans_by_m(void **state)
{
    (void)state;
    struct dk_engine *engine = open_engine(
        (struct dk_engine_options){.backend = DK_BACKEND_CPU, .thread_count = 2, .max_tokens = 256});
    struct dk_test_case what = {.m = 1, .n = 256, .k = 7168, .b_dtype = DK_BF16};
    struct dk_test_product *product = dk_test_product_new(&what);
    struct dk_weights *weights = dk_test_weights_new(product, engine);
    size_t before = 0;
    for (uint64_t m = 1; m <= 256; m++) {
        const struct dk_plan *plan = dk_plan_get(weights, m);
        assert_true(plan->bucket_rows >= m && plan->bucket_rows < 2 * m);
        assert_int_equal(plan->split_k, 16);
        assert_int_equal(plan->chunk_k, 448);
        assert_non_null(strchr(plan->variant, '_'));
        /* A workspace for m rows serves fewer as well. */
        size_t bytes = dk_workspace_bytes(weights, m);
        assert_true(bytes >= plan->workspace_bytes && bytes >= before);
        before = bytes;
    }
    assert_null(dk_plan_get(weights, 0));
    assert_null(dk_plan_get(weights, 257));
    assert_true(dk_weights_bytes(weights) >= 256 * 7168 * 2);
    dk_weights_free(weights);
    dk_test_product_free(product);
    dk_engine_free(engine);
}

static void test_scratch_takes_one_b_after_another(void **state)
{
    (void)state;
    struct dk_engine *engine =
        open_engine((struct dk_engine_options){.backend = DK_BACKEND_CPU, .thread_count = 2});
    struct dk_weights *scratch;
    struct dk_error error;
    assert_int_equal(dk_weights_new_scratch(engine, 1 << 20, &scratch, &error), DK_OK);
    struct dk_call empty = {.m = 0};
    assert_int_equal(dk_enqueue(scratch, &empty, &error), DK_BAD_VALUE);
    size_t always_enough = dk_workspace_bytes(scratch, 4096);
    for (uint32_t i = 0; i < 12; i++) {
        struct dk_test_case what = {.m = 1 + i * 3,
                                    .n = 1 + i * 29,
                                    .k = 1200 - i * 97,
                                    .b_dtype = (dk_dtype)(i % 3),
                                    .layout = (dk_layout)(i % 2),
                                    .has_bias = i % 3 == 0,
                                    .seed = i};
        struct dk_test_product *product = dk_test_product_new(&what);
        struct dk_weights_desc desc = dk_test_weights_desc(product);
        if (dk_weights_assign(scratch, &desc, &error) != DK_OK) {
            assert_int_equal(error.status, DK_TOO_LARGE);
            assert_true(what.n * what.k * dk_dtype_bytes(what.b_dtype) > 800000);
        } else {
            float c[34 * 320];
            assert_true(dk_workspace_bytes(scratch, what.m) <= always_enough);
            assert_true(dk_test_run_rows(product, engine, scratch, 0, what.m, c));
            assert_true(dk_test_check_rows(product, scratch, 0, what.m, c));
        }
        dk_test_product_free(product);
    }
    float big[1] = {0};
    struct dk_weights_desc desc = {1 << 20, 1 << 10, DK_FP32, DK_LAYOUT_KN, big, NULL};
    assert_int_equal(dk_weights_assign(scratch, &desc, &error), DK_TOO_LARGE);
    assert_non_null(strstr(error.message, "1048576"));
    dk_weights_free(scratch);
    dk_engine_free(engine);
}

static void test_only_scratch_can_be_assigned(void **state)
{
    (void)state;
    struct dk_engine *engine = open_engine((struct dk_engine_options){.backend = DK_BACKEND_CPU});
    float data[1] = {1};
    struct dk_weights_desc desc = {1, 1, DK_FP32, DK_LAYOUT_KN, data, NULL};
    struct dk_weights *weights;
    assert_int_equal(dk_weights_new(engine, &desc, &weights, NULL), DK_OK);
    assert_int_equal(dk_weights_assign(weights, &desc, NULL), DK_BAD_VALUE);
    struct dk_weights *none = NULL;
    assert_int_equal(dk_weights_new_scratch(engine, 0, &none, NULL), DK_BAD_VALUE);
    assert_null(none);
    dk_weights_free(weights);
    dk_engine_free(engine);
}

struct user {
    struct dk_engine *engine;
    const struct dk_test_product *product;
    const struct dk_weights *weights;
    float c[5 * 70];
    bool is_right;
};

static void *use_engine(void *argument)
{
    struct user *user = argument;
    user->is_right = true;
    for (int i = 0; i < 40; i++) {
        uint64_t rows = 1 + (uint64_t)i % 5;
        user->is_right =
            dk_test_run_rows(user->product, user->engine, user->weights, 0, rows, user->c) && user->is_right;
    }
    user->is_right = dk_test_check_rows(user->product, user->weights, 0, 5, user->c) && user->is_right;
    return NULL;
}

static void test_threads_take_turns(void **state)
{
    (void)state;
    struct dk_engine *engine =
        open_engine((struct dk_engine_options){.backend = DK_BACKEND_CPU, .thread_count = 2});
    struct dk_test_case what = {.m = 5, .n = 70, .k = 2000, .b_dtype = DK_BF16};
    struct dk_test_product *product = dk_test_product_new(&what);
    struct dk_weights *weights = dk_test_weights_new(product, engine);
    static struct user users[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        users[i] = (struct user){.engine = engine, .product = product, .weights = weights};
        assert_int_equal(pthread_create(&threads[i], NULL, use_engine, &users[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_true(users[i].is_right);
    }
    dk_weights_free(weights);
    dk_test_product_free(product);
    dk_engine_free(engine);
}

/* Whether OpenBLAS is there and wins is up to the machine; the product is right either way. */
static void test_blas_as_a_candidate_keeps_the_bound(void **state)
{
    (void)state;
    struct dk_engine *engine = open_engine((struct dk_engine_options){
        .backend = DK_BACKEND_CPU, .thread_count = 2, .cpu_isa = "portable", .use_blas = true});
    for (uint32_t i = 0; i < 2; i++) {
        struct dk_test_case what = {.m = 300,
                                    .n = 65,
                                    .k = 1111,
                                    .a_dtype = DK_FP16,
                                    .b_dtype = DK_BF16,
                                    .layout = (dk_layout)i,
                                    .has_bias = true,
                                    .epilogue = DK_EPILOGUE_SIGMOID,
                                    .c_pad = 3,
                                    .a_pad = 1,
                                    .seed = i};
        assert_true(dk_test_case_passes(&what, &engine, 1));
    }
    dk_engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_info_of_the_cpu_backend),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_wrong_options_are_refused),
        cmocka_unit_test(test_c75_auto_falls_back_to_cpu_and_says_why),
        cmocka_unit_test(test_c75_demanded_cuda_is_refused_with_the_reason),
        cmocka_unit_test(test_c75_missing_driver_is_named),
        cmocka_unit_test(test_a_good_plugin_is_taken),
        cmocka_unit_test(test_wrong_weights_are_refused),
        cmocka_unit_test(test_wrong_calls_are_refused),
        cmocka_unit_test(test_plans_by_m),
        cmocka_unit_test(test_scratch_takes_one_b_after_another),
        cmocka_unit_test(test_only_scratch_can_be_assigned),
        cmocka_unit_test(test_threads_take_turns),
        cmocka_unit_test(test_blas_as_a_candidate_keeps_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
