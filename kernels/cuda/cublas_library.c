/* cublas_library.c: dlopen of cuBLAS and cuBLASLt of the CUDA version this was built with. */
#include "kernels/cuda/cublas_library.h"

#include <dlfcn.h>
#include <string.h>

#define TEXT_(x)  #x
#define TEXT(x)   TEXT_(x)
#define BLAS_FILE "libcublas.so." TEXT(CUBLAS_VER_MAJOR)
#define LT_FILE   "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR)

/* ISO C has no cast from an object to a function pointer; POSIX guarantees the representation. */
static bool resolve(void *library, const char *name, void *out, size_t size)
{
    void *symbol = dlsym(library, name);
    memcpy(out, &symbol, size);
    return symbol != NULL;
}

static bool resolve_all(struct dk_cublas_library *library)
{
    bool is_complete = true;
#define RESOLVE(member, symbol)                                                                              \
    is_complete = resolve(library->blas, #symbol, &library->member, sizeof library->member) && is_complete;
    DK_CUBLAS_MAP(RESOLVE)
#undef RESOLVE
#define RESOLVE(member, symbol)                                                                              \
    is_complete = resolve(library->lt, #symbol, &library->member, sizeof library->member) && is_complete;
    DK_CUBLASLT_MAP(RESOLVE)
#undef RESOLVE
    return is_complete;
}

bool dk_cublas_library_load(struct dk_cublas_library *out)
{
    struct dk_cublas_library library = {0};
    library.lt = dlopen(LT_FILE, RTLD_NOW | RTLD_LOCAL); /* first: cuBLAS needs it */
    if (library.lt == NULL)
        return false;
    library.blas = dlopen(BLAS_FILE, RTLD_NOW | RTLD_LOCAL);
    if (library.blas == NULL || !resolve_all(&library)) {
        dk_cublas_library_unload(&library);
        return false;
    }
    *out = library;
    return true;
}

void dk_cublas_library_unload(struct dk_cublas_library *library)
{
    if (library->blas != NULL)
        (void)dlclose(library->blas);
    if (library->lt != NULL)
        (void)dlclose(library->lt);
    library->blas = library->lt = NULL;
}
