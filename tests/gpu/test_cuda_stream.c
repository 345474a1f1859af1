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
#include <cuda_runtime_api.h>

#include "tests/unit/kernels/gemm_reference.h"

static struct dk_engine *engine;

enum { STREAM_COUNT = 16, GUARD_BYTES = 256, POISON = 0xA5 };

/* One product's device memory. C lies between guards. */
struct device_product {
    struct dk_test_product *product;
    struct dk_weights *weights;
    void *d_a, *d_workspace;
    unsigned char *d_c; /* guard, C, guard */
    size_t c_bytes;
    struct dk_call call;
};

static void check(cudaError_t error, const char *what)
{
    if (error != cudaSuccess)
        fail_msg("%s: %s", what, cudaGetErrorString(error));
}

static void upload(struct device_product *out, const struct dk_test_case *what)
{
    memset(out, 0, sizeof *out);
    out->product = dk_test_product_new(what);
    out->weights = dk_test_weights_new(out->product, engine);
    assert_non_null(out->weights);
    size_t a_bytes = what->m * what->k * dk_dtype_bytes(what->a_dtype);
    out->c_bytes = what->m * what->n * dk_dtype_bytes(what->c_dtype);
    check(cudaMalloc(&out->d_a, a_bytes), "cudaMalloc A");
    check(cudaMalloc((void **)&out->d_c, out->c_bytes + 2 * GUARD_BYTES), "cudaMalloc C");
    check(cudaMemcpy(out->d_a, out->product->a_memory, a_bytes, cudaMemcpyHostToDevice), "copy A");
    check(cudaMemset(out->d_c, POISON, out->c_bytes + 2 * GUARD_BYTES), "poison C");
    check(cudaDeviceSynchronize(), "synchronise"); /* non-blocking streams do not wait for these copies */
    assert_int_equal(
        dk_workspace_new(engine, dk_workspace_bytes(out->weights, what->m), &out->d_workspace, NULL), DK_OK);
    out->call = (struct dk_call){.m = what->m,
                                 .a = out->d_a,
                                 .a_row_elements = what->k,
                                 .a_dtype = what->a_dtype,
                                 .c = out->d_c + GUARD_BYTES,
                                 .c_row_elements = what->n,
                                 .c_dtype = what->c_dtype,
                                 .epilogue = what->epilogue,
                                 .workspace = out->d_workspace};
}

/* The product is right and nothing around it was written. */
static void download_and_check(const struct device_product *p)
{
    unsigned char *host = malloc(p->c_bytes + 2 * GUARD_BYTES);
    assert_non_null(host);
    check(cudaMemcpy(host, p->d_c, p->c_bytes + 2 * GUARD_BYTES, cudaMemcpyDeviceToHost), "copy C");
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        assert_int_equal(host[i], POISON);
        assert_int_equal(host[GUARD_BYTES + p->c_bytes + i], POISON);
    }
    assert_true(dk_test_check_rows(p->product, p->weights, 0, p->call.m, host + GUARD_BYTES));
    free(host);
}

static void release(struct device_product *p)
{
    check(cudaFree(p->d_a), "cudaFree A");
    check(cudaFree(p->d_c), "cudaFree C");
    dk_workspace_free(engine, p->d_workspace);
    dk_weights_free(p->weights);
    dk_test_product_free(p->product);
}

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
    upload(&p, &router);
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    p.call.stream = stream;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin capture");
    assert_int_equal(dk_enqueue(p.weights, &p.call, NULL), DK_OK);
    check(cudaStreamEndCapture(stream, &graph), "end capture");
    check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
    for (int i = 0; i < 3; i++) {
        check(cudaMemset(p.d_c, POISON, p.c_bytes + 2 * GUARD_BYTES), "poison C");
        check(cudaDeviceSynchronize(), "synchronise");
        check(cudaGraphLaunch(exec, stream), "launch");
        check(cudaStreamSynchronize(stream), "synchronise");
        download_and_check(&p);
    }
    check(cudaGraphExecDestroy(exec), "destroy exec");
    check(cudaGraphDestroy(graph), "destroy graph");
    check(cudaStreamDestroy(stream), "destroy stream");
    release(&p);
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
        upload(&products[i], &what);
        check(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking), "stream");
        products[i].call.stream = streams[i];
    }
    for (int round = 0; round < 50; round++)
        for (uint32_t i = 0; i < STREAM_COUNT; i++)
            assert_int_equal(dk_enqueue(products[i].weights, &products[i].call, NULL), DK_OK);
    check(cudaDeviceSynchronize(), "synchronise");
    for (uint32_t i = 0; i < STREAM_COUNT; i++) {
        download_and_check(&products[i]);
        check(cudaStreamDestroy(streams[i]), "destroy stream");
        release(&products[i]);
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
