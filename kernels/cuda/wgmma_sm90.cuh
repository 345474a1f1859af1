/* wgmma_sm90.cuh: the warpgroup's matrix multiply, and the loads and stores that feed and drain it. */
#ifndef DK_KERNELS_CUDA_WGMMA_SM90_CUH
#define DK_KERNELS_CUDA_WGMMA_SM90_CUH

#include <cuda.h>

#include "kernels/cuda/ptx_sm90.cuh"

namespace dk
{

/* clang-format off */
/* Operand lists of an accumulator of COLUMNS / 2 registers, each the one before and four more. */
#define DK_WGMMA_NAMES_8 "%0, %1, %2, %3"
#define DK_WGMMA_REGISTERS_8 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define DK_WGMMA_NAMES_16 DK_WGMMA_NAMES_8 ", %4, %5, %6, %7"
#define DK_WGMMA_REGISTERS_16 DK_WGMMA_REGISTERS_8, "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define DK_WGMMA_NAMES_24 DK_WGMMA_NAMES_16 ", %8, %9, %10, %11"
#define DK_WGMMA_REGISTERS_24 DK_WGMMA_REGISTERS_16, "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define DK_WGMMA_NAMES_32 DK_WGMMA_NAMES_24 ", %12, %13, %14, %15"
#define DK_WGMMA_REGISTERS_32 DK_WGMMA_REGISTERS_24, "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define DK_WGMMA_NAMES_40 DK_WGMMA_NAMES_32 ", %16, %17, %18, %19"
#define DK_WGMMA_REGISTERS_40 DK_WGMMA_REGISTERS_32, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19])
#define DK_WGMMA_NAMES_48 DK_WGMMA_NAMES_40 ", %20, %21, %22, %23"
#define DK_WGMMA_REGISTERS_48 DK_WGMMA_REGISTERS_40, "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define DK_WGMMA_NAMES_56 DK_WGMMA_NAMES_48 ", %24, %25, %26, %27"
#define DK_WGMMA_REGISTERS_56 DK_WGMMA_REGISTERS_48, "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27])
#define DK_WGMMA_NAMES_64 DK_WGMMA_NAMES_56 ", %28, %29, %30, %31"
#define DK_WGMMA_REGISTERS_64 DK_WGMMA_REGISTERS_56, "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define DK_WGMMA_NAMES_72 DK_WGMMA_NAMES_64 ", %32, %33, %34, %35"
#define DK_WGMMA_REGISTERS_72 DK_WGMMA_REGISTERS_64, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
#define DK_WGMMA_NAMES_80 DK_WGMMA_NAMES_72 ", %36, %37, %38, %39"
#define DK_WGMMA_REGISTERS_80 DK_WGMMA_REGISTERS_72, "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define DK_WGMMA_NAMES_88 DK_WGMMA_NAMES_80 ", %40, %41, %42, %43"
#define DK_WGMMA_REGISTERS_88 DK_WGMMA_REGISTERS_80, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43])
#define DK_WGMMA_NAMES_96 DK_WGMMA_NAMES_88 ", %44, %45, %46, %47"
#define DK_WGMMA_REGISTERS_96 DK_WGMMA_REGISTERS_88, "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define DK_WGMMA_NAMES_104 DK_WGMMA_NAMES_96 ", %48, %49, %50, %51"
#define DK_WGMMA_REGISTERS_104 DK_WGMMA_REGISTERS_96, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51])
#define DK_WGMMA_NAMES_112 DK_WGMMA_NAMES_104 ", %52, %53, %54, %55"
#define DK_WGMMA_REGISTERS_112 DK_WGMMA_REGISTERS_104, "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define DK_WGMMA_NAMES_120 DK_WGMMA_NAMES_112 ", %56, %57, %58, %59"
#define DK_WGMMA_REGISTERS_120 DK_WGMMA_REGISTERS_112, "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59])
#define DK_WGMMA_NAMES_128 DK_WGMMA_NAMES_120 ", %60, %61, %62, %63"
#define DK_WGMMA_REGISTERS_128 DK_WGMMA_REGISTERS_120, "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define DK_WGMMA_NAMES_136 DK_WGMMA_NAMES_128 ", %64, %65, %66, %67"
#define DK_WGMMA_REGISTERS_136 DK_WGMMA_REGISTERS_128, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])
#define DK_WGMMA_NAMES_144 DK_WGMMA_NAMES_136 ", %68, %69, %70, %71"
#define DK_WGMMA_REGISTERS_144 DK_WGMMA_REGISTERS_136, "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
#define DK_WGMMA_NAMES_152 DK_WGMMA_NAMES_144 ", %72, %73, %74, %75"
#define DK_WGMMA_REGISTERS_152 DK_WGMMA_REGISTERS_144, "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75])
#define DK_WGMMA_NAMES_160 DK_WGMMA_NAMES_152 ", %76, %77, %78, %79"
#define DK_WGMMA_REGISTERS_160 DK_WGMMA_REGISTERS_152, "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
#define DK_WGMMA_NAMES_168 DK_WGMMA_NAMES_160 ", %80, %81, %82, %83"
#define DK_WGMMA_REGISTERS_168 DK_WGMMA_REGISTERS_160, "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83])
#define DK_WGMMA_NAMES_176 DK_WGMMA_NAMES_168 ", %84, %85, %86, %87"
#define DK_WGMMA_REGISTERS_176 DK_WGMMA_REGISTERS_168, "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])
#define DK_WGMMA_NAMES_184 DK_WGMMA_NAMES_176 ", %88, %89, %90, %91"
#define DK_WGMMA_REGISTERS_184 DK_WGMMA_REGISTERS_176, "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91])
#define DK_WGMMA_NAMES_192 DK_WGMMA_NAMES_184 ", %92, %93, %94, %95"
#define DK_WGMMA_REGISTERS_192 DK_WGMMA_REGISTERS_184, "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define DK_WGMMA_NAMES_200 DK_WGMMA_NAMES_192 ", %96, %97, %98, %99"
#define DK_WGMMA_REGISTERS_200 DK_WGMMA_REGISTERS_192, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99])
#define DK_WGMMA_NAMES_208 DK_WGMMA_NAMES_200 ", %100, %101, %102, %103"
#define DK_WGMMA_REGISTERS_208 DK_WGMMA_REGISTERS_200, "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
#define DK_WGMMA_NAMES_216 DK_WGMMA_NAMES_208 ", %104, %105, %106, %107"
#define DK_WGMMA_REGISTERS_216 DK_WGMMA_REGISTERS_208, "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107])
#define DK_WGMMA_NAMES_224 DK_WGMMA_NAMES_216 ", %108, %109, %110, %111"
#define DK_WGMMA_REGISTERS_224 DK_WGMMA_REGISTERS_216, "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])
#define DK_WGMMA_NAMES_232 DK_WGMMA_NAMES_224 ", %112, %113, %114, %115"
#define DK_WGMMA_REGISTERS_232 DK_WGMMA_REGISTERS_224, "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115])
#define DK_WGMMA_NAMES_240 DK_WGMMA_NAMES_232 ", %116, %117, %118, %119"
#define DK_WGMMA_REGISTERS_240 DK_WGMMA_REGISTERS_232, "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119])
#define DK_WGMMA_NAMES_248 DK_WGMMA_NAMES_240 ", %120, %121, %122, %123"
#define DK_WGMMA_REGISTERS_248 DK_WGMMA_REGISTERS_240, "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123])
#define DK_WGMMA_NAMES_256 DK_WGMMA_NAMES_248 ", %124, %125, %126, %127"
#define DK_WGMMA_REGISTERS_256 DK_WGMMA_REGISTERS_248, "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
/* clang-format on */

/* D[64, COLUMNS] += A[64, 16] * B[16, COLUMNS], bf16 in, fp32 in registers; A and B lie in shared memory.
 * A_NAME, B_NAME: the operands behind the accumulator. */
template <int COLUMNS> struct wgmma;
#define DK_WGMMA(COLUMNS, A_NAME, B_NAME)                                                                    \
    template <> struct wgmma<COLUMNS> {                                                                      \
        static __device__ __forceinline__ void multiply(float (&d)[COLUMNS / 2], uint64_t a, uint64_t b)     \
        {                                                                                                    \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32.bf16.bf16 "                   \
                         "{" DK_WGMMA_NAMES_##COLUMNS "}, %" #A_NAME ", %" #B_NAME ", 1, 1, 1, 0, 0;"        \
                         : DK_WGMMA_REGISTERS_##COLUMNS                                                      \
                         : "l"(a), "l"(b));                                                                  \
        }                                                                                                    \
    };
/* clang-format off */
DK_WGMMA(8, 4, 5) DK_WGMMA(16, 8, 9) DK_WGMMA(24, 12, 13) DK_WGMMA(32, 16, 17)
DK_WGMMA(40, 20, 21) DK_WGMMA(48, 24, 25) DK_WGMMA(56, 28, 29) DK_WGMMA(64, 32, 33)
DK_WGMMA(72, 36, 37) DK_WGMMA(80, 40, 41) DK_WGMMA(88, 44, 45) DK_WGMMA(96, 48, 49)
DK_WGMMA(104, 52, 53) DK_WGMMA(112, 56, 57) DK_WGMMA(120, 60, 61) DK_WGMMA(128, 64, 65)
DK_WGMMA(136, 68, 69) DK_WGMMA(144, 72, 73) DK_WGMMA(152, 76, 77) DK_WGMMA(160, 80, 81)
DK_WGMMA(168, 84, 85) DK_WGMMA(176, 88, 89) DK_WGMMA(184, 92, 93) DK_WGMMA(192, 96, 97)
DK_WGMMA(200, 100, 101) DK_WGMMA(208, 104, 105) DK_WGMMA(216, 108, 109) DK_WGMMA(224, 112, 113)
DK_WGMMA(232, 116, 117) DK_WGMMA(240, 120, 121) DK_WGMMA(248, 124, 125) DK_WGMMA(256, 128, 129)
/* clang-format on */
#undef DK_WGMMA

    /* Before the first multiply that reads registers or shared memory written since the last one. */
    __device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Until at most PENDING committed groups are under way. */
template <int PENDING> __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
/* The compiler must not move reads of an accumulator above the wait. */
template <int COUNT> __device__ __forceinline__ void wgmma_pin(float (&d)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
        asm volatile("" : "+f"(d[i])::"memory");
}
/* Rows of 64 bf16, swizzled by 128 bytes as the tensor map lays them: groups of 8 rows are 1,024 bytes apart.
 * `address` is on a 1,024-byte border; a step of 16 along K adds 32 bytes, 2 in the descriptor's unit. */
__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t address)
{
    constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kGroupStride = uint64_t{1024 / 16} << 32;
    return kSwizzle128 | kGroupStride | uint64_t{1} << 16 | ((address & 0x3ffff) >> 4);
}

/* One box of a two-dimensional tensor map at column x (along K), row y, into shared memory; what lies outside
 * the tensor arrives as zeros. `barrier` counts the whole box. */
__device__ __forceinline__ void load_box(uint32_t to, const CUtensorMap *map, uint32_t x, uint32_t y,
                                         uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void prefetch_map(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/* Barriers initialised by ordinary stores, before the copy engine counts on them. */
__device__ __forceinline__ void async_proxy_fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/* Four values into another block's shared memory; its barrier counts the bytes. */
__device__ __forceinline__ void store_async(uint32_t address, const float4 &v, uint32_t barrier)
{
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
            address),
        "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier)
        : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t address, const float4 &v)
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(v.x), "f"(v.y), "f"(v.z),
                 "f"(v.w)
                 : "memory");
}
__device__ __forceinline__ void load_shared(uint32_t address, float (&v)[1])
{
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v[0]) : "r"(address));
}
__device__ __forceinline__ void load_shared(uint32_t address, float (&v)[2])
{
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v[0]), "=f"(v[1]) : "r"(address));
}
__device__ __forceinline__ void load_shared(uint32_t address, float (&v)[4])
{
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
                 : "r"(address));
}
/* True in one lane of a converged warp; the compiler knows that it is one. */
__device__ __forceinline__ bool elect_lane()
{
    uint32_t is_elected;
    asm volatile("{\n.reg .pred p;\n"
                 "elect.sync _|p, 0xffffffff;\n"
                 "selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(is_elected));
    return is_elected != 0;
}

} // namespace dk

#endif
