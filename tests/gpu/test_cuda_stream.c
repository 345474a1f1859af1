/* test_cuda_stream.c: dk_enqueue with device memory on the caller's stream: asynchronous, capturable in a
 * graph, many streams at once, and products without a model that do not fit the staging in one piece. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/gpu/device_product.h"

static struct dk_engine *engine;

enum { STREAM_COUNT = 16 };

static const struct dk_test_case router = {.m = 17,
                                           .n = 256,
                                           .k = 7168,
                                           .a_dtype = DK_BF16,
                                           .b_dtype = DK_BF16,
                                           .c_dtype = DK_FP32,
                                           .layout = DK_LAYOUT_NK,
                                           .fill = DK_TEST_RANDOM,
                                           .seed = 5};

static void test_enqueue_can_be_captured_in_a_graph(void **state)
{
    (void)state;
    struct device_product p;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    device_product_init(&p, engine, &router);
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    p.call.stream = stream;
    cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin capture");
    assert_int_equal(dk_enqueue(p.weights, &p.call, NULL), DK_OK);
    cuda_check(cudaStreamEndCapture(stream, &graph), "end capture");
    cuda_check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
    for (int i = 0; i < 3; i++) {
        device_product_poison(&p);
        cuda_check(cudaGraphLaunch(exec, stream), "launch");
        cuda_check(cudaStreamSynchronize(stream), "synchronise");
        device_product_check(&p);
    }
    cuda_check(cudaGraphExecDestroy(exec), "destroy exec");
    cuda_check(cudaGraphDestroy(graph), "destroy graph");
    cuda_check(cudaStreamDestroy(stream), "destroy stream");
    device_product_deinit(&p);
}

static void test_many_streams_at_once(void **state)
{
    (void)state;
    struct device_product products[STREAM_COUNT];
    cudaStream_t streams[STREAM_COUNT];
    for (uint32_t i = 0; i < STREAM_COUNT; i++) {
        struct dk_test_case what = router;
        what.m = 1 + i * 5;
        what.n = 200 + i;
        what.k = 1000 + 37 * i;
        what.c_dtype = i % 2 ? DK_BF16 : DK_FP32;
        what.seed = i;
        device_product_init(&products[i], engine, &what);
        cuda_check(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking), "stream");
        products[i].call.stream = streams[i];
    }
    for (int round = 0; round < 50; round++)
        for (uint32_t i = 0; i < STREAM_COUNT; i++)
            assert_int_equal(dk_enqueue(products[i].weights, &products[i].call, NULL), DK_OK);
    cuda_check(cudaDeviceSynchronize(), "synchronise");
    for (uint32_t i = 0; i < STREAM_COUNT; i++) {
        device_product_check(&products[i]);
        cuda_check(cudaStreamDestroy(streams[i]), "destroy stream");
        device_product_deinit(&products[i]);
    }
}

/* A B that comes with the request: its k is unknown at load, so the rows may not fit the staging at once. */
static void test_scratch_weights_in_pieces(void **state)
{
    (void)state;
    struct dk_test_case what = {
        .m = 700, .n = 40, .k = 10000, .b_dtype = DK_FP16, .layout = DK_LAYOUT_KN, .seed = 9};
    struct dk_test_product *product = dk_test_product_new(&what);
    struct dk_weights_desc desc = dk_test_weights_desc(product);
    struct dk_weights *scratch = NULL;
    float *c = calloc(what.m * what.n, sizeof *c);
    assert_non_null(c);
    assert_int_equal(dk_weights_new_scratch(engine, 1 << 20, &scratch, NULL), DK_OK);
    assert_int_equal(dk_weights_assign(scratch, &desc, NULL), DK_OK);
    assert_true(dk_test_run_rows(product, engine, scratch, 0, what.m, c));
    assert_true(dk_test_check_rows(product, scratch, 0, what.m, c));
    struct dk_weights_desc larger = desc;
    larger.n = 60; /* 1.2 MB do not fit 1 MiB */
    struct dk_error error;
    assert_int_equal(dk_weights_assign(scratch, &larger, &error), DK_TOO_LARGE);
    dk_weights_free(scratch);
    free(c);
    dk_test_product_free(product);
}

int main(void)
{
    struct dk_engine_options options = {.backend = DK_BACKEND_CUDA};
    struct dk_error error;
    if (dk_engine_new(&options, &engine, &error) != DK_OK) {
        fprintf(stderr, "# without cuda: %s\n", error.message);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_enqueue_can_be_captured_in_a_graph),
        cmocka_unit_test(test_many_streams_at_once),
        cmocka_unit_test(test_scratch_weights_in_pieces),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    dk_engine_free(engine);
    return failed;
}
