/* cpu_backend.h: the CPU backend's device and weights, shared by its own files. */
#ifndef DK_KERNELS_CPU_BACKEND_H
#define DK_KERNELS_CPU_BACKEND_H

#include <pthread.h>

#include "kernels/backend.h"
#include "kernels/cpu/micro.h"
#include "kernels/cpu/pool.h"

struct dk_blas;

/* Steps of K for which A is widened at once, and for which a panel is (that many strips share the copy: 64
 * steps x 64 columns are a third of a first-level cache; 32 and 256 steps were slower). */
enum { DK_CPU_ALIGN_BYTES = 64, DK_CPU_SLICE_K = DK_PLAN_CHUNK_K, DK_CPU_WIDE_K = 2 * DK_PLAN_INNER_K };
/* Row distance of a thread's A slice: an odd number of cache lines spreads rows over the sets. */
enum { DK_CPU_SLICE_STRIDE = DK_CPU_SLICE_K + 16 };

/* One thread's own memory. */
struct dk_cpu_scratch {
    _Alignas(DK_CPU_ALIGN_BYTES) float a[DK_PLAN_ROW_BLOCK * DK_CPU_SLICE_STRIDE];
    float wide[DK_CPU_WIDE_K * DK_PLAN_PANEL_N];
    float chunk[DK_PLAN_MAX_GROUP][DK_PLAN_ROW_BLOCK * DK_PLAN_PANEL_N];
    float total[DK_PLAN_MAX_GROUP][DK_PLAN_ROW_BLOCK * DK_PLAN_PANEL_N];
};

struct dk_cpu_device {
    struct dk_backend_device base;
    const struct dk_isa *isa;
    struct dk_pool *pool;
    struct dk_cpu_scratch *scratch; /* [thread_count] */
    pthread_mutex_t turn;           /* held during a product: calls from several threads take turns */
    struct dk_blas *blas;           /* NULL: not asked for or not there */
};

struct dk_cpu_weights {
    struct dk_backend_weights base;
    void *packed;
    float *bias;           /* [n] when base.has_bias */
    float *blas_b;         /* fp32 copy as given, NULL without BLAS */
    dk_layout layout;      /* of blas_b */
    size_t capacity_bytes; /* of packed and of bias each; scratch only */
};

/* The own kernels: plan->backend_variant is SPLIT or TILED. Called with the device's turn held. */
void dk_cpu_product(struct dk_cpu_device *device, const struct dk_cpu_weights *weights,
                    const struct dk_plan *plan, const struct dk_call *call);

#endif
