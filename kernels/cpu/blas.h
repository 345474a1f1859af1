/* blas.h: OpenBLAS, loaded when asked for: a candidate for many rows and the peer of the benchmark. */
#ifndef DK_KERNELS_CPU_BLAS_H
#define DK_KERNELS_CPU_BLAS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/gemm.h"

struct dk_blas;

/* Loads libopenblas.so.0 and sets its thread count for the whole process. NULL when it is not there. */
struct dk_blas *dk_blas_open(uint32_t thread_count);
void dk_blas_close(struct dk_blas *blas); /* NULL-safe; the library stays loaded (it keeps threads) */
/* The name of the kernel set OpenBLAS chose, for example "SkylakeX". */
const char *dk_blas_core_name(const struct dk_blas *blas);

/* Operands of sgemm: C[m,n] = A[m,k] B, all fp32, rows a_stride and c_stride elements apart; B dense. */
struct dk_blas_product {
    uint64_t m, n, k;
    const float *a, *b;
    float *c;
    uint64_t a_stride, c_stride;
    dk_layout b_layout;
};
/* True when every extent and stride fits BLAS' int. */
bool dk_blas_can_run(const struct dk_blas_product *product);
void dk_blas_sgemm(const struct dk_blas *blas, const struct dk_blas_product *product);
/* m must be 1. */
void dk_blas_sgemv(const struct dk_blas *blas, const struct dk_blas_product *product);

#endif
