/* wgmma_launch.c: grid, cluster, shared memory and tensor maps of one launch. */
#include "kernels/cuda/wgmma_launch.h"

#include "kernels/cuda/wgmma_args.h"
#include "kernels/plan.h"

enum {
    ALL_SHARED_MEMORY = 100
}; /* per cent: chained kernels want the same carve-out, or they cannot overlap */

static uint32_t shared_bytes(const struct dk_variant *variant, uint32_t splits, uint32_t stages)
{
    return dk_wgmma_shared_bytes(variant->columns, variant->rows, splits, stages);
}

static bool prepare_kernel(const struct dk_variant *variant, const void *kernel)
{
    const struct dk_wgmma_variant *recipe = (const struct dk_wgmma_variant *)variant;
    cudaLaunchAttribute cluster = {.id = cudaLaunchAttributeClusterDimension,
                                   .val.clusterDim = {variant->splits, recipe->column_tiles, 1}};
    cudaLaunchConfig_t config = {.gridDim = {variant->splits, recipe->column_tiles, 1},
                                 .blockDim = {variant->warps * 32, 1, 1},
                                 .dynamicSmemBytes = shared_bytes(variant, variant->splits, recipe->stages),
                                 .attrs = &cluster,
                                 .numAttrs = 1};
    int device = 0, most_bytes = 0, cluster_count = 0;
    struct cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && /* loads it */
           cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&most_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) ==
               cudaSuccess &&
           cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most_bytes) ==
               cudaSuccess &&
           cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, ALL_SHARED_MEMORY) ==
               cudaSuccess &&
           cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess &&
           cudaOccupancyMaxActiveClusters(&cluster_count, kernel, &config) == cudaSuccess &&
           cluster_count > 0;
}

bool dk_wgmma_prepare(const struct dk_variant *variant)
{
    bool is_usable =
        prepare_kernel(variant, variant->kernels[0][0]) && prepare_kernel(variant, variant->kernels[0][1]);
    (void)cudaGetLastError(); /* a refusal was the answer, not a failure */
    return is_usable;
}

cudaError_t dk_wgmma_launch(const struct dk_variant *variant, const struct dk_variant_shape *shape,
                            const struct dk_small_args *args, dk_tensor_map_encoder encode,
                            const CUtensorMap *w_map, bool is_dependent, cudaStream_t stream)
{
    const struct dk_wgmma_variant *recipe = (const struct dk_wgmma_variant *)variant;
    uint32_t chunk_steps = (uint32_t)dk_ceil_div(shape->chunk_k, DK_WGMMA_STEP_K);
    uint32_t column_tiles = (uint32_t)dk_ceil_div(args->n, variant->columns);
    uint32_t row_tiles = (uint32_t)dk_ceil_div(args->m, variant->rows);
    uint32_t tiles_together = column_tiles % recipe->column_tiles == 0 ? recipe->column_tiles : 1;
    struct dk_wgmma_args wgmma = {
        .c = args->c,
        .m = args->m,
        .n = args->n,
        .c_stride = args->c_stride,
        .floor = args->floor,
        .steps = (uint32_t)dk_ceil_div(args->k, DK_WGMMA_STEP_K),
        .chunk_steps = chunk_steps,
        .splits_reciprocal = dk_wgmma_reciprocal(shape->split_k),
        .splits = (uint8_t)shape->split_k,
        .column_tiles = (uint8_t)tiles_together,
        .stages = (uint8_t)(recipe->stages < chunk_steps ? recipe->stages : chunk_steps),
        .weights_ahead = recipe->weights_ahead,
        .is_dependent = is_dependent,
        .is_trigger_late = recipe->is_trigger_late,
        .is_sigmoid = args->is_sigmoid != 0,
        .is_c_bf16 = args->is_c_bf16 != 0,
        .bias = args->bias,
    };
    CUtensorMap a_map;
    if (!dk_tensor_map_make(encode, args->a, args->m, args->k, args->a_stride, variant->rows, &a_map))
        return cudaErrorNotSupported;
    cudaLaunchAttribute attributes[2] = {
        {.id = cudaLaunchAttributeClusterDimension, .val.clusterDim = {shape->split_k, tiles_together, 1}},
        {.id = cudaLaunchAttributeProgrammaticStreamSerialization,
         .val.programmaticStreamSerializationAllowed = 1}};
    cudaLaunchConfig_t config = {.gridDim = {shape->split_k, column_tiles, row_tiles},
                                 .blockDim = {variant->warps * 32, 1, 1},
                                 .dynamicSmemBytes = shared_bytes(variant, shape->split_k, wgmma.stages),
                                 .stream = stream,
                                 .attrs = attributes,
                                 .numAttrs = is_dependent ? 2 : 1};
    void *parameters[] = {&wgmma, (void *)w_map, &a_map};
    bool is_lean = !args->is_sigmoid && !args->is_c_bf16 && args->bias == NULL;
    return cudaLaunchKernelExC(&config, variant->kernels[0][is_lean], parameters);
}
