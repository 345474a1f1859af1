/* device_product.h: a product whose operands lie in device memory, C between guards; CUDA failures end the
 * test. */
#ifndef DK_TEST_GPU_DEVICE_PRODUCT_H
#define DK_TEST_GPU_DEVICE_PRODUCT_H

#include <cuda_runtime_api.h>

#include "tests/unit/kernels/gemm_reference.h"

struct device_product {
    struct dk_engine *engine;
    struct dk_test_product *product;
    struct dk_weights *weights;
    void *d_workspace;
    unsigned char *d_a, *d_c; /* as allocated: A's offset and C's guard are inside */
    size_t c_bytes;           /* guards and padding excluded from neither: from C's first to its last byte */
    struct dk_call call;      /* of all rows, on the default stream */
};

void cuda_check(cudaError_t error, const char *what);
/* Uploads operands with the case's padding and offsets; C, its guards and the workspace are poisoned. */
void device_product_init(struct device_product *out, struct dk_engine *engine,
                         const struct dk_test_case *what);
void device_product_poison(const struct device_product *p); /* C and guards again; synchronises */
/* C, dense, into `c`; fails when a guard or padding was written. Synchronises. */
void device_product_download(const struct device_product *p, void *c);
/* Downloads and compares with the reference. */
void device_product_check(const struct device_product *p);
void device_product_deinit(struct device_product *p);

#endif
