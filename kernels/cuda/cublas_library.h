/* cublas_library.h: the functions of cuBLAS and cuBLASLt that are used, resolved with dlsym. */
#ifndef DK_KERNELS_CUDA_CUBLAS_LIBRARY_H
#define DK_KERNELS_CUDA_CUBLAS_LIBRARY_H

#include <cublasLt.h>
#include <cublas_v2.h>
#include <stdbool.h>

/* X(member, symbol). The *_internal symbols are what the headers' inline init functions call: descriptions
 * then live on the stack, and the hot path allocates nothing. */
#define DK_CUBLAS_MAP(X)                                                                                     \
    X(create, cublasCreate_v2)                                                                               \
    X(destroy, cublasDestroy_v2)                                                                             \
    X(set_stream, cublasSetStream_v2)                                                                        \
    X(set_workspace, cublasSetWorkspace_v2)                                                                  \
    X(gemm, cublasGemmEx)
#define DK_CUBLASLT_MAP(X)                                                                                   \
    X(lt_create, cublasLtCreate)                                                                             \
    X(lt_destroy, cublasLtDestroy)                                                                           \
    X(lt_matmul, cublasLtMatmul)                                                                             \
    X(heuristic, cublasLtMatmulAlgoGetHeuristic)                                                             \
    X(desc_init, cublasLtMatmulDescInit_internal)                                                            \
    X(desc_set, cublasLtMatmulDescSetAttribute)                                                              \
    X(layout_init, cublasLtMatrixLayoutInit_internal)                                                        \
    X(preference_init, cublasLtMatmulPreferenceInit_internal)                                                \
    X(preference_set, cublasLtMatmulPreferenceSetAttribute)

struct dk_cublas_library {
    void *blas, *lt; /* dlopen handles */
#define DK_CUBLAS_MEMBER(member, symbol) __typeof__(&(symbol)) member;
    DK_CUBLAS_MAP(DK_CUBLAS_MEMBER)
    DK_CUBLASLT_MAP(DK_CUBLAS_MEMBER)
#undef DK_CUBLAS_MEMBER
};

/* False, and nothing loaded, when a library or a symbol is missing. */
bool dk_cublas_library_load(struct dk_cublas_library *out);
void dk_cublas_library_unload(struct dk_cublas_library *library);

#endif
