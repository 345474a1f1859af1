/* cuda_backend.c: the vtable of the CUDA backend: probe, upload, enqueue, and the host round trip. */
#include <math.h>

#include "kernels/backend.h"

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_measure.h"
#include "kernels/cuda/cuda_try.h"
#include "kernels/cuda/cuda_weights.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/two_launch.h"
#include "kernels/cuda/wgmma_launch.h"

static dk_status backend_open(const struct dk_engine_options *options, struct dk_backend_device **out,
                              struct dk_error *error)
{
    struct dk_cuda_device *device = NULL;
    dk_status status = dk_cuda_device_open(options, &device, error);
    if (status == DK_OK)
        *out = &device->base;
    return status;
}

static void backend_close(struct dk_backend_device *base)
{
    dk_cuda_device_close((struct dk_cuda_device *)base);
}

static dk_status backend_weights_new(struct dk_backend_device *base, const struct dk_weights_desc *desc,
                                     size_t scratch_bytes, struct dk_backend_weights **out,
                                     struct dk_error *error)
{
    struct dk_cuda_weights *weights = NULL;
    dk_status status =
        dk_cuda_weights_new((struct dk_cuda_device *)base, desc, scratch_bytes, &weights, error);
    if (status == DK_OK)
        *out = &weights->base;
    return status;
}

static dk_status backend_weights_assign(struct dk_backend_device *base, struct dk_backend_weights *weights,
                                        const struct dk_weights_desc *desc, struct dk_error *error)
{
    return dk_cuda_weights_assign((struct dk_cuda_device *)base, (struct dk_cuda_weights *)weights, desc,
                                  error);
}

static void backend_weights_free(struct dk_backend_device *base, struct dk_backend_weights *weights)
{
    dk_cuda_weights_free((struct dk_cuda_device *)base, (struct dk_cuda_weights *)weights);
}

static dk_status backend_workspace_new(struct dk_backend_device *base, size_t bytes, void **out,
                                       struct dk_error *error)
{
    struct dk_cuda_device *device = (struct dk_cuda_device *)base;
    void *d_workspace = NULL;
    dk_status status = dk_cuda_device_enter(device, error);
    if (status != DK_OK)
        return status;
    DK_CUDA_TRY(cudaMalloc(&d_workspace, bytes == 0 ? 1 : bytes), status, error, done);
    *out = d_workspace;
done:
    return dk_cuda_device_note(device, status);
}

static void backend_workspace_free(struct dk_backend_device *base, void *d_workspace)
{
    (void)cudaSetDevice(((struct dk_cuda_device *)base)->index);
    (void)cudaFree(d_workspace);
}

static struct dk_cublas_b cublas_b(const struct dk_cuda_weights *weights)
{
    return (struct dk_cublas_b){weights->base.n, weights->base.k, weights->row_elements, weights->base.dtype,
                                weights->d_b};
}

static uint32_t backend_candidates(struct dk_backend_device *base, const struct dk_backend_weights *weights,
                                   uint32_t bucket_rows, struct dk_plan *out, uint32_t capacity)
{
    struct dk_cuda_device *device = (struct dk_cuda_device *)base;
    struct dk_cuda_plan_shape shape = {weights->n, weights->k, weights->dtype, bucket_rows};
    uint32_t count = dk_cuda_plan_candidates(&device->rules, &shape, out, capacity);
    /* The libraries choose by m: their bits are not for plans that must not depend on it. */
    if (device->rules.forced != DK_CUDA_FORCE_NONE || device->rules.is_batch_invariant ||
        dk_cuda_device_enter(device, NULL) != DK_OK)
        return count;
    struct dk_plan general;
    struct dk_cublas_b b = cublas_b((const struct dk_cuda_weights *)weights);
    uint32_t room = capacity > count ? capacity - count : 0;
    dk_cuda_plan_two_launch(&device->rules, &shape, &general);
    return count + dk_cublas_candidates(device->cublas, &b, bucket_rows, general.workspace_bytes,
                                        room > 0 ? out + count : NULL, room);
}

static const float *bias_of(const struct dk_cuda_weights *weights, const struct dk_call *call)
{
    return call->bias != NULL ? call->bias : weights->base.has_bias ? weights->d_bias : NULL;
}

static struct dk_two_launch_args make_args(const struct dk_cuda_weights *weights, const struct dk_plan *plan,
                                           const struct dk_call *call)
{
    return (struct dk_two_launch_args){
        .m = (uint32_t)call->m,
        .n = (uint32_t)weights->base.n,
        .k = (uint32_t)weights->base.k,
        .split_k = plan->split_k,
        .chunk_k = plan->chunk_k,
        .d_a = call->a,
        .a_row_elements = call->a_row_elements,
        .a_dtype = call->a_dtype,
        .d_b = weights->d_b,
        .b_row_elements = weights->row_elements,
        .b_dtype = weights->base.dtype,
        .d_partials = call->workspace,
        .d_bias = bias_of(weights, call),
        .d_c = call->c,
        .c_row_elements = call->c_row_elements,
        .c_dtype = call->c_dtype,
        .epilogue = call->epilogue,
        .is_dependent = plan->is_dependent,
    };
}

static cudaError_t enqueue_two_launch(const struct dk_cuda_weights *weights, const struct dk_plan *plan,
                                      const struct dk_call *call, cudaStream_t stream)
{
    struct dk_two_launch_args args = make_args(weights, plan, call);
    return dk_two_launch_enqueue(&args, stream);
}

/* The single-launch kernels take bf16 with A's rows on 16-byte borders, as far as 32-bit strides reach. */
static bool can_take(const struct dk_call *call)
{
    return call->a_dtype == DK_BF16 && (call->c_dtype == DK_FP32 || call->c_dtype == DK_BF16) &&
           (uintptr_t)call->a % 16 == 0 && call->a_row_elements % 8 == 0 &&
           call->a_row_elements <= UINT32_MAX && call->c_row_elements <= UINT32_MAX;
}

static cudaError_t enqueue_general(const struct dk_cuda_device *device, const struct dk_cuda_weights *weights,
                                   const struct dk_plan *plan, const struct dk_call *call,
                                   cudaStream_t stream)
{
    struct dk_cuda_plan_shape shape = {weights->base.n, weights->base.k, weights->base.dtype,
                                       plan->bucket_rows};
    struct dk_plan general;
    dk_cuda_plan_two_launch(&device->rules, &shape, &general);
    return enqueue_two_launch(weights, &general, call, stream);
}

/* The library's product, finished by our reduction of one chunk where it is not C yet. */
static cudaError_t enqueue_library(const struct dk_cuda_device *device, const struct dk_cuda_weights *weights,
                                   const struct dk_plan *plan, const struct dk_call *call,
                                   cudaStream_t stream)
{
    struct dk_cublas_b b = cublas_b(weights);
    struct dk_call on_stream = *call;
    bool is_direct = dk_cublas_is_direct(call, bias_of(weights, call) != NULL);
    on_stream.stream = stream;
    if (!dk_cublas_can_serve(&b, call) || !dk_cublas_enqueue(device->cublas, &b, plan, &on_stream, is_direct))
        return enqueue_general(device, weights, plan, call, stream);
    if (is_direct)
        return cudaSuccess;
    struct dk_two_launch_args args = make_args(weights, plan, call);
    return dk_two_launch_reduce(&args, stream);
}

static struct dk_small_args make_small_args(const struct dk_cuda_weights *weights, const struct dk_call *call)
{
    return (struct dk_small_args){
        .a = call->a,
        .w = weights->d_b,
        .bias = bias_of(weights, call),
        .c = call->c,
        .a_stride = (uint32_t)call->a_row_elements,
        .w_stride = (uint32_t)weights->row_elements,
        .c_stride = (uint32_t)call->c_row_elements,
        .m = (uint32_t)call->m,
        .n = (uint32_t)weights->base.n,
        .k = (uint32_t)weights->base.k,
        .floor = call->epilogue == DK_EPILOGUE_RELU ? 0.0f : -INFINITY,
        .is_sigmoid = call->epilogue == DK_EPILOGUE_SIGMOID,
        .is_c_bf16 = call->c_dtype == DK_BF16,
    };
}

static cudaError_t enqueue_variant(const struct dk_cuda_device *device, const struct dk_cuda_weights *weights,
                                   const struct dk_plan *plan, const struct dk_call *call,
                                   cudaStream_t stream)
{
    uint32_t index = plan->backend_variant - DK_CUDA_FIRST_VARIANT;
    const struct dk_variant *variant = dk_variant_at(index);
    struct dk_small_args args = make_small_args(weights, call);
    cudaError_t error = cudaErrorNotSupported;
    if (variant->family == DK_FAMILY_WGMMA) {
        struct dk_wgmma_product product = {call->m, weights->base.n, weights->base.k, plan->is_dependent};
        struct dk_wgmma_choice choice;
        if (weights->has_map && dk_wgmma_cut(&device->rules.wgmma, index - dk_variant_first_wgmma(), &product,
                                             plan->split_k, &choice))
            error = dk_wgmma_launch(&choice, &args, device->encode_map, &weights->map, plan->is_dependent,
                                    stream);
    } else {
        struct dk_variant_shape cut;
        if (dk_variant_fit(variant, call->m, weights->base.n, weights->base.k, &cut)) {
            args.chunk_k = cut.chunk_k;
            error = dk_launch_variant(variant, &cut, &args, plan->is_dependent, stream);
        }
    }
    return error == cudaErrorNotSupported ? enqueue_general(device, weights, plan, call, stream) : error;
}

static cudaError_t enqueue_plan(const struct dk_cuda_device *device, const struct dk_cuda_weights *weights,
                                const struct dk_plan *plan, const struct dk_call *call, cudaStream_t stream)
{
    if (plan->backend_variant == DK_CUDA_TWO_LAUNCH)
        return enqueue_two_launch(weights, plan, call, stream);
    if (dk_cublas_is_plan(plan))
        return enqueue_library(device, weights, plan, call, stream);
    return can_take(call) && weights->row_elements % 8 == 0
               ? enqueue_variant(device, weights, plan, call, stream)
               : enqueue_general(device, weights, plan, call, stream);
}

static dk_status backend_enqueue(struct dk_backend_device *base, const struct dk_backend_weights *weights,
                                 const struct dk_plan *plan, const struct dk_call *call,
                                 struct dk_error *error)
{
    struct dk_cuda_device *device = (struct dk_cuda_device *)base;
    dk_status status = dk_cuda_device_enter(device, error);
    if (status != DK_OK)
        return status;
    DK_CUDA_TRY(
        enqueue_plan(device, (const struct dk_cuda_weights *)weights, plan, call, (cudaStream_t)call->stream),
        status, error, done);
done:
    return dk_cuda_device_note(device, status);
}

/* Copy in, run, copy out, for rows that fit the lane's staging. */
static dk_status run_piece(struct dk_cuda_device *device, const struct dk_cuda_weights *weights,
                           const struct dk_plan *plan, const struct dk_call *call, const float *d_bias,
                           uint64_t *kernel_ns, struct dk_error *error)
{
    dk_status status = DK_OK;
    size_t a_row_bytes = (size_t)weights->base.k * dk_dtype_bytes(call->a_dtype);
    size_t c_row_bytes = (size_t)weights->base.n * dk_dtype_bytes(call->c_dtype);
    char *d_a = device->d_staging;
    char *d_c = d_a + call->m * weights->base.k * sizeof(float);
    struct dk_call on_device = *call;
    on_device.a = d_a;
    on_device.a_row_elements = weights->base.k;
    on_device.c = d_c;
    on_device.c_row_elements = weights->base.n;
    on_device.bias = d_bias;
    float milliseconds = 0.0f;
    DK_CUDA_TRY(cudaMemcpy2DAsync(d_a, a_row_bytes, call->a,
                                  call->a_row_elements * dk_dtype_bytes(call->a_dtype), a_row_bytes, call->m,
                                  cudaMemcpyHostToDevice, device->stream),
                status, error, done);
    DK_CUDA_TRY(cudaEventRecord(device->kernel_start, device->stream), status, error, done);
    DK_CUDA_TRY(enqueue_plan(device, weights, plan, &on_device, device->stream), status, error, done);
    DK_CUDA_TRY(cudaEventRecord(device->kernel_stop, device->stream), status, error, done);
    DK_CUDA_TRY(cudaMemcpy2DAsync(call->c, call->c_row_elements * dk_dtype_bytes(call->c_dtype), d_c,
                                  c_row_bytes, c_row_bytes, call->m, cudaMemcpyDeviceToHost, device->stream),
                status, error, done);
    DK_CUDA_TRY(cudaStreamSynchronize(device->stream), status, error, done);
    DK_CUDA_TRY(cudaEventElapsedTime(&milliseconds, device->kernel_start, device->kernel_stop), status, error,
                done);
    *kernel_ns += (uint64_t)((double)milliseconds * 1e6);
done:
    return status;
}

static dk_status backend_run_host(struct dk_backend_device *base,
                                  const struct dk_backend_weights *base_weights, const struct dk_plan *plan,
                                  const struct dk_call *call, uint64_t *kernel_ns, struct dk_error *error)
{
    struct dk_cuda_device *device = (struct dk_cuda_device *)base;
    const struct dk_cuda_weights *weights = (const struct dk_cuda_weights *)base_weights;
    uint64_t total_ns = 0;
    dk_status status = dk_cuda_device_enter(device, error);
    if (status != DK_OK)
        return status;
    (void)pthread_mutex_lock(&device->run_mutex);
    size_t bias_bytes = call->bias != NULL ? weights->base.n * sizeof(float) : 0;
    size_t row_bytes = (size_t)(weights->base.k + weights->base.n) * sizeof(float);
    float *d_bias = NULL;
    if (device->staging_bytes < row_bytes + bias_bytes) {
        status = dk_fail(
            error, DK_TOO_LARGE, "one row of k=%llu, n=%llu does not fit in %zu bytes of staging",
            (unsigned long long)weights->base.k, (unsigned long long)weights->base.n, device->staging_bytes);
        goto unlock;
    }
    if (call->bias != NULL) {
        d_bias = (float *)((char *)device->d_staging + (device->staging_bytes - bias_bytes) / 16 * 16);
        DK_CUDA_TRY(cudaMemcpyAsync(d_bias, call->bias, bias_bytes, cudaMemcpyHostToDevice, device->stream),
                    status, error, unlock);
    }
    /* Rows are independent, so a product without a model (whose k was unknown at load) may go in pieces. */
    size_t usable = (device->staging_bytes - bias_bytes) / 16 * 16;
    uint64_t piece_rows = usable / row_bytes;
    for (uint64_t row = 0; row < call->m && status == DK_OK; row += piece_rows) {
        struct dk_call piece = *call;
        piece.m = call->m - row < piece_rows ? call->m - row : piece_rows;
        piece.a = (const char *)call->a + row * call->a_row_elements * dk_dtype_bytes(call->a_dtype);
        piece.c = (char *)call->c + row * call->c_row_elements * dk_dtype_bytes(call->c_dtype);
        status = run_piece(device, weights, plan, &piece, d_bias, &total_ns, error);
    }
unlock:
    (void)pthread_mutex_unlock(&device->run_mutex);
    if (status == DK_OK && kernel_ns != NULL)
        *kernel_ns = total_ns;
    return dk_cuda_device_note(device, status);
}

static dk_status backend_measure(struct dk_backend_device *base,
                                 const struct dk_backend_weights *const *weights,
                                 const struct dk_measure *measure, const struct dk_plan *plan, double *out_ns,
                                 struct dk_error *error)
{
    struct dk_cuda_device *device = (struct dk_cuda_device *)base;
    dk_status status = dk_cuda_device_enter(device, error);
    return status == DK_OK ? dk_cuda_device_note(device, dk_cuda_measure(device, backend_enqueue, weights,
                                                                         measure, plan, out_ns, error))
                           : status;
}

static const struct dk_backend cuda_backend = {
    .abi = DK_BACKEND_ABI,
    .name = "cuda",
    .open = backend_open,
    .close = backend_close,
    .weights_new = backend_weights_new,
    .weights_assign = backend_weights_assign,
    .weights_free = backend_weights_free,
    .candidates = backend_candidates,
    .workspace_new = backend_workspace_new,
    .workspace_free = backend_workspace_free,
    .enqueue = backend_enqueue,
    .run_host = backend_run_host,
    .measure = backend_measure,
};

DK_API const struct dk_backend *dk_cuda_plugin(void);
const struct dk_backend *dk_cuda_plugin(void)
{
    return &cuda_backend;
}
