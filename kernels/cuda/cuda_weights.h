/* cuda_weights.h: one B on the device, as [n, k] at its own width, with its bias. */
#ifndef DK_KERNELS_CUDA_WEIGHTS_H
#define DK_KERNELS_CUDA_WEIGHTS_H

#include "kernels/cuda/cuda_device.h"

struct dk_cuda_weights {
    struct dk_backend_weights base;
    void *d_b;           /* [n, k], rows row_elements apart; what lies between rows is zero */
    size_t row_elements; /* k, rounded up to whole 16 bytes wherever there is room */
    CUtensorMap map;     /* of bf16 rows on 16-byte borders, where has_map */
    bool has_map;
    float *d_bias;         /* room for n floats, also without a bias */
    size_t capacity_bytes; /* of d_b: scratch holders are filled again and again */
    size_t bias_capacity;  /* floats */
    void *host_packed;     /* scratch holders only: where rows are laid out; NULL else */
};

dk_status dk_cuda_weights_new(struct dk_cuda_device *device, const struct dk_weights_desc *desc,
                              size_t scratch_bytes, struct dk_cuda_weights **out, struct dk_error *error);
dk_status dk_cuda_weights_assign(struct dk_cuda_device *device, struct dk_cuda_weights *weights,
                                 const struct dk_weights_desc *desc, struct dk_error *error);
void dk_cuda_weights_free(struct dk_cuda_device *device, struct dk_cuda_weights *weights);

#endif
