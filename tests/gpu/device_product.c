/* device_product.c: see device_product.h. */
#include "tests/gpu/device_product.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GUARD_BYTES = 256, POISON = 0xA5 };

void cuda_check(cudaError_t error, const char *what)
{
    if (error != cudaSuccess)
        fail_msg("%s: %s", what, cudaGetErrorString(error));
}

static size_t c_allocation(const struct device_product *p)
{
    return p->c_bytes + p->product->what.c_offset + (size_t)2 * GUARD_BYTES;
}

static void upload_a(struct device_product *p)
{
    const struct dk_test_case *what = &p->product->what;
    size_t bytes = what->m * (what->k + what->a_pad) * dk_dtype_bytes(what->a_dtype) + what->a_offset;
    cuda_check(cudaMalloc((void **)&p->d_a, bytes), "cudaMalloc A");
    cuda_check(cudaMemcpy(p->d_a, p->product->a_memory, bytes, cudaMemcpyHostToDevice), "copy A");
}

void device_product_init(struct device_product *out, struct dk_engine *engine,
                         const struct dk_test_case *what)
{
    memset(out, 0, sizeof *out);
    out->engine = engine;
    out->product = dk_test_product_new(what);
    out->weights = dk_test_weights_new(out->product, engine);
    assert_non_null(out->weights);
    upload_a(out);
    out->c_bytes = what->m * (what->n + what->c_pad) * dk_dtype_bytes(what->c_dtype);
    cuda_check(cudaMalloc((void **)&out->d_c, c_allocation(out)), "cudaMalloc C");
    size_t workspace_bytes = dk_workspace_bytes(out->weights, what->m);
    assert_int_equal(dk_workspace_new(engine, workspace_bytes, &out->d_workspace, NULL), DK_OK);
    cuda_check(cudaMemset(out->d_workspace, 0xff, workspace_bytes), "poison workspace"); /* NaN */
    device_product_poison(out);
    out->call = (struct dk_call){.m = what->m,
                                 .a = out->d_a + what->a_offset,
                                 .a_row_elements = what->k + what->a_pad,
                                 .a_dtype = what->a_dtype,
                                 .c = out->d_c + GUARD_BYTES + what->c_offset,
                                 .c_row_elements = what->n + what->c_pad,
                                 .c_dtype = what->c_dtype,
                                 .epilogue = what->epilogue,
                                 .workspace = out->d_workspace};
}

void device_product_poison(const struct device_product *p)
{
    cuda_check(cudaMemset(p->d_c, POISON, c_allocation(p)), "poison C");
    cuda_check(cudaDeviceSynchronize(),
               "synchronise"); /* non-blocking streams do not wait for these copies */
}

static void expect_poison(const unsigned char *bytes, size_t count, const char *where)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != POISON)
            fail_msg("byte %zu %s was written: 0x%02x", i, where, bytes[i]);
}

void device_product_download(const struct device_product *p, void *c)
{
    const struct dk_test_case *what = &p->product->what;
    size_t item = dk_dtype_bytes(what->c_dtype), row_bytes = what->n * item, pad_bytes = what->c_pad * item;
    size_t head = GUARD_BYTES + what->c_offset;
    unsigned char *host = malloc(c_allocation(p));
    assert_non_null(host);
    cuda_check(cudaDeviceSynchronize(), "synchronise");
    cuda_check(cudaMemcpy(host, p->d_c, c_allocation(p), cudaMemcpyDeviceToHost), "copy C");
    expect_poison(host, head, "before C");
    for (uint64_t row = 0; row < p->call.m; row++) {
        const unsigned char *from = host + head + row * (row_bytes + pad_bytes);
        memcpy((char *)c + row * row_bytes, from, row_bytes);
        expect_poison(from + row_bytes, pad_bytes, "between rows of C");
    }
    /* Rows that the call left out are as untouched as the guard. */
    size_t used = head + p->call.m * (row_bytes + pad_bytes);
    expect_poison(host + used, c_allocation(p) - used, "behind C");
    free(host);
}

void device_product_check(const struct device_product *p)
{
    void *c = malloc(p->c_bytes);
    assert_non_null(c);
    device_product_download(p, c);
    assert_true(dk_test_check_rows(p->product, p->weights, 0, p->call.m, c));
    free(c);
}

void device_product_deinit(struct device_product *p)
{
    cuda_check(cudaFree(p->d_a), "cudaFree A");
    cuda_check(cudaFree(p->d_c), "cudaFree C");
    dk_workspace_free(p->engine, p->d_workspace);
    dk_weights_free(p->weights);
    dk_test_product_free(p->product);
}
