/* test_cuda_libraries.c: plans of cuBLAS and cuBLASLt keep our contract: any epilogue, bias, type, stride and
 * alignment, in a graph, and the same bits each time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/device_product.h"

enum { PLANS_MAX = 256, REPEATS = 50 };

static struct dk_engine *engine;

static bool is_library(const struct dk_plan *plan)
{
    return strncmp(plan->variant, "cublas", strlen("cublas")) == 0;
}

/* The libraries' plans for the case's rows. */
static uint32_t list_plans(const struct device_product *p, struct dk_plan *out)
{
    struct dk_plan all[PLANS_MAX];
    uint32_t count = dk_plan_candidates(p->weights, p->call.m, all, PLANS_MAX), kept = 0;
    assert_true(count <= PLANS_MAX);
    for (uint32_t i = 0; i < count; i++)
        if (is_library(&all[i]))
            out[kept++] = all[i];
    return kept;
}

static void use_plan(struct device_product *p, const struct dk_plan *plan)
{
    struct dk_error error;
    uint32_t bucket = dk_engine_bucket_index(engine, p->call.m);
    if (dk_plan_set(p->weights, bucket, plan, &error) != DK_OK)
        fail_msg("%s", error.message);
    assert_string_equal(dk_plan_get(p->weights, p->call.m)->variant, plan->variant);
    cuda_check(cudaDeviceSynchronize(), "synchronise");
    dk_workspace_free(engine, p->d_workspace);
    assert_int_equal(dk_workspace_new(engine, plan->workspace_bytes, &p->d_workspace, NULL), DK_OK);
    cuda_check(cudaMemset(p->d_workspace, 0xff, plan->workspace_bytes), "poison workspace");
    p->call.workspace = p->d_workspace;
    device_product_poison(p);
}

static void enqueue(const struct device_product *p)
{
    struct dk_error error;
    if (dk_enqueue(p->weights, &p->call, &error) != DK_OK)
        fail_msg("%s", error.message);
}

static void check_case(const struct dk_test_case *what)
{
    struct dk_plan plans[PLANS_MAX];
    struct device_product p;
    device_product_init(&p, engine, what);
    uint32_t count = list_plans(&p, plans);
    assert_true(count >= 1);
    for (uint32_t i = 0; i < count; i++) {
        print_message("  m=%llu n=%llu k=%llu %s\n", (unsigned long long)what->m, (unsigned long long)what->n,
                      (unsigned long long)what->k, plans[i].variant);
        use_plan(&p, &plans[i]);
        enqueue(&p);
        device_product_check(&p);
    }
    device_product_deinit(&p);
}

static void test_libraries_offer_plans_and_none_where_they_are_not_ours_to_trust(void **state)
{
    (void)state;
    struct dk_plan plans[PLANS_MAX];
    static const dk_dtype dtypes[] = {DK_BF16, DK_FP16, DK_FP32};
    for (size_t i = 0; i < 3; i++) {
        struct dk_test_case what = {.m = 16, .n = 256, .k = 512, .a_dtype = dtypes[i], .b_dtype = dtypes[i]};
        struct device_product p;
        device_product_init(&p, engine, &what);
        uint32_t count = list_plans(&p, plans);
        if (dtypes[i] == DK_FP32)
            assert_int_equal(count, 0);
        else
            assert_true(count >= 2); /* cuBLAS, and a heuristic at least */
        device_product_deinit(&p);
    }
}

static void test_integer_products_are_exact_for_each_shape(void **state)
{
    (void)state;
    static const struct {
        uint64_t m, n, k;
    } shapes[] = {{1, 256, 7168},   {5, 256, 7168}, {16, 128, 2880}, {17, 255, 7177}, {64, 16, 512},
                  {300, 160, 5120}, {1, 1, 1},      {3, 31, 33},     {129, 384, 7168}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct dk_test_case what = {.m = shapes[i].m,
                                    .n = shapes[i].n,
                                    .k = shapes[i].k,
                                    .a_dtype = DK_BF16,
                                    .b_dtype = i % 2 ? DK_FP16 : DK_BF16,
                                    .c_dtype = DK_FP32,
                                    .layout = i % 3 ? DK_LAYOUT_NK : DK_LAYOUT_KN,
                                    .fill = DK_TEST_INTEGERS,
                                    .seed = (uint32_t)i};
        what.a_dtype = what.b_dtype;
        check_case(&what);
    }
}

static void test_epilogue_bias_and_output_type_are_finished_by_our_reduction(void **state)
{
    (void)state;
    static const dk_dtype c_dtypes[] = {DK_FP32, DK_BF16, DK_FP16};
    for (int e = 0; e < DK_EPILOGUE_COUNT; e++)
        for (size_t c = 0; c < 3; c++) {
            struct dk_test_case what = {.m = 33,
                                        .n = 256,
                                        .k = 4096,
                                        .a_dtype = DK_BF16,
                                        .b_dtype = DK_BF16,
                                        .c_dtype = c_dtypes[c],
                                        .layout = DK_LAYOUT_NK,
                                        .epilogue = (dk_epilogue)e,
                                        .has_bias = (e + (int)c) % 2 == 0,
                                        .fill = DK_TEST_RANDOM,
                                        .seed = 3};
            check_case(&what);
        }
}

static void test_strides_and_unaligned_pointers_are_served(void **state)
{
    (void)state;
    static const struct {
        size_t a_pad, c_pad, a_offset, c_offset;
    } ways[] = {{8, 0, 0, 0}, {1, 0, 0, 0}, {0, 4, 0, 0}, {0, 3, 0, 0},
                {0, 0, 2, 0}, {0, 0, 0, 4}, {3, 5, 2, 4}};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct dk_test_case what = {.m = 20,
                                    .n = 256,
                                    .k = 2880,
                                    .a_dtype = DK_BF16,
                                    .b_dtype = DK_BF16,
                                    .c_dtype = DK_FP32,
                                    .layout = DK_LAYOUT_NK,
                                    .a_pad = ways[i].a_pad,
                                    .c_pad = ways[i].c_pad,
                                    .a_offset = ways[i].a_offset,
                                    .c_offset = ways[i].c_offset,
                                    .fill = DK_TEST_CANCELLING,
                                    .seed = 5};
        check_case(&what);
    }
}

static void test_a_of_another_type_falls_back(void **state)
{
    (void)state;
    struct dk_test_case what = {.m = 20,
                                .n = 64,
                                .k = 1000,
                                .a_dtype = DK_FP32,
                                .b_dtype = DK_BF16,
                                .c_dtype = DK_FP32,
                                .layout = DK_LAYOUT_NK,
                                .fill = DK_TEST_INTEGERS};
    check_case(&what);
}

static void test_rows_below_the_bucket_are_served(void **state)
{
    (void)state;
    struct dk_plan plans[PLANS_MAX];
    struct dk_test_case what = {.m = 64,
                                .n = 256,
                                .k = 7168,
                                .a_dtype = DK_BF16,
                                .b_dtype = DK_BF16,
                                .c_dtype = DK_FP32,
                                .layout = DK_LAYOUT_NK,
                                .fill = DK_TEST_INTEGERS};
    struct device_product p;
    device_product_init(&p, engine, &what);
    uint32_t count = list_plans(&p, plans);
    for (uint32_t i = 0; i < count; i++)
        for (uint64_t m = 33; m <= 64; m += 10) {
            use_plan(&p, &plans[i]);
            p.call.m = m;
            enqueue(&p);
            device_product_check(&p);
            p.call.m = what.m;
        }
    device_product_deinit(&p);
}

static void test_replayed_graphs_give_the_same_bits(void **state)
{
    (void)state;
    struct dk_plan plans[PLANS_MAX];
    struct dk_test_case what = {.m = 256,
                                .n = 256,
                                .k = 7168,
                                .a_dtype = DK_BF16,
                                .b_dtype = DK_BF16,
                                .c_dtype = DK_FP32,
                                .layout = DK_LAYOUT_NK,
                                .epilogue = DK_EPILOGUE_RELU,
                                .fill = DK_TEST_RANDOM};
    struct device_product p;
    cudaStream_t stream;
    device_product_init(&p, engine, &what);
    void *first = malloc(p.c_bytes), *again = malloc(p.c_bytes);
    assert_true(first && again);
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream");
    uint32_t count = list_plans(&p, plans);
    for (uint32_t i = 0; i < count; i++) {
        cudaGraph_t graph;
        cudaGraphExec_t replay;
        use_plan(&p, &plans[i]);
        p.call.stream = stream;
        cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin");
        enqueue(&p);
        cuda_check(cudaStreamEndCapture(stream, &graph), "end");
        cuda_check(cudaGraphInstantiate(&replay, graph, 0), "instantiate");
        for (int round = 0; round < REPEATS; round++) {
            device_product_poison(&p);
            cuda_check(cudaGraphLaunch(replay, stream), "replay");
            device_product_download(&p, round == 0 ? first : again);
            if (round == 0)
                device_product_check(&p);
            else
                assert_memory_equal(first, again, p.c_bytes);
        }
        cuda_check(cudaGraphExecDestroy(replay), "destroy");
        cuda_check(cudaGraphDestroy(graph), "destroy");
    }
    cuda_check(cudaStreamDestroy(stream), "destroy");
    free(first);
    free(again);
    device_product_deinit(&p);
}

static void test_invariant_engines_leave_the_libraries_out(void **state)
{
    (void)state;
    struct dk_engine_options options = {.backend = DK_BACKEND_CUDA, .is_batch_invariant = true};
    struct dk_engine *usual = engine;
    struct dk_plan plans[PLANS_MAX];
    assert_int_equal(dk_engine_new(&options, &engine, NULL), DK_OK);
    struct dk_test_case what = {.m = 16, .n = 256, .k = 512, .a_dtype = DK_BF16, .b_dtype = DK_BF16};
    struct device_product p;
    device_product_init(&p, engine, &what);
    assert_int_equal(list_plans(&p, plans), 0);
    device_product_deinit(&p);
    dk_engine_free(engine);
    engine = usual;
}

static bool are_libraries_here(void)
{
    static const uint16_t data[16 * 16];
    struct dk_weights_desc desc = {16, 16, DK_BF16, DK_LAYOUT_NK, data, NULL};
    struct dk_plan plans[PLANS_MAX];
    struct dk_weights *weights = NULL;
    bool is_found = false;
    if (dk_weights_new(engine, &desc, &weights, NULL) != DK_OK)
        return false;
    uint32_t count = dk_plan_candidates(weights, 1, plans, PLANS_MAX);
    for (uint32_t i = 0; i < count && i < PLANS_MAX; i++)
        is_found = is_found || is_library(&plans[i]);
    dk_weights_free(weights);
    return is_found;
}

int main(void)
{
    struct dk_engine_options options = {.backend = DK_BACKEND_CUDA};
    struct dk_error error;
    if (dk_engine_new(&options, &engine, &error) != DK_OK) {
        fprintf(stderr, "# without cuda: %s\n", error.message);
        return 0;
    }
    if (!are_libraries_here()) {
        fprintf(stderr, "# without cuda libraries: cuBLAS and cuBLASLt were not found\n");
        dk_engine_free(engine);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_libraries_offer_plans_and_none_where_they_are_not_ours_to_trust),
        cmocka_unit_test(test_integer_products_are_exact_for_each_shape),
        cmocka_unit_test(test_epilogue_bias_and_output_type_are_finished_by_our_reduction),
        cmocka_unit_test(test_strides_and_unaligned_pointers_are_served),
        cmocka_unit_test(test_a_of_another_type_falls_back),
        cmocka_unit_test(test_rows_below_the_bucket_are_served),
        cmocka_unit_test(test_replayed_graphs_give_the_same_bits),
        cmocka_unit_test(test_invariant_engines_leave_the_libraries_out),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    dk_engine_free(engine);
    return failed;
}
