/* ptx_sm90.cuh: one wrapper per instruction that CUDA C++ has no word for. */
#ifndef DK_KERNELS_CUDA_PTX_SM90_CUH
#define DK_KERNELS_CUDA_PTX_SM90_CUH

#include <cstdint>

namespace dk
{

__device__ __forceinline__ uint32_t shared_address(const void *pointer)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/* Weights: read once, by one block, never written while a kernel runs. */
__device__ __forceinline__ uint4 load_weights(const void *pointer)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(pointer));
    return v;
}

/* Activations: a coherent load, since the kernel before may still have been writing them when this one
 * started. */
__device__ __forceinline__ uint4 load_activations(const void *pointer)
{
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(pointer)
                 : "memory");
    return v;
}

/* Programmatic dependent launch: what the kernel before wrote is visible after the wait; the trigger lets the
 * next kernel's blocks start. */
__device__ __forceinline__ void grid_dependency_wait()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
__device__ __forceinline__ void grid_dependency_trigger()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* D[16,8] += A[16,16] * B[16,8], bf16 in, fp32 accumulators in registers. */
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                             uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* The same with fp16 operands. */
__device__ __forceinline__ void mma_m16n8k16_fp16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                                  uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/* Makes the initialised barrier visible to the other blocks of the cluster. */
__device__ __forceinline__ void mbarrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}
/* Default (cta) scope: the acquire.cluster form invalidates L1. st.async data is ordered by its transaction
 * count. */
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity)
{
    uint32_t is_done;
    do {
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(is_done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (is_done == 0);
}

__device__ __forceinline__ uint32_t map_to_rank(uint32_t address, uint32_t rank)
{
    uint32_t mapped;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
    return mapped;
}
/* Store into another block's shared memory; its barrier counts the bytes. */
__device__ __forceinline__ void store_async(uint32_t address, float value, uint32_t barrier)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(address),
                 "r"(__float_as_uint(value)), "r"(barrier)
                 : "memory");
}

/* Two neighbouring floats in one message. */
__device__ __forceinline__ void store_async_pair(uint32_t address, float first, float second,
                                                 uint32_t barrier)
{
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [%0], {%1, %2}, [%3];" ::"r"(address),
        "r"(__float_as_uint(first)), "r"(__float_as_uint(second)), "r"(barrier)
        : "memory");
}

/* 16 bytes from global to shared memory, past L1; zeros, and nothing read, unless `is_inside`. */
__device__ __forceinline__ void copy_async(uint32_t shared, const void *global, bool is_inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
                 "r"(is_inside ? 16 : 0)
                 : "memory");
}
/* One of the barrier's arrivals, once this thread's copies so far have landed. */
__device__ __forceinline__ void copy_async_arrive(uint32_t barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
/* Barrier `id` (not 0, which is __syncthreads) of `threads` threads, whole warps. */
__device__ __forceinline__ void named_barrier(uint32_t id, uint32_t threads)
{
    asm volatile("barrier.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void cluster_arrive_relaxed()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

} // namespace dk

#endif
