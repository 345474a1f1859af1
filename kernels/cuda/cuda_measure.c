/* cuda_measure.c: capture a chain of products, replay it, take the median. */
#include "kernels/cuda/cuda_measure.h"

#include <stdlib.h>

#include "kernels/cuda/cuda_try.h"

enum { WARM_UPS = 3, SEED_ROW_BYTES = 1 << 20, MAX_REPEATS = 1000 };

struct bench {
    cudaStream_t stream;
    cudaEvent_t start, stop;
    cudaGraph_t graph;
    cudaGraphExec_t replay;
    void *d_a, *d_c, *d_workspace;
};

static void close_bench(struct bench *bench)
{
    /* After a fault these report it once more: the first report counts. */
    if (bench->replay != NULL)
        (void)cudaGraphExecDestroy(bench->replay);
    if (bench->graph != NULL)
        (void)cudaGraphDestroy(bench->graph);
    (void)cudaFree(bench->d_workspace);
    (void)cudaFree(bench->d_c);
    (void)cudaFree(bench->d_a);
    if (bench->stop != NULL)
        (void)cudaEventDestroy(bench->stop);
    if (bench->start != NULL)
        (void)cudaEventDestroy(bench->start);
    if (bench->stream != NULL)
        (void)cudaStreamDestroy(bench->stream);
}

/* A megabyte of random values from the host, then copies of it: zeros run faster than data (power). */
static dk_status fill_random(struct bench *bench, dk_dtype dtype, size_t bytes, struct dk_error *error)
{
    enum { COUNT = SEED_ROW_BYTES / 4 };
    dk_status status = DK_OK;
    uint32_t state = 88172645u;
    float *values = malloc(COUNT * sizeof *values);
    if (values == NULL)
        return dk_fail(error, DK_NO_MEMORY, "out of memory for random values");
    for (size_t i = 0; i < COUNT; i++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        values[i] = (float)(int32_t)state * 0x1p-31f;
    }
    dk_convert_from_float(values, values, dtype, COUNT);
    size_t done = COUNT * dk_dtype_bytes(dtype);
    done = done < bytes ? done : bytes;
    DK_CUDA_TRY(cudaMemcpyAsync(bench->d_a, values, done, cudaMemcpyHostToDevice, bench->stream), status,
                error, free_values);
    while (done < bytes) {
        size_t some = bytes - done < done ? bytes - done : done;
        DK_CUDA_TRY(cudaMemcpyAsync((char *)bench->d_a + done, bench->d_a, some, cudaMemcpyDeviceToDevice,
                                    bench->stream),
                    status, error, free_values);
        done += some;
    }
    DK_CUDA_TRY(cudaStreamSynchronize(bench->stream), status, error, free_values);
free_values:
    free(values);
    return status;
}

static dk_status open_bench(struct bench *bench, const struct dk_backend_weights *b,
                            const struct dk_measure *measure, const struct dk_plan *plan,
                            struct dk_error *error)
{
    dk_status status = DK_OK;
    size_t a_bytes = (size_t)(measure->m * b->k) * dk_dtype_bytes(measure->a_dtype);
    size_t c_bytes = (size_t)(measure->m * b->n) * dk_dtype_bytes(measure->c_dtype);
    DK_CUDA_TRY(cudaStreamCreateWithFlags(&bench->stream, cudaStreamNonBlocking), status, error, done);
    DK_CUDA_TRY(cudaEventCreate(&bench->start), status, error, done);
    DK_CUDA_TRY(cudaEventCreate(&bench->stop), status, error, done);
    DK_CUDA_TRY(cudaMalloc(&bench->d_a, a_bytes), status, error, done);
    DK_CUDA_TRY(cudaMalloc(&bench->d_c, c_bytes), status, error, done);
    DK_CUDA_TRY(cudaMalloc(&bench->d_workspace, plan->workspace_bytes > 0 ? plan->workspace_bytes : 1),
                status, error, done);
    status = fill_random(bench, measure->a_dtype, a_bytes, error);
done:
    return status;
}

static dk_status capture_chain(struct bench *bench, struct dk_cuda_device *device,
                               __typeof__(((struct dk_backend *)0)->enqueue) enqueue,
                               const struct dk_backend_weights *const *weights,
                               const struct dk_measure *measure, const struct dk_plan *plan,
                               struct dk_error *error)
{
    dk_status status = DK_OK;
    dk_status enqueued = DK_OK;
    const struct dk_call call = {
        .m = measure->m,
        .a = bench->d_a,
        .a_row_elements = weights[0]->k,
        .a_dtype = measure->a_dtype,
        .c = bench->d_c,
        .c_row_elements = weights[0]->n,
        .c_dtype = measure->c_dtype,
        .epilogue = measure->epilogue,
        .workspace = bench->d_workspace,
        .stream = bench->stream,
    };
    DK_CUDA_TRY(cudaStreamBeginCapture(bench->stream, cudaStreamCaptureModeThreadLocal), status, error, done);
    for (uint32_t i = 0; i < measure->chain_count && enqueued == DK_OK; i++)
        enqueued = enqueue(&device->base, weights[i % measure->weight_count], plan, &call, error);
    /* Also after a failure: the stream must leave capture mode. */
    cudaError_t ended = cudaStreamEndCapture(bench->stream, &bench->graph);
    if (enqueued != DK_OK)
        return enqueued;
    DK_CUDA_TRY(ended, status, error, done);
    DK_CUDA_TRY(cudaGraphInstantiate(&bench->replay, bench->graph, 0), status, error, done);
done:
    return status;
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a;
    float y = *(const float *)b;
    return (x > y) - (x < y);
}

static dk_status replay_chain(struct bench *bench, const struct dk_measure *measure, double *out_ns,
                              struct dk_error *error)
{
    dk_status status = DK_OK;
    uint32_t repeats = measure->repeat_count < MAX_REPEATS ? measure->repeat_count : MAX_REPEATS;
    float milliseconds[MAX_REPEATS];
    for (uint32_t i = 0; i < WARM_UPS; i++)
        DK_CUDA_TRY(cudaGraphLaunch(bench->replay, bench->stream), status, error, done);
    for (uint32_t i = 0; i < repeats; i++) {
        DK_CUDA_TRY(cudaEventRecord(bench->start, bench->stream), status, error, done);
        DK_CUDA_TRY(cudaGraphLaunch(bench->replay, bench->stream), status, error, done);
        DK_CUDA_TRY(cudaEventRecord(bench->stop, bench->stream), status, error, done);
        DK_CUDA_TRY(cudaStreamSynchronize(bench->stream), status, error, done);
        DK_CUDA_TRY(cudaEventElapsedTime(&milliseconds[i], bench->start, bench->stop), status, error, done);
    }
    qsort(milliseconds, repeats, sizeof milliseconds[0], compare_floats);
    *out_ns = (double)milliseconds[repeats / 2] * 1e6 / measure->chain_count;
done:
    return status;
}

dk_status dk_cuda_measure(struct dk_cuda_device *device,
                          __typeof__(((struct dk_backend *)0)->enqueue) enqueue,
                          const struct dk_backend_weights *const *weights, const struct dk_measure *measure,
                          const struct dk_plan *plan, double *out_ns, struct dk_error *error)
{
    struct bench bench = {0};
    double ns = 0.0;
    dk_status status = open_bench(&bench, weights[0], measure, plan, error);
    if (status == DK_OK)
        status = capture_chain(&bench, device, enqueue, weights, measure, plan, error);
    if (status == DK_OK)
        status = replay_chain(&bench, measure, &ns, error);
    if (status == DK_OK)
        *out_ns = ns;
    close_bench(&bench);
    return status;
}
