/* cuda_weights.c: upload of a B as [n, k], each row on a 16-byte border: every kernel reads it along k. */
#include "kernels/cuda/cuda_weights.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/bucket.h"
#include "kernels/cuda/cuda_plan.h"
#include "kernels/cuda/cuda_try.h"
#include "kernels/cuda/wgmma_args.h"
#include "kernels/plan.h"

enum { TURN_BLOCK = 32 };

/* [k, n] into rows of k. */
static void turn(const char *source, char *packed, size_t n, size_t k, size_t row_elements, size_t item)
{
    for (size_t kb = 0; kb < k; kb += TURN_BLOCK)
        for (size_t nb = 0; nb < n; nb += TURN_BLOCK)
            for (size_t j = nb; j < n && j < nb + TURN_BLOCK; j++)
                for (size_t i = kb; i < k && i < kb + TURN_BLOCK; i++)
                    if (item == 2) /* a constant size is one move */
                        memcpy(packed + (j * row_elements + i) * 2, source + (i * n + j) * 2, 2);
                    else
                        memcpy(packed + (j * row_elements + i) * 4, source + (i * n + j) * 4, 4);
}

/* What the device shall hold: the caller's own memory where that is it already. */
static const void *lay_out(const struct dk_weights_desc *desc, size_t row_elements, char *packed)
{
    size_t item = dk_dtype_bytes(desc->dtype), n = desc->n, k = desc->k;
    if (desc->layout == DK_LAYOUT_NK && row_elements == k)
        return desc->data;
    if (row_elements > k)
        memset(packed, 0, n * row_elements * item);
    if (desc->layout == DK_LAYOUT_KN)
        turn(desc->data, packed, n, k, row_elements, item);
    else
        for (size_t j = 0; j < n; j++)
            memcpy(packed + j * row_elements * item, (const char *)desc->data + j * k * item, k * item);
    return packed;
}

/* Rows on 16-byte borders if `capacity_bytes` has room for them, else dense. */
static size_t choose_row_elements(const struct dk_weights_desc *desc, size_t capacity_bytes)
{
    size_t item = dk_dtype_bytes(desc->dtype), padded = dk_round_up(desc->k, 16 / item), bytes = 0;
    bool has_room = dk_size_mul(padded * item, desc->n, &bytes) && bytes <= capacity_bytes;
    return has_room ? padded : desc->k;
}

static void make_plans(const struct dk_cuda_device *device, struct dk_backend_weights *base)
{
    for (uint32_t i = 0; i < dk_bucket_count(device->max_tokens); i++) {
        struct dk_cuda_plan_shape shape = {base->n, base->k, base->dtype, dk_bucket_rows(i)};
        dk_cuda_plan_choose(&device->rules, &shape, &base->plans[i]);
    }
}

/* On the lane's stream and synchronised: a plain cudaMemcpy of pageable memory may return before the last
 * bytes have landed, and non-blocking streams do not wait for the default one (seen: a product that met
 * weights still under way). */
static dk_status upload(struct dk_cuda_device *device, struct dk_cuda_weights *weights,
                        const struct dk_weights_desc *desc, char *packed, struct dk_error *error)
{
    dk_status status = DK_OK;
    weights->row_elements = choose_row_elements(desc, weights->capacity_bytes);
    size_t bytes = desc->n * weights->row_elements * dk_dtype_bytes(desc->dtype);
    const void *source = lay_out(desc, weights->row_elements, packed);
    DK_CUDA_TRY(cudaMemcpyAsync(weights->d_b, source, bytes, cudaMemcpyHostToDevice, device->stream), status,
                error, done);
    if (desc->bias != NULL)
        DK_CUDA_TRY(cudaMemcpyAsync(weights->d_bias, desc->bias, desc->n * sizeof(float),
                                    cudaMemcpyHostToDevice, device->stream),
                    status, error, done);
    DK_CUDA_TRY(cudaStreamSynchronize(device->stream), status, error, done);
done:
    return status;
}

static void make_map(const struct dk_cuda_device *device, struct dk_cuda_weights *weights)
{
    weights->has_map = device->encode_map != NULL && weights->base.dtype == DK_BF16 &&
                       dk_tensor_map_make(device->encode_map, weights->d_b, weights->base.n, weights->base.k,
                                          weights->row_elements, DK_WGMMA_BOX_ROWS, &weights->map);
}

dk_status dk_cuda_weights_assign(struct dk_cuda_device *device, struct dk_cuda_weights *weights,
                                 const struct dk_weights_desc *desc, struct dk_error *error)
{
    size_t elements = 0;
    size_t bytes = 0;
    if (!dk_size_mul(desc->n, desc->k, &elements) ||
        !dk_size_mul(elements, dk_dtype_bytes(desc->dtype), &bytes) || bytes > weights->capacity_bytes ||
        desc->n > weights->bias_capacity)
        return dk_fail(error, DK_TOO_LARGE, "B of [%llu, %llu] %s does not fit in %zu bytes",
                       (unsigned long long)desc->k, (unsigned long long)desc->n,
                       dk_dtype_name(desc->dtype, DK_DIALECT_NATIVE), weights->capacity_bytes);
    dk_status status = dk_cuda_device_enter(device, error);
    if (status != DK_OK)
        return status;
    status = upload(device, weights, desc, weights->host_packed, error);
    if (status != DK_OK)
        return dk_cuda_device_note(device, status);
    weights->base.n = desc->n;
    weights->base.k = desc->k;
    weights->base.dtype = desc->dtype;
    weights->base.has_bias = desc->bias != NULL;
    make_map(device, weights);
    make_plans(device, &weights->base);
    return DK_OK;
}

static dk_status allocate(struct dk_cuda_weights *weights, size_t bytes, size_t bias_count,
                          struct dk_error *error)
{
    dk_status status = DK_OK;
    DK_CUDA_TRY(cudaMalloc(&weights->d_b, bytes), status, error, done);
    DK_CUDA_TRY(cudaMalloc((void **)&weights->d_bias, bias_count * sizeof(float)), status, error, done);
    weights->capacity_bytes = bytes;
    weights->bias_capacity = bias_count;
    weights->base.resident_bytes = bytes + bias_count * sizeof(float);
done:
    return status;
}

/* For resident weights without a bias: a library's product would need another launch for it. */
static void prefer_libraries(const struct dk_cuda_device *device, struct dk_cuda_weights *weights)
{
    enum { CANDIDATES = 16 };
    const struct dk_cublas_b b = {weights->base.n, weights->base.k, weights->row_elements,
                                  weights->base.dtype, weights->d_b};
    for (uint32_t i = 0; i < dk_bucket_count(device->max_tokens) && !weights->base.has_bias; i++) {
        struct dk_cuda_plan_shape shape = {b.n, b.k, b.dtype, dk_bucket_rows(i)};
        const char *name = dk_cuda_plan_find_library(&device->rules, &shape);
        struct dk_plan candidates[CANDIDATES], general;
        if (name == NULL)
            continue;
        dk_cuda_plan_two_launch(&device->rules, &shape, &general);
        uint32_t count = dk_cublas_candidates(device->cublas, &b, shape.bucket_rows, general.workspace_bytes,
                                              candidates, CANDIDATES);
        for (uint32_t c = 0; c < count && c < CANDIDATES; c++)
            if (strcmp(candidates[c].variant, name) == 0)
                weights->base.plans[i] = candidates[c];
    }
}

static dk_status load(struct dk_cuda_device *device, struct dk_cuda_weights *weights,
                      const struct dk_weights_desc *desc, struct dk_error *error)
{
    size_t row_bytes = (size_t)(desc->k + desc->n + 1) * sizeof(float);
    size_t staging_bytes = 0;
    if (!dk_size_mul(row_bytes, device->max_tokens, &staging_bytes))
        return dk_fail(error, DK_BAD_SHAPE, "staging for %u rows of k=%llu overflows", device->max_tokens,
                       (unsigned long long)desc->k);
    dk_status status = dk_cuda_device_reserve(device, staging_bytes, error);
    if (status == DK_OK)
        status =
            allocate(weights, desc->n * choose_row_elements(desc, SIZE_MAX) * dk_dtype_bytes(desc->dtype),
                     desc->n, error);
    if (status != DK_OK)
        return dk_cuda_device_note(device, status);
    weights->host_packed = malloc(weights->capacity_bytes);
    if (weights->host_packed == NULL)
        return dk_fail(error, DK_NO_MEMORY, "out of memory laying out %zu bytes of weights",
                       weights->capacity_bytes);
    status = dk_cuda_weights_assign(device, weights, desc, error);
    if (status == DK_OK)
        prefer_libraries(device, weights);
    free(weights->host_packed);
    weights->host_packed = NULL;
    return status;
}

dk_status dk_cuda_weights_new(struct dk_cuda_device *device, const struct dk_weights_desc *desc,
                              size_t scratch_bytes, struct dk_cuda_weights **out, struct dk_error *error)
{
    struct dk_cuda_weights *weights = NULL;
    dk_status status = dk_cuda_device_enter(device, error);
    if (status != DK_OK)
        return status;
    weights = aligned_alloc(_Alignof(struct dk_cuda_weights), sizeof *weights); /* the map's alignment */
    if (weights == NULL)
        return dk_fail(error, DK_NO_MEMORY, "out of memory for a weights handle");
    memset(weights, 0, sizeof *weights);
    if (desc != NULL) {
        status = load(device, weights, desc, error);
    } else {
        size_t bias_count = scratch_bytes / 2; /* n <= elements of the narrowest type */
        if (bias_count > DK_MAX_N)
            bias_count = DK_MAX_N;
        status = dk_cuda_device_note(device, allocate(weights, scratch_bytes, bias_count, error));
        weights->host_packed = status == DK_OK ? malloc(scratch_bytes) : NULL;
        if (status == DK_OK && weights->host_packed == NULL)
            status =
                dk_fail(error, DK_NO_MEMORY, "out of memory for %zu bytes of scratch weights", scratch_bytes);
    }
    if (status != DK_OK) {
        dk_cuda_weights_free(device, weights);
        return status;
    }
    *out = weights;
    return DK_OK;
}

void dk_cuda_weights_free(struct dk_cuda_device *device, struct dk_cuda_weights *weights)
{
    if (weights == NULL)
        return;
    (void)cudaSetDevice(
        device->index); /* a fenced device reports its fault again; the memory goes with the process */
    (void)cudaFree(weights->d_b);
    (void)cudaFree(weights->d_bias);
    free(weights->host_packed);
    free(weights);
}
