/* bench_kernels_chain.c: capture, replay, median. */
#include "tests/bench/bench_kernels_chain.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/dtype.h"

enum { WARM_UPS = 3, MAX_REPEATS = 256 };

void bench_check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "bench_kernels: %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double replay_us(cudaGraph_t graph, cudaStream_t stream, unsigned repeats)
{
    cudaGraphExec_t replay;
    cudaEvent_t start, stop;
    float milliseconds[MAX_REPEATS];
    bench_check(cudaGraphInstantiate(&replay, graph, 0), "instantiate a graph");
    bench_check(cudaEventCreate(&start), "create an event");
    bench_check(cudaEventCreate(&stop), "create an event");
    repeats = repeats < MAX_REPEATS ? repeats : MAX_REPEATS;
    for (unsigned i = 0; i < WARM_UPS; i++)
        bench_check(cudaGraphLaunch(replay, stream), "replay");
    for (unsigned i = 0; i < repeats; i++) {
        bench_check(cudaEventRecord(start, stream), "record an event");
        bench_check(cudaGraphLaunch(replay, stream), "replay");
        bench_check(cudaEventRecord(stop, stream), "record an event");
        bench_check(cudaStreamSynchronize(stream), "run the chain");
        bench_check(cudaEventElapsedTime(&milliseconds[i], start, stop), "read the time");
    }
    qsort(milliseconds, repeats, sizeof milliseconds[0], compare_floats);
    bench_check(cudaEventDestroy(stop), "destroy an event");
    bench_check(cudaEventDestroy(start), "destroy an event");
    bench_check(cudaGraphExecDestroy(replay), "destroy a graph");
    return (double)milliseconds[repeats / 2] * 1e3;
}

double bench_chain_us(bench_link link, void *context, unsigned count, unsigned repeats)
{
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    bool is_good = true;
    bench_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream");
    bench_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin a capture");
    for (unsigned i = 0; i < count && is_good; i++)
        is_good = link(context, i, stream);
    cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    double us = -1.0;
    if (is_good) {
        bench_check(ended, "end a capture");
        us = replay_us(graph, stream, repeats) / count;
    }
    if (graph != NULL)
        bench_check(cudaGraphDestroy(graph), "destroy a graph");
    bench_check(cudaStreamDestroy(stream), "destroy a stream");
    return us;
}

void *bench_random_bf16(size_t count)
{
    enum { BLOCK = 1 << 16 };
    void *d_values;
    uint32_t state = 12345u;
    float *values = malloc(BLOCK * sizeof *values);
    if (values == NULL)
        bench_check(cudaErrorMemoryAllocation, "random values");
    bench_check(cudaMalloc(&d_values, count * 2), "allocate values");
    for (size_t done = 0; done < count; done += BLOCK) {
        size_t some = count - done < BLOCK ? count - done : BLOCK;
        for (size_t i = 0; i < some; i++) {
            state = state * 1664525u + 1013904223u;
            values[i] = (float)(int32_t)state * 0x1p-31f;
        }
        dk_convert_from_float(values, values, DK_BF16, some);
        bench_check(cudaMemcpy((char *)d_values + done * 2, values, some * 2, cudaMemcpyHostToDevice),
                    "copy values");
    }
    free(values);
    return d_values;
}
