/* engine_private.h: what an engine and its weights are made of; for engine.c, tuned.c and tune.c only. */
#ifndef DK_KERNELS_ENGINE_PRIVATE_H
#define DK_KERNELS_ENGINE_PRIVATE_H

#include <stdatomic.h>

#include "kernels/backend.h"

struct dk_tuned;

struct dk_engine {
    const struct dk_backend *backend;
    struct dk_backend_device *device;
    struct dk_tuned *tuned;    /* the plan cache */
    atomic_uint weights_count; /* a check that none outlives the engine */
};

struct dk_weights {
    struct dk_engine *engine;
    struct dk_backend_weights *backend_weights;
    bool is_scratch;
    dk_layout layout;                  /* as given */
    uint32_t tuned_mask, unknown_mask; /* one bit a bucket, see dk_plan_origin */
};

#endif
