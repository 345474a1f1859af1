/* micro_avx2.c: the micro-kernel with 8 columns a register: panels are walked in sub-strips that fit the 16
 * registers. */
#include <cpuid.h>
#include <immintrin.h>

#include "kernels/cpu/micro.h"
#include "kernels/cpu/unroll.h"

enum { LANES = 8, MAX_REGISTERS = 8 };

/* Not every compiler's __builtin_cpu_supports knows this feature. */
static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

static bool is_supported(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

/* Two steps of this sub-strip's B further on (bf16: a pair lies in one run). Not for many rows of fp32: their
 * B is usually a copy that is near already. */
static inline __attribute__((always_inline)) void fetch_ahead(const char *b, size_t step_bytes, size_t bytes,
                                                              int rows, dk_dtype type)
{
    for (size_t line = 0; (rows <= 3 || type != DK_FP32) && line < bytes; line += 64) {
        __builtin_prefetch(b + DK_MICRO_AHEAD_BYTES + line);
        if (type != DK_BF16) {
            __builtin_prefetch(b + DK_MICRO_AHEAD_BYTES + step_bytes + line);
        }
    }
}

/* One register of step k at byte offset of its columns. `is_odd`: k's parity, for the pairs of bf16. */
static inline __attribute__((always_inline)) __m256 load_b(const char *step, dk_dtype type, int vec,
                                                           bool is_odd)
{
    if (type == DK_FP32) {
        return _mm256_loadu_ps((const float *)(const void *)(step + vec * 32));
    }
    if (type == DK_FP16) {
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(step + vec * 16)));
    }
    __m256i pair = _mm256_loadu_si256((const __m256i *)(const void *)(step + vec * 32));
    return _mm256_castsi256_ps(is_odd ? _mm256_and_si256(pair, _mm256_set1_epi32((int)0xffff0000u))
                                      : _mm256_slli_epi32(pair, 16));
}

static inline __attribute__((always_inline)) void add_step(__m256 sums[DK_MICRO_ROWS][MAX_REGISTERS],
                                                           const float *a, size_t a_stride, const char *step,
                                                           float *wide, int rows, int vecs, dk_dtype type,
                                                           bool is_odd)
{
    __m256 b[MAX_REGISTERS];
    DK_UNROLL
    for (int v = 0; v < vecs; v++) {
        b[v] = load_b(step, type, v, is_odd);
        if (wide) {
            _mm256_storeu_ps(wide + v * LANES, b[v]);
        }
    }
    DK_UNROLL
    for (int r = 0; r < rows; r++) {
        __m256 x = _mm256_broadcast_ss(a + (size_t)r * a_stride);
        DK_UNROLL
        for (int v = 0; v < vecs; v++) {
            sums[r][v] = _mm256_fmadd_ps(x, b[v], sums[r][v]);
        }
    }
}

/* One block of steps of one sub-strip: `vecs` registers wide, at most 12 sums. */
static inline __attribute__((always_inline)) void run_block(const float *a, size_t a_stride, const char *b,
                                                            size_t steps, float *c, size_t c_stride,
                                                            float *wide, size_t width, int rows, int vecs,
                                                            dk_dtype type, bool is_adding)
{
    const size_t step_bytes = width * (type == DK_FP32 ? 4 : 2);
    __m256 sums[DK_MICRO_ROWS][MAX_REGISTERS];
    DK_UNROLL
    for (int r = 0; r < rows; r++) {
        DK_UNROLL
        for (int v = 0; v < vecs; v++) {
            sums[r][v] = _mm256_setzero_ps();
        }
    }
    for (size_t pair = 0; pair < steps / 2; pair++) {
        fetch_ahead(b, step_bytes, (size_t)vecs * LANES * (type == DK_FP16 ? 2 : 4), rows, type);
        add_step(sums, a, a_stride, b, wide, rows, vecs, type, false);
        const char *second = type == DK_BF16 ? b : b + step_bytes;
        DK_FORGET(second); /* read a pair again rather than keep it: registers are all in use */
        add_step(sums, a + 1, a_stride, second, wide ? wide + width : NULL, rows, vecs, type, true);
        a += 2;
        b += 2 * step_bytes;
        wide = wide ? wide + 2 * width : NULL;
    }
    if (steps % 2 != 0) {
        add_step(sums, a, a_stride, b, wide, rows, vecs, type, false);
    }
    DK_UNROLL
    for (int r = 0; r < rows; r++) {
        DK_UNROLL
        for (int v = 0; v < vecs; v++) {
            float *to = c + (size_t)r * c_stride + v * LANES;
            __m256 sum = is_adding ? _mm256_add_ps(_mm256_loadu_ps(to), sums[r][v]) : sums[r][v];
            _mm256_storeu_ps(to, sum);
        }
    }
}

/* Registers of a sub-strip: enough sums in flight to hide the latency of a multiply-add, few enough to fit.
 */
static inline __attribute__((always_inline)) int sub_strip(int rows, int registers)
{
    int best = rows == 1 ? 8 : rows <= 3 ? 4 : 2;
    return best < registers ? best : registers;
}

static inline __attribute__((always_inline)) void run_strip(const struct dk_micro *call, int rows, int vecs,
                                                            dk_dtype type, bool is_widening)
{
    const size_t item = type == DK_FP32 ? 4 : 2;
    const size_t width = (size_t)vecs * 16;
    const int registers = vecs * 2, sub = sub_strip(rows, registers);
    /* A pair of bf16 takes a 32-bit word a column. */
    const size_t column_bytes = type == DK_FP16 ? 2 : 4;
    bool is_adding = call->is_accumulating;
    for (size_t k = 0; k < call->k_count; k += DK_PLAN_INNER_K) {
        size_t left = call->k_count - k, steps = left < DK_PLAN_INNER_K ? left : DK_PLAN_INNER_K;
        const char *b = (const char *)call->b + k * width * item;
        float *wide = is_widening ? call->wide + k * width : NULL;
        for (int v = 0; v < registers; v += sub) {
            size_t column = (size_t)v * LANES;
            run_block(call->a + k, call->a_stride, b + column * column_bytes, steps, call->c + column,
                      call->c_stride, is_widening ? wide + column : NULL, width, rows, sub, type, is_adding);
        }
        is_adding = true;
    }
}

#include "kernels/cpu/micro_table.h"

static void widen(const void *src, dk_dtype src_dtype, float *dst, size_t count)
{
    const char *from = src;
    size_t item = src_dtype == DK_FP32 ? 4 : 2, whole = count - count % LANES;
    for (size_t i = 0; i < whole; i += LANES) {
        __m256 values;
        if (src_dtype == DK_FP32) {
            values = _mm256_loadu_ps((const float *)(const void *)(from + i * item));
        } else {
            __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(from + i * item));
            values = src_dtype == DK_FP16
                         ? _mm256_cvtph_ps(half)
                         : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
        }
        _mm256_storeu_ps(dst + i, values);
    }
    dk_convert_to_float(from + whole * item, src_dtype, dst + whole, count - whole);
}

/* To nearest even by adding just under half of the last kept place; NaN keeps its top bits, made quiet. */
static __m128i bf16_from_floats(__m256 values)
{
    __m256i bits = _mm256_castps_si256(values);
    __m256i last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), last);
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
    rounded = _mm256_blendv_epi8(rounded, _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), is_nan);
    __m256i high = _mm256_srli_epi32(rounded, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

static void narrow(const float *src, void *dst, dk_dtype dst_dtype, size_t count)
{
    char *to = dst;
    size_t item = dst_dtype == DK_FP32 ? 4 : 2, whole = count - count % LANES;
    for (size_t i = 0; i < whole; i += LANES) {
        __m256 values = _mm256_loadu_ps(src + i);
        if (dst_dtype == DK_FP32) {
            _mm256_storeu_ps((float *)(void *)(to + i * item), values);
        } else {
            __m128i half = dst_dtype == DK_FP16
                               ? _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
                               : bf16_from_floats(values);
            _mm_storeu_si128((__m128i *)(void *)(to + i * item), half);
        }
    }
    dk_convert_from_float(src + whole, to + whole * item, dst_dtype, count - whole);
}

const struct dk_isa dk_isa_avx2 = {
    .name = "avx2",
    .variant_names = {"avx2_split", "avx2_tiled"},
    .is_supported = is_supported,
    .micro = micro,
    .widen = widen,
    .narrow = narrow,
};
