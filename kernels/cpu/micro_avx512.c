/* micro_avx512.c: the micro-kernel with 16 columns a register: 6 rows x 4 registers of sums. */
#include <immintrin.h>

#include "kernels/cpu/micro.h"
#include "kernels/cpu/unroll.h"

enum { LANES = 16, MAX_VECS = 4 };

static bool is_supported(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

/* Two steps of B further on. Not for many rows of fp32: their B is usually a copy that is near already. */
static inline __attribute__((always_inline)) void fetch_ahead(const char *b, size_t bytes, int rows,
                                                              dk_dtype type)
{
    for (size_t line = 0; (rows <= 3 || type != DK_FP32) && line < bytes; line += 64) {
        __builtin_prefetch(b + DK_MICRO_AHEAD_BYTES + line);
    }
}

/* One register of step k. `is_odd`: k's parity, for the pairs of bf16. */
static inline __attribute__((always_inline)) __m512 load_b(const char *step, dk_dtype type, int vec,
                                                           bool is_odd)
{
    if (type == DK_FP32) {
        return _mm512_loadu_ps(step + vec * 64);
    }
    if (type == DK_FP16) {
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(step + vec * 32)));
    }
    __m512i pair = _mm512_loadu_si512(step + vec * 64);
    return _mm512_castsi512_ps(is_odd ? _mm512_and_si512(pair, _mm512_set1_epi32((int)0xffff0000u))
                                      : _mm512_slli_epi32(pair, 16));
}

static inline __attribute__((always_inline)) void add_step(__m512 sums[DK_MICRO_ROWS][MAX_VECS],
                                                           const float *a, size_t a_stride, const char *step,
                                                           float *wide, int rows, int vecs, dk_dtype type,
                                                           bool is_odd)
{
    __m512 b[MAX_VECS];
    DK_UNROLL
    for (int v = 0; v < vecs; v++) {
        b[v] = load_b(step, type, v, is_odd);
        if (wide) {
            _mm512_storeu_ps(wide + v * LANES, b[v]);
        }
    }
    DK_UNROLL
    for (int r = 0; r < rows; r++) {
        __m512 x = _mm512_set1_ps(a[(size_t)r * a_stride]);
        DK_UNROLL
        for (int v = 0; v < vecs; v++) {
            sums[r][v] = _mm512_fmadd_ps(x, b[v], sums[r][v]);
        }
    }
}

static inline __attribute__((always_inline)) void store_sums(float *c, size_t c_stride,
                                                             __m512 sums[DK_MICRO_ROWS][MAX_VECS], int rows,
                                                             int vecs, bool is_adding)
{
    DK_UNROLL
    for (int r = 0; r < rows; r++) {
        DK_UNROLL
        for (int v = 0; v < vecs; v++) {
            float *to = c + (size_t)r * c_stride + v * LANES;
            __m512 sum = is_adding ? _mm512_add_ps(_mm512_loadu_ps(to), sums[r][v]) : sums[r][v];
            _mm512_storeu_ps(to, sum);
        }
    }
}

static inline __attribute__((always_inline)) void run_strip(const struct dk_micro *call, int rows, int vecs,
                                                            dk_dtype type, bool is_widening)
{
    const size_t step_bytes = (size_t)vecs * LANES * (type == DK_FP32 ? 4 : 2);
    const size_t width = (size_t)vecs * LANES;
    const size_t a_stride = call->a_stride, c_stride = call->c_stride;
    float *c = call->c;
    const float *a = call->a;
    const char *b = call->b;
    float *wide = call->wide;
    bool is_adding = call->is_accumulating;
    for (size_t left = call->k_count; left > 0;) {
        size_t block = left < DK_PLAN_INNER_K ? left : DK_PLAN_INNER_K;
        __m512 sums[DK_MICRO_ROWS][MAX_VECS];
        DK_UNROLL
        for (int r = 0; r < rows; r++) {
            DK_UNROLL
            for (int v = 0; v < vecs; v++) {
                sums[r][v] = _mm512_setzero_ps();
            }
        }
        for (size_t pair = 0; pair < block / 2; pair++) {
            fetch_ahead(b, 2 * step_bytes, rows, type);
            add_step(sums, a, a_stride, b, is_widening ? wide : NULL, rows, vecs, type, false);
            const char *second = type == DK_BF16 ? b : b + step_bytes;
            DK_FORGET(second); /* read a pair again rather than keep it: registers are all in use */
            add_step(sums, a + 1, a_stride, second, is_widening ? wide + width : NULL, rows, vecs, type,
                     true);
            a += 2;
            b += 2 * step_bytes;
            wide = is_widening ? wide + 2 * width : NULL;
        }
        if (block % 2 != 0) {
            add_step(sums, a, a_stride, b, is_widening ? wide : NULL, rows, vecs, type, false);
        }
        store_sums(c, c_stride, sums, rows, vecs, is_adding);
        is_adding = true;
        left -= block;
    }
}

#include "kernels/cpu/micro_table.h"

/* A mask of the first `count` lanes. */
static inline __mmask16 first_lanes(size_t count)
{
    if (count >= LANES) {
        return 0xffff;
    }
    return (__mmask16)((1u << count) - 1);
}

static void widen(const void *src, dk_dtype src_dtype, float *dst, size_t count)
{
    const char *from = src;
    size_t item = src_dtype == DK_FP32 ? 4 : 2;
    for (size_t i = 0; i < count; i += LANES) {
        __mmask16 lanes = first_lanes(count - i);
        __m512 values;
        if (src_dtype == DK_FP32) {
            values = _mm512_maskz_loadu_ps(lanes, from + i * item);
        } else {
            __m256i half = _mm256_maskz_loadu_epi16(lanes, from + i * item);
            values = src_dtype == DK_FP16
                         ? _mm512_cvtph_ps(half)
                         : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
        }
        _mm512_mask_storeu_ps(dst + i, lanes, values);
    }
}

/* To nearest even by adding just under half of the last kept place; NaN keeps its top bits, made quiet. */
static __m256i bf16_from_floats(__m512 values)
{
    __m512i bits = _mm512_castps_si512(values);
    __m512i last = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), last);
    __mmask16 is_nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

static void narrow(const float *src, void *dst, dk_dtype dst_dtype, size_t count)
{
    char *to = dst;
    size_t item = dst_dtype == DK_FP32 ? 4 : 2;
    for (size_t i = 0; i < count; i += LANES) {
        __mmask16 lanes = first_lanes(count - i);
        __m512 values = _mm512_maskz_loadu_ps(lanes, src + i);
        if (dst_dtype == DK_FP32) {
            _mm512_mask_storeu_ps(to + i * item, lanes, values);
        } else {
            __m256i half = dst_dtype == DK_FP16
                               ? _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
                               : bf16_from_floats(values);
            _mm256_mask_storeu_epi16(to + i * item, lanes, half);
        }
    }
}

const struct dk_isa dk_isa_avx512 = {
    .name = "avx512",
    .variant_names = {"avx512_split", "avx512_tiled"},
    .is_supported = is_supported,
    .micro = micro,
    .widen = widen,
    .narrow = narrow,
};
