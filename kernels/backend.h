/* backend.h: the table of functions that every backend fills; engine.c dispatches through it. */
#ifndef DK_KERNELS_BACKEND_H
#define DK_KERNELS_BACKEND_H

#include "decomposek.h"

/* Bump when anything below or struct dk_plan / dk_call / dk_weights_desc / dk_engine_options changes: the
 * plugin is a separate file and must not be loaded across versions. */
enum { DK_BACKEND_ABI = 3, DK_MAX_BUCKETS = 32 };

/* A backend derives its own structs from these by putting them first. */
struct dk_backend_device { /* one opened device */
    struct dk_engine_info info;
};
struct dk_backend_weights {
    uint64_t n, k;
    dk_dtype dtype;
    bool has_bias;
    size_t resident_bytes;
    struct dk_plan plans[DK_MAX_BUCKETS]; /* filled by the backend for every bucket */
};

struct dk_backend {
    uint32_t abi; /* DK_BACKEND_ABI */
    const char *name;
    /* `options` are the caller's with max_tokens replaced by the largest bucket. Fills device->info but
     * max_tokens and bucket_count, which engine.c sets before the first weights_new. info.reason starts with
     * the backend's name; on failure error->message says why not, without that name (with AUTO it becomes the
     * CPU engine's reason: "cpu: <message>"). */
    dk_status (*open)(const struct dk_engine_options *options, struct dk_backend_device **out,
                      struct dk_error *error);
    void (*close)(struct dk_backend_device *device);
    dk_status (*weights_new)(
        struct dk_backend_device *device, const struct dk_weights_desc *desc, size_t scratch_bytes,
        struct dk_backend_weights **out,
        struct dk_error *error); /* desc NULL: scratch, n = 0, and every
                                    plans[i].workspace_bytes enough for any B that fits */
    dk_status (*weights_assign)(struct dk_backend_device *device, struct dk_backend_weights *weights,
                                const struct dk_weights_desc *desc, struct dk_error *error);
    void (*weights_free)(struct dk_backend_device *device, struct dk_backend_weights *weights);
    /* All valid plans for `bucket_rows` rows; writes up to `capacity`, returns how many there are. */
    uint32_t (*candidates)(struct dk_backend_device *device, const struct dk_backend_weights *weights,
                           uint32_t bucket_rows, struct dk_plan *out, uint32_t capacity);
    dk_status (*workspace_new)(struct dk_backend_device *device, size_t bytes, void **out,
                               struct dk_error *error);
    void (*workspace_free)(struct dk_backend_device *device, void *workspace);
    /* Arguments were checked by engine.c; 1 <= m <= plan->bucket_rows; workspace may be NULL only when
     * plan->workspace_bytes is 0. Any thread, several at once. */
    dk_status (*enqueue)(struct dk_backend_device *device, const struct dk_backend_weights *weights,
                         const struct dk_plan *plan, const struct dk_call *call, struct dk_error *error);
    dk_status (*run_host)(struct dk_backend_device *device, const struct dk_backend_weights *weights,
                          const struct dk_plan *plan, const struct dk_call *call, uint64_t *kernel_ns,
                          struct dk_error *error);
    /* dk_plan_measure with its counts filled in; weights are measure->weight_count backend weights. NULL:
     * timed through run_host. */
    dk_status (*measure)(struct dk_backend_device *device, const struct dk_backend_weights *const *weights,
                         const struct dk_measure *measure, const struct dk_plan *plan, double *out_ns,
                         struct dk_error *error);
};

extern const struct dk_backend dk_cpu_backend;

/* The one symbol of libdecomposek_cuda.so. */
#define DK_PLUGIN_ENTRY "dk_cuda_plugin"
typedef const struct dk_backend *(*dk_plugin_entry)(void);

#endif
