/* blas.c: the few CBLAS functions we call, looked up by name so that nothing links OpenBLAS. */
#include "kernels/cpu/blas.h"

#include <assert.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Values of the CBLAS enumerations. */
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

typedef void (*sgemm_function)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                               const float *a, int lda, const float *b, int ldb, float beta, float *c,
                               int ldc);
typedef void (*sgemv_function)(int order, int trans, int m, int n, float alpha, const float *a, int lda,
                               const float *x, int incx, float beta, float *y, int incy);

struct dk_blas {
    sgemm_function sgemm;
    sgemv_function sgemv;
    void (*set_num_threads)(int);
    char *(*get_corename)(void);
};

/* ISO C has no cast from object to function pointer; POSIX guarantees the representation. */
static bool look_up(void *library, const char *name, void *function_pointer)
{
    void *symbol = dlsym(library, name);
    memcpy(function_pointer, &symbol, sizeof symbol);
    return symbol != NULL;
}

struct dk_blas *dk_blas_open(uint32_t thread_count)
{
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        return NULL;
    }
    struct dk_blas *blas = calloc(1, sizeof *blas);
    if (blas && look_up(library, "cblas_sgemm", &blas->sgemm) &&
        look_up(library, "cblas_sgemv", &blas->sgemv) &&
        look_up(library, "openblas_set_num_threads", &blas->set_num_threads) &&
        look_up(library, "openblas_get_corename", &blas->get_corename)) {
        blas->set_num_threads((int)thread_count);
    } else {
        free(blas);
        blas = NULL;
    }
    dlclose(library);
    return blas;
}

void dk_blas_close(struct dk_blas *blas)
{
    free(blas);
}

const char *dk_blas_core_name(const struct dk_blas *blas)
{
    return blas->get_corename();
}

bool dk_blas_can_run(const struct dk_blas_product *product)
{
    return product->m <= INT_MAX && product->n <= INT_MAX && product->k <= INT_MAX &&
           product->a_stride <= INT_MAX && product->c_stride <= INT_MAX;
}

void dk_blas_sgemm(const struct dk_blas *blas, const struct dk_blas_product *p)
{
    bool is_kn = p->b_layout == DK_LAYOUT_KN;
    blas->sgemm(ROW_MAJOR, NO_TRANS, is_kn ? NO_TRANS : TRANS, (int)p->m, (int)p->n, (int)p->k, 1.0f, p->a,
                (int)p->a_stride, p->b, (int)(is_kn ? p->n : p->k), 0.0f, p->c, (int)p->c_stride);
}

void dk_blas_sgemv(const struct dk_blas *blas, const struct dk_blas_product *p)
{
    assert(p->m == 1);
    if (p->b_layout == DK_LAYOUT_KN) {
        blas->sgemv(ROW_MAJOR, TRANS, (int)p->k, (int)p->n, 1.0f, p->b, (int)p->n, p->a, 1, 0.0f, p->c, 1);
    } else {
        blas->sgemv(ROW_MAJOR, NO_TRANS, (int)p->n, (int)p->k, 1.0f, p->b, (int)p->k, p->a, 1, 0.0f, p->c, 1);
    }
}
