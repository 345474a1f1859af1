/* dtype.h: the element types, their names in each dialect, and exact conversion (round to nearest even). */
#ifndef DK_PROTO_DTYPE_H
#define DK_PROTO_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, item bytes, native, Open Inference Protocol, safetensors) */
#define DK_DTYPE_MAP(X)                                                                                      \
    X(FP32, 4, "fp32", "FP32", "F32")                                                                        \
    X(BF16, 2, "bf16", "BF16", "BF16")                                                                       \
    X(FP16, 2, "fp16", "FP16", "F16")                                                                        \
    X(INT32, 4, "int32", "INT32", "I32")

enum dk_dtype {
#define DK_DTYPE_ENUM(name, bytes, native, oip, st) DK_##name,
    DK_DTYPE_MAP(DK_DTYPE_ENUM)
#undef DK_DTYPE_ENUM
        DK_DTYPE_COUNT
};
typedef enum dk_dtype dk_dtype;

enum dk_dialect { DK_DIALECT_NATIVE, DK_DIALECT_OIP, DK_DIALECT_SAFETENSORS };

DK_API size_t dk_dtype_bytes(dk_dtype dtype);
DK_API const char *dk_dtype_name(dk_dtype dtype, enum dk_dialect dialect);
/* Exact, case-sensitive match of `length` bytes. DK_BAD_DTYPE when unknown; *out untouched then. */
DK_API dk_status dk_dtype_parse(const char *text, size_t length, enum dk_dialect dialect, dk_dtype *out);
static inline bool dk_dtype_is_float(dk_dtype dtype)
{
    return dtype == DK_FP32 || dtype == DK_BF16 || dtype == DK_FP16;
}

/* Scalar conversions. Narrowing rounds to nearest, ties to even, once (from binary64 too: no double
 * rounding); subnormals exact; overflow gives infinity; NaN stays NaN (quiet, sign and top payload bits
 * kept). */
DK_API uint16_t dk_bf16_from_float(float value);
DK_API uint16_t dk_fp16_from_float(float value);
DK_API uint16_t dk_bf16_from_double(double value);
DK_API uint16_t dk_fp16_from_double(double value);
DK_API float dk_bf16_to_float(uint16_t bits);
DK_API float dk_fp16_to_float(uint16_t bits);

/* Convert `count` elements. Buffers may be unaligned; `dst` and `src` may be the same address when the target
 * item is not larger than the source item (converted in ascending order), else must not overlap. */
DK_API void dk_convert_to_float(const void *src, dk_dtype src_dtype, float *dst, size_t count);
DK_API void dk_convert_from_float(const float *src, void *dst, dk_dtype dst_dtype, size_t count);
DK_API void dk_convert_from_double(const double *src, void *dst, dk_dtype dst_dtype, size_t count);

/* True when rounding the finite `value` to `dtype` overflows to infinity. */
DK_API bool dk_dtype_overflows(dk_dtype dtype, double value);

#ifdef __cplusplus
}
#endif
#endif
