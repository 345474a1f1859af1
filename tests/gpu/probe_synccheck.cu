/* probe_synccheck.cu: the least program that compute-sanitizer's synccheck calls wrong: every block of a
 * cluster stores one float into each of its neighbours with st.async, counted by an mbarrier.
 *
 *   probe_synccheck CLUSTER_SIZE BLOCKS
 *
 * Clusters of 8, any number of blocks: no finding. Clusters of 16 in one wave (an H200 holds 7): none either.
 * More: "Missing wait" for barriers of ranks 8 and above, then an illegal access that is there under this
 * tool alone: without it, under memcheck and under racecheck each block receives what it should and nothing
 * is reported (compute-sanitizer 2025.3.1, driver 580.159). So synccheck runs the kernels with clusters of 16
 * in one wave
 * (--one-wave of test_cuda_variants), and the others without a limit. */
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

#include "kernels/cuda/ptx_sm90.cuh"

namespace
{

constexpr unsigned kMaxCluster = 16;

__global__ void exchange(float *out, unsigned cluster_size)
{
    __shared__ float inbox[kMaxCluster];
    __shared__ uint64_t barrier_word;
    const unsigned rank = blockIdx.x % cluster_size, thread = threadIdx.x;
    const uint32_t barrier = dk::shared_address(&barrier_word);
    if (thread == 0) {
        dk::mbarrier_init(barrier, 1);
        dk::mbarrier_init_fence();
        dk::mbarrier_arrive_expect(barrier, cluster_size * sizeof(float));
    }
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    dk::cluster_wait();
    if (thread < cluster_size)
        dk::store_async(dk::map_to_rank(dk::shared_address(&inbox[rank]), thread), 1.0f,
                        dk::map_to_rank(barrier, thread));
    dk::mbarrier_wait(barrier, 0);
    float sum = 0.0f;
    for (unsigned i = 0; i < cluster_size; ++i)
        sum += inbox[i];
    if (thread == 0)
        out[blockIdx.x] = sum;
}

bool check(cudaError_t error, const char *what)
{
    if (error != cudaSuccess)
        std::fprintf(stderr, "probe_synccheck: %s: %s\n", what, cudaGetErrorString(error));
    return error == cudaSuccess;
}

bool run(unsigned cluster_size, unsigned blocks)
{
    float *out = nullptr;
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {cluster_size, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(32);
    config.attrs = &cluster;
    config.numAttrs = 1;
    if (!check(cudaMalloc(&out, blocks * sizeof *out), "memory") ||
        !check(cudaFuncSetAttribute(exchange, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
               "attribute") ||
        !check(cudaLaunchKernelEx(&config, exchange, out, cluster_size), "launch") ||
        !check(cudaDeviceSynchronize(), "kernel"))
        return false;
    std::vector<float> sums(blocks);
    if (!check(cudaMemcpy(sums.data(), out, blocks * sizeof *out, cudaMemcpyDeviceToHost), "copy"))
        return false;
    unsigned wrong = 0;
    for (unsigned i = 0; i < blocks; ++i)
        wrong += sums[i] != static_cast<float>(cluster_size);
    std::printf("clusters of %u, %u blocks: %u wrong\n", cluster_size, blocks, wrong);
    return check(cudaFree(out), "free") && wrong == 0;
}

} // namespace

int main(int argc, char **argv)
{
    const unsigned size = argc == 3 ? static_cast<unsigned>(std::atoi(argv[1])) : 0;
    const unsigned blocks = argc == 3 ? static_cast<unsigned>(std::atoi(argv[2])) : 0;
    if (size < 1 || size > kMaxCluster || blocks < size || blocks % size != 0) {
        std::fprintf(stderr, "usage: probe_synccheck CLUSTER_SIZE BLOCKS\n");
        return 2;
    }
    return run(size, blocks) ? 0 : 1;
}
