/* test_cuda_chains.c: every compiled variant in company: repeated, on many streams, and in captured chains
 * where each call reads what the one before wrote. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/gpu/device_product.h"
#include "tests/gpu/variant_list.h"

static struct variant_list variants;
static struct variant_options options;

enum { STREAM_COUNT = 16, LAYER_COUNT = 58, SLOT_COUNT = 50 };

static void for_each_variant(void (*body)(struct dk_engine *engine, uint32_t rows))
{
    for (uint32_t i = 0; i < variants.count; i++)
        for (int is_dependent = 0; is_dependent < 2; is_dependent++) {
            struct dk_engine *engine = variant_engine_new(variants.names[i], is_dependent);
            body(engine, variants.rows[i]);
            dk_engine_free(engine);
        }
}

static struct dk_test_case make_case(uint64_t m, uint64_t n, uint64_t k, uint32_t seed)
{
    return (struct dk_test_case){.m = m,
                                 .n = n,
                                 .k = k,
                                 .a_dtype = DK_BF16,
                                 .b_dtype = DK_BF16,
                                 .c_dtype = DK_FP32,
                                 .layout = DK_LAYOUT_NK,
                                 .fill = DK_TEST_RANDOM,
                                 .seed = seed};
}

static cudaStream_t new_stream(void)
{
    cudaStream_t stream;
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    return stream;
}

static cudaGraphExec_t end_capture(cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cuda_check(cudaStreamEndCapture(stream, &graph), "end capture");
    cuda_check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
    cuda_check(cudaGraphDestroy(graph), "destroy graph");
    return exec;
}

/* A graph of 50 calls into 50 outputs, replayed: each output of each replay has the bits of the first. */
static void repeat_body(struct dk_engine *engine, uint32_t rows)
{
    struct dk_test_case what = make_case(rows, 256, 7168, 3);
    struct device_product p;
    device_product_init(&p, engine, &what);
    device_product_poison(&p);
    assert_int_equal(dk_enqueue(p.weights, &p.call, NULL), DK_OK);
    device_product_check(&p);
    size_t bytes = p.c_bytes;
    unsigned char *first = malloc(bytes), *all = malloc(SLOT_COUNT * bytes), *d_all;
    assert_true(first && all);
    device_product_download(&p, first);
    cuda_check(cudaMalloc((void **)&d_all, SLOT_COUNT * bytes), "cudaMalloc outputs");
    cudaStream_t stream = new_stream();
    struct dk_call call = p.call;
    call.stream = stream;
    cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin capture");
    cuda_check(cudaMemsetAsync(d_all, 0xff, SLOT_COUNT * bytes, stream), "poison outputs");
    for (size_t i = 0; i < SLOT_COUNT; i++) {
        call.c = d_all + i * bytes;
        assert_int_equal(dk_enqueue(p.weights, &call, NULL), DK_OK);
    }
    cudaGraphExec_t exec = end_capture(stream);
    int replays = options.is_quick ? 1 : 10000 / SLOT_COUNT;
    for (int replay = 0; replay < replays; replay++) {
        cuda_check(cudaGraphLaunch(exec, stream), "launch");
        cuda_check(cudaMemcpyAsync(all, d_all, SLOT_COUNT * bytes, cudaMemcpyDeviceToHost, stream),
                   "copy outputs");
        cuda_check(cudaStreamSynchronize(stream), "synchronise");
        for (size_t i = 0; i < SLOT_COUNT; i++)
            if (memcmp(all + i * bytes, first, bytes) != 0)
                fail_msg("call %zu of replay %d has other bits than the first", i, replay);
    }
    cuda_check(cudaGraphExecDestroy(exec), "destroy exec");
    cuda_check(cudaStreamDestroy(stream), "destroy stream");
    cuda_check(cudaFree(d_all), "cudaFree outputs");
    free(all);
    free(first);
    device_product_deinit(&p);
}

static void test_10000_repeats_have_the_same_bits(void **state)
{
    (void)state;
    for_each_variant(repeat_body);
}

static void streams_body(struct dk_engine *engine, uint32_t rows)
{
    struct device_product products[STREAM_COUNT];
    cudaStream_t streams[STREAM_COUNT];
    for (uint32_t i = 0; i < STREAM_COUNT; i++) {
        struct dk_test_case what = make_case(1 + i * 5 % rows, 128 + i, 2048 + 8 * i, i);
        what.c_dtype = i % 2 ? DK_BF16 : DK_FP32;
        device_product_init(&products[i], engine, &what);
        streams[i] = new_stream();
        products[i].call.stream = streams[i];
    }
    for (int round = 0; round < (options.is_quick ? 2 : 50); round++)
        for (uint32_t i = 0; i < STREAM_COUNT; i++)
            assert_int_equal(dk_enqueue(products[i].weights, &products[i].call, NULL), DK_OK);
    for (uint32_t i = 0; i < STREAM_COUNT; i++) {
        device_product_check(&products[i]);
        cuda_check(cudaStreamDestroy(streams[i]), "destroy stream");
        device_product_deinit(&products[i]);
    }
}

static void test_16_streams_at_once(void **state)
{
    (void)state;
    for_each_variant(streams_body);
}

/* A chain of square layers in two buffers: layer i reads what layer i-1 wrote and overwrites what it had
 * read. */
struct chain {
    struct dk_engine *engine;
    struct dk_weights *layers[LAYER_COUNT];
    uint64_t size, rows;
    void *d_x[2], *d_workspace, *d_start;
    unsigned char *d_outputs; /* copy of each layer's output, or NULL */
};

static size_t chain_bytes(const struct chain *chain)
{
    return chain->rows * chain->size * sizeof(uint16_t);
}

/* bf16. The gain of a layer is then about one, so that values neither vanish nor overflow. */
static void scale_by_an_eighth(uint16_t *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (uint16_t)((values[i] & 0x7f80) > 0x0200 ? values[i] - 0x0180 : 0);
}

static void chain_init(struct chain *chain, struct dk_engine *engine, uint64_t rows)
{
    *chain = (struct chain){.engine = engine, .size = 256, .rows = rows};
    struct dk_test_case what = make_case(rows, chain->size, chain->size, 99);
    struct dk_test_product *product = dk_test_product_new(&what);
    for (uint32_t i = 0; i < LAYER_COUNT; i++) {
        dk_test_product_free(product);
        what.seed = 100 + i;
        product = dk_test_product_new(&what);
        scale_by_an_eighth((uint16_t *)(void *)product->b_memory, chain->size * chain->size);
        chain->layers[i] = dk_test_weights_new(product, engine);
        assert_non_null(chain->layers[i]);
    }
    cuda_check(cudaMalloc(&chain->d_x[0], chain_bytes(chain)), "cudaMalloc");
    cuda_check(cudaMalloc(&chain->d_x[1], chain_bytes(chain)), "cudaMalloc");
    cuda_check(cudaMalloc(&chain->d_start, chain_bytes(chain)), "cudaMalloc");
    cuda_check(cudaMalloc((void **)&chain->d_outputs, LAYER_COUNT * chain_bytes(chain)), "cudaMalloc");
    cuda_check(cudaMemcpy(chain->d_start, product->a_memory, chain_bytes(chain), cudaMemcpyHostToDevice),
               "start");
    assert_int_equal(
        dk_workspace_new(engine, dk_workspace_bytes(chain->layers[0], rows), &chain->d_workspace, NULL),
        DK_OK);
    dk_test_product_free(product);
}

static void chain_deinit(struct chain *chain)
{
    for (uint32_t i = 0; i < LAYER_COUNT; i++)
        dk_weights_free(chain->layers[i]);
    dk_workspace_free(chain->engine, chain->d_workspace);
    cuda_check(cudaFree(chain->d_x[0]), "cudaFree");
    cuda_check(cudaFree(chain->d_x[1]), "cudaFree");
    cuda_check(cudaFree(chain->d_start), "cudaFree");
    cuda_check(cudaFree(chain->d_outputs), "cudaFree");
}

/* Layer i reads buffer i % 2, except when each layer has an output of its own. */
static void chain_enqueue(const struct chain *chain, cudaStream_t stream, bool is_separate,
                          bool is_synchronised)
{
    size_t bytes = chain_bytes(chain);
    cuda_check(cudaMemcpyAsync(chain->d_x[0], chain->d_start, bytes, cudaMemcpyDeviceToDevice, stream),
               "start");
    for (uint32_t i = 0; i < LAYER_COUNT; i++) {
        struct dk_call call = {.m = chain->rows,
                               .a = chain->d_x[i % 2],
                               .a_row_elements = chain->size,
                               .a_dtype = DK_BF16,
                               .c = chain->d_x[(i + 1) % 2],
                               .c_row_elements = chain->size,
                               .c_dtype = DK_BF16,
                               .workspace = chain->d_workspace,
                               .stream = stream};
        if (is_separate) {
            call.a = i == 0 ? chain->d_start : chain->d_outputs + (i - 1) * bytes;
            call.c = chain->d_outputs + i * bytes;
        }
        assert_int_equal(dk_enqueue(chain->layers[i], &call, NULL), DK_OK);
        if (is_synchronised)
            cuda_check(cudaStreamSynchronize(stream), "synchronise");
    }
}

static void chain_body(struct dk_engine *engine, uint32_t rows)
{
    struct chain chain;
    cudaStream_t stream = new_stream();
    chain_init(&chain, engine, rows);
    size_t bytes = chain_bytes(&chain), all = LAYER_COUNT * bytes;
    unsigned char *expected = malloc(all), *got = malloc(all);
    assert_true(expected && got);
    chain_enqueue(&chain, stream, true, true);
    cuda_check(cudaMemcpy(expected, chain.d_outputs, all, cudaMemcpyDeviceToHost), "copy outputs");
    assert_memory_not_equal(expected, expected + (LAYER_COUNT - 1) * bytes, bytes); /* it did not die out */
    for (int is_separate = 0; is_separate < 2; is_separate++) {
        cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin capture");
        chain_enqueue(&chain, stream, is_separate, false);
        cudaGraphExec_t exec = end_capture(stream);
        for (int replay = 0; replay < (options.is_quick ? 1 : 20); replay++) {
            cuda_check(cudaMemsetAsync(chain.d_outputs, 0xff, all, stream), "poison");
            cuda_check(cudaMemsetAsync(chain.d_x[1], 0xff, bytes, stream), "poison");
            cuda_check(cudaGraphLaunch(exec, stream), "launch");
            cuda_check(cudaStreamSynchronize(stream), "synchronise");
            const void *d_last = is_separate ? (void *)chain.d_outputs : chain.d_x[LAYER_COUNT % 2];
            size_t count = is_separate ? all : bytes;
            cuda_check(cudaMemcpy(got, d_last, count, cudaMemcpyDeviceToHost), "copy outputs");
            assert_memory_equal(got, expected + all - count, count);
        }
        cuda_check(cudaGraphExecDestroy(exec), "destroy exec");
    }
    free(got);
    free(expected);
    chain_deinit(&chain);
    cuda_check(cudaStreamDestroy(stream), "destroy stream");
}

static void test_58_layers_in_a_graph_equal_one_at_a_time(void **state)
{
    (void)state;
    for_each_variant(chain_body);
}

int main(int argc, char **argv)
{
    variant_options_parse(argc, argv, &options);
    if (!variant_list_init(&variants, &options))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_58_layers_in_a_graph_equal_one_at_a_time),
        cmocka_unit_test(test_16_streams_at_once),
        cmocka_unit_test(test_10000_repeats_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
