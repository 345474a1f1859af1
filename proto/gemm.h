/* gemm.h: the description of one product C[m,n] = epilogue(A[m,k] * B[k,n] + bias[n]) and its checked sizes.
 */
#ifndef DK_PROTO_GEMM_H
#define DK_PROTO_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/dtype.h"
#include "proto/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How B lies in memory, row-major: DK_LAYOUT_KN is [k, n]; DK_LAYOUT_NK is [n, k] (a checkpoint's nn.Linear
 * weight). */
enum dk_layout { DK_LAYOUT_KN, DK_LAYOUT_NK };
typedef enum dk_layout dk_layout;

/* X(name, text): applied in fp32 after the bias, before the cast to the output type. */
#define DK_EPILOGUE_MAP(X)                                                                                   \
    X(NONE, "none")                                                                                          \
    X(RELU, "relu")                                                                                          \
    X(SIGMOID, "sigmoid")

enum dk_epilogue {
#define DK_EPILOGUE_ENUM(name, text) DK_EPILOGUE_##name,
    DK_EPILOGUE_MAP(DK_EPILOGUE_ENUM)
#undef DK_EPILOGUE_ENUM
        DK_EPILOGUE_COUNT
};
typedef enum dk_epilogue dk_epilogue;

DK_API const char *dk_epilogue_name(dk_epilogue epilogue);
DK_API dk_status dk_epilogue_parse(const char *text, size_t length, dk_epilogue *out);
DK_API const char *dk_layout_name(dk_layout layout); /* "kn", "nk" */
DK_API dk_status dk_layout_parse(const char *text, size_t length, dk_layout *out);

struct dk_gemm {
    uint64_t m, n, k;
    dk_dtype a_dtype, b_dtype, c_dtype;
    dk_layout b_layout;
    dk_epilogue epilogue;
    bool has_bias; /* bias is fp32 [n] */
};

/* Limits of one product: they keep every index in 32 bits and every size far from overflow. */
enum { DK_MAX_M = 1 << 24, DK_MAX_N = 1 << 20, DK_MAX_K = 1 << 24 };

struct dk_gemm_sizes {
    size_t a_bytes, b_bytes, c_bytes, bias_bytes;
};

/* Checks 0 <= m <= DK_MAX_M, 1 <= n <= DK_MAX_N, 1 <= k <= DK_MAX_K, float types, and that no product of
 * extents overflows. DK_BAD_SHAPE or DK_BAD_DTYPE with the offending value. */
DK_API dk_status dk_gemm_check(const struct dk_gemm *gemm, struct dk_gemm_sizes *out, struct dk_error *error);

/* a*b (and a*b + c) without overflow: false when the result does not fit; *out untouched then. */
DK_API bool dk_size_mul(size_t a, size_t b, size_t *out);
DK_API bool dk_size_add(size_t a, size_t b, size_t *out);

#ifdef __cplusplus
}
#endif
#endif
