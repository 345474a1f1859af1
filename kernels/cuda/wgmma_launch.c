/* wgmma_launch.c: grid, cluster, shared memory and tensor maps of one launch. */
#include "kernels/cuda/wgmma_launch.h"

#include <string.h>

#include "kernels/cuda/wgmma_args.h"
#include "kernels/plan.h"

enum {
    ALL_SHARED_MEMORY = 100, /* per cent: chained kernels want the same carve-out, or they cannot overlap */
    AHEAD_OF_PAIR = 2        /* paired tiles have more weights under way than pays before A is there */
};

static uint32_t shared_bytes(const struct dk_wgmma_variant *variant, uint32_t splits, uint32_t stages)
{
    return dk_wgmma_shared_bytes(variant->base.columns, variant->base.rows, splits, stages);
}

static bool prepare_kernel(const void *kernel, uint32_t bytes)
{
    struct cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && /* loads it */
           cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) ==
               cudaSuccess &&
           cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, ALL_SHARED_MEMORY) ==
               cudaSuccess &&
           cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess;
}

/* Blocks that run at once when each has a multiprocessor to itself. */
static uint16_t query_resident(const struct dk_wgmma_variant *variant, uint32_t splits, uint32_t bytes)
{
    cudaLaunchAttribute cluster = {.id = cudaLaunchAttributeClusterDimension,
                                   .val.clusterDim = {splits, variant->column_tiles, 1}};
    cudaLaunchConfig_t config = {.gridDim = {splits, variant->column_tiles, 1},
                                 .blockDim = {variant->base.warps * 32, 1, 1},
                                 .dynamicSmemBytes = bytes,
                                 .attrs = &cluster,
                                 .numAttrs = 1};
    int count = 0;
    if (cudaOccupancyMaxActiveClusters(&count, variant->base.kernels[0][1], &config) != cudaSuccess)
        return 0;
    return (uint16_t)((uint32_t)count * splits * variant->column_tiles);
}

void dk_wgmma_query(struct dk_wgmma_limits *out)
{
    int device = 0, bytes = 0;
    memset(out, 0, sizeof *out);
    if (cudaGetDevice(&device) == cudaSuccess &&
        cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess)
        out->shared_bytes = (uint32_t)bytes;
    for (uint32_t v = 0; v < dk_wgmma_variant_count; v++) {
        const struct dk_wgmma_variant *variant = &dk_wgmma_variants[v];
        if (!prepare_kernel(variant->base.kernels[0][0], out->shared_bytes) ||
            !prepare_kernel(variant->base.kernels[0][1], out->shared_bytes))
            continue;
        for (uint32_t splits = 1; splits <= variant->base.splits; splits++)
            out->resident_blocks[v][splits] = query_resident(variant, splits, out->shared_bytes);
    }
    (void)cudaGetLastError(); /* a refusal was the answer, not a failure */
}

cudaError_t dk_wgmma_launch(const struct dk_wgmma_choice *choice, const struct dk_small_args *args,
                            dk_tensor_map_encoder encode, const CUtensorMap *w_map, bool is_dependent,
                            cudaStream_t stream)
{
    const struct dk_wgmma_variant *variant = &dk_wgmma_variants[choice->variant];
    uint32_t splits = choice->cut.split_k;
    struct dk_wgmma_args wgmma = {
        .c = args->c,
        .m = args->m,
        .n = args->n,
        .c_stride = args->c_stride,
        .floor = args->floor,
        .steps = (uint32_t)dk_ceil_div(args->k, DK_WGMMA_STEP_K),
        .chunk_steps = (uint32_t)dk_ceil_div(choice->cut.chunk_k, DK_WGMMA_STEP_K),
        .splits_reciprocal = dk_wgmma_reciprocal(splits),
        .splits = (uint8_t)splits,
        .column_tiles = (uint8_t)variant->column_tiles,
        .stages = (uint8_t)choice->stages,
        .weights_ahead = variant->column_tiles > 1 ? AHEAD_OF_PAIR : DK_WGMMA_MAX_STAGES,
        .is_dependent = is_dependent,
        .is_sigmoid = args->is_sigmoid != 0,
        .is_c_bf16 = args->is_c_bf16 != 0,
        .bias = args->bias,
    };
    CUtensorMap a_map;
    if (!dk_tensor_map_make(encode, args->a, args->m, args->k, args->a_stride, variant->base.rows, &a_map))
        return cudaErrorNotSupported;
    cudaLaunchAttribute attributes[2] = {
        {.id = cudaLaunchAttributeClusterDimension, .val.clusterDim = {splits, variant->column_tiles, 1}},
        {.id = cudaLaunchAttributeProgrammaticStreamSerialization,
         .val.programmaticStreamSerializationAllowed = 1}};
    cudaLaunchConfig_t config = {.gridDim = {splits, (uint32_t)dk_ceil_div(args->n, variant->base.columns),
                                             (uint32_t)dk_ceil_div(args->m, variant->base.rows)},
                                 .blockDim = {variant->base.warps * 32, 1, 1},
                                 .dynamicSmemBytes = shared_bytes(variant, splits, choice->stages),
                                 .stream = stream,
                                 .attrs = attributes,
                                 .numAttrs = is_dependent ? 2 : 1};
    void *parameters[] = {&wgmma, (void *)w_map, &a_map};
    bool is_lean = !args->is_sigmoid && !args->is_c_bf16 && args->bias == NULL;
    return cudaLaunchKernelExC(&config, variant->base.kernels[0][is_lean], parameters);
}
