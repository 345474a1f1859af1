/* launch.c: grid, block and attributes of one launch. */
#include "kernels/cuda/launch.h"

#include "kernels/plan.h"

enum { PORTABLE_CLUSTER = 8, MAX_ATTRIBUTES = 2 };

static uint32_t add_cluster(const struct dk_variant *variant, cudaLaunchAttribute *attributes, uint32_t count)
{
    if (variant->splits == 1)
        return count;
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = variant->splits;
    attributes[count].val.clusterDim.y = 1;
    attributes[count].val.clusterDim.z = 1;
    return count + 1;
}

static bool prepare_kernel(const struct dk_variant *variant, const void *kernel)
{
    struct cudaFuncAttributes attributes;
    if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) /* loads it */
        return false;
    if (variant->shared_bytes > 0 && cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                          (int)variant->shared_bytes) != cudaSuccess)
        return false;
    if (variant->splits == 1)
        return true;
    if (variant->splits > PORTABLE_CLUSTER &&
        cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) != cudaSuccess)
        return false;
    cudaLaunchAttribute cluster;
    cudaLaunchConfig_t config = {.gridDim = {variant->splits, 1, 1},
                                 .blockDim = {variant->warps * 32, 1, 1},
                                 .dynamicSmemBytes = variant->shared_bytes,
                                 .attrs = &cluster,
                                 .numAttrs = add_cluster(variant, &cluster, 0)};
    int cluster_count = 0;
    return cudaOccupancyMaxActiveClusters(&cluster_count, kernel, &config) == cudaSuccess &&
           cluster_count > 0;
}

bool dk_launch_prepare(const struct dk_variant *variant)
{
    bool is_usable = true;
    for (int is_exact = 0; is_exact < 2; is_exact++)
        for (int is_lean = 0; is_lean < 2; is_lean++)
            if (variant->kernels[is_exact][is_lean] != NULL)
                is_usable = is_usable && prepare_kernel(variant, variant->kernels[is_exact][is_lean]);
    (void)cudaGetLastError(); /* a refusal was the answer, not a failure */
    return is_usable;
}

cudaError_t dk_launch_variant(const struct dk_variant *variant, const struct dk_variant_shape *shape,
                              const struct dk_small_args *args, bool is_dependent, cudaStream_t stream)
{
    cudaLaunchAttribute attributes[MAX_ATTRIBUTES];
    uint32_t count = add_cluster(variant, attributes, 0);
    if (is_dependent) {
        attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    uint32_t column_tiles = (uint32_t)dk_ceil_div(args->n, variant->columns);
    uint32_t row_tiles = variant->is_row_tiled ? (uint32_t)dk_ceil_div(args->m, variant->rows) : 1;
    cudaLaunchConfig_t config = {.gridDim = {column_tiles * variant->splits, row_tiles, 1},
                                 .blockDim = {shape->warps * 32, 1, 1},
                                 .dynamicSmemBytes = variant->shared_bytes,
                                 .stream = stream,
                                 .attrs = attributes,
                                 .numAttrs = count};
    struct dk_small_args copy = *args;
    copy.is_dependent = is_dependent;
    void *parameters[] = {&copy};
    bool is_exact =
        shape->is_exact && !variant->is_long && args->a_stride == args->k && args->w_stride == args->k;
    bool is_lean = !args->is_sigmoid && !args->is_c_bf16 && args->bias == NULL;
    return cudaLaunchKernelExC(&config, variant->kernels[is_exact][is_lean], parameters);
}
