/* daemon.c: sizes of the preallocated pools, and their construction in order. */
#include "server/daemon.h"

#include <sched.h>

#include "server/bell.h"
#include "server/body_reader.h"
#include "server/doors.h"
#include "server/executor.h"
#include "server/infer.h"
#include "server/job.h"
#include "server/matmul.h"
#include "server/metrics.h"
#include "server/model_control.h"
#include "server/models.h"
#include "server/queue.h"
#include "server/regions.h"
#include "server/rings.h"
#include "server/slab.h"
#include "server/tuning.h"

enum {
    MIB = 1024 * 1024,
    DEFAULT_BODY_CAP = 1024 * MIB, /* of the default only: an explicit --max-body-bytes may be larger */
    SMALL_SLAB_CAP = 64 * MIB,
    TINY_SLAB_CAP = 1 * MIB,
    TINY_SLAB_FLOOR = 64 * 1024,
    IDLE_READERS_MAX = 64
};

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* config.max_body_bytes, or the largest tensor a request can need (fp32 rows of the widest model, or a packed
 * B) + 1 MiB for JSON around it. */
static uint64_t body_limit(const struct dk_daemon *daemon, const struct dk_models_extent *extent)
{
    if (daemon->config->max_body_bytes != 0) {
        return daemon->config->max_body_bytes;
    }
    uint64_t rows = dk_engine_get_info(daemon->engine)->max_tokens;
    uint64_t tensor = max_u64(rows * extent->max_k * sizeof(float), daemon->config->adhoc_max_bytes);
    return min_u64(tensor + MIB, DEFAULT_BODY_CAP);
}

static dk_status make_slabs(struct dk_daemon *daemon, const struct dk_models_extent *extent,
                            struct dk_error *error)
{
    const struct dk_config *config = daemon->config;
    uint64_t row_floats = extent->max_k + extent->max_n;
    /* One row as binary64: JSON numbers stay unrounded until their type is known. */
    uint64_t tiny = extent->max_k * sizeof(double) + extent->max_n * sizeof(float) + DK_SLAB_ALIGNMENT;
    uint64_t small = config->small_slab_rows * row_floats * sizeof(float) + DK_SLAB_ALIGNMENT;
    struct dk_slab_class_size sizes[DK_SLAB_CLASS_COUNT] = {
        [DK_SLAB_TINY] = {.bytes = max_u64(min_u64(tiny, TINY_SLAB_CAP), TINY_SLAB_FLOOR),
                          .count = config->max_in_flight},
        [DK_SLAB_SMALL] = {.bytes = min_u64(small, SMALL_SLAB_CAP), .count = config->small_slab_count},
        [DK_SLAB_LARGE] = {.bytes = daemon->max_body_bytes, .count = config->large_slab_count},
    };
    return dk_slabs_new(sizes, daemon->metrics, &daemon->slabs, error);
}

/* A spinning executor must not take the CPU that the HTTP thread or a compute thread is waiting for: on two
 * CPUs with two compute threads 50 us of it cost a raw T = 1 round trip 60 us. */
static uint32_t executor_spin_us(const struct dk_daemon *daemon)
{
    if (daemon->config->spin_us > 0) {
        return daemon->config->spin_us;
    }
    cpu_set_t set;
    uint32_t cpu_count = sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
    return cpu_count >= dk_engine_get_info(daemon->engine)->thread_count + 2 ? 50 : 0;
}

/* The ways to the executor. */
static dk_status make_hand_offs(struct dk_daemon *daemon, struct dk_error *error)
{
    const struct dk_config *config = daemon->config;
    dk_status status = dk_bell_new(&daemon->bell, error);
    if (status == DK_OK) {
        status = dk_queue_new(config->queue_depth, daemon->bell, &daemon->queue, error);
    }
    if (status == DK_OK && (daemon->doors != NULL ? daemon->doors->shm >= 0 : config->shm_socket != NULL)) {
        struct dk_rings_options options = {.capacity = config->shm_sessions, .bell = daemon->bell};
        status = dk_rings_new(&options, &daemon->rings, error);
    }
    return status;
}

static dk_status allow_model_control(struct dk_daemon *daemon, size_t workspace_bytes, struct dk_error *error)
{
    const struct dk_models_room room = {.workspace_bytes = workspace_bytes,
                                        .buffer_bytes = dk_slabs_largest_bytes(daemon->slabs),
                                        .model_count = daemon->config->max_models};
    dk_models_set_room(daemon->models, &room);
    return daemon->config->allow_model_control
               ? dk_model_control_new(daemon->models, daemon->metrics, &daemon->model_control, error)
               : DK_OK;
}

dk_status dk_daemon_load(struct dk_daemon *daemon, struct dk_error *error)
{
    const struct dk_config *config = daemon->config;
    dk_status status = dk_models_new(daemon->engine, daemon->metrics, config->models, config->model_count,
                                     &daemon->models, error);
    if (status != DK_OK) {
        return status;
    }
    dk_tuning_run(daemon);
    struct dk_models_extent extent = dk_models_get_extent(daemon->models);
    daemon->max_body_bytes = body_limit(daemon, &extent);
    status = make_slabs(daemon, &extent, error);
    if (status != DK_OK) {
        goto unload;
    }
    status = dk_jobs_new(config->max_in_flight, daemon->slabs, daemon->metrics, &daemon->jobs, error);
    if (status != DK_OK) {
        goto unload;
    }
    status = dk_body_readers_new(dk_native_paths, DK_NATIVE_TENSOR_COUNT, &dk_matmul_sink, IDLE_READERS_MAX,
                                 &daemon->readers, error);
    if (status != DK_OK) {
        goto unload;
    }
    status = dk_body_readers_new(dk_oip_paths, DK_OIP_PATH_COUNT, &dk_infer_sink, IDLE_READERS_MAX,
                                 &daemon->infer_readers, error);
    if (status != DK_OK) {
        goto unload;
    }
    if (config->allow_client_shm) {
        status =
            dk_regions_new("/dev/shm", config->max_client_regions, daemon->metrics, &daemon->regions, error);
        if (status != DK_OK) {
            goto unload;
        }
    }
    status = make_hand_offs(daemon, error);
    if (status != DK_OK) {
        goto unload;
    }
    daemon->workspace_bytes = max_u64(max_u64(extent.workspace_bytes, config->workspace_bytes),
                                      config->adhoc_max_bytes > 0 ? DK_ADHOC_WORKSPACE_BYTES : 1);
    struct dk_executor_options options = {
        .engine = daemon->engine,
        .bell = daemon->bell,
        .queue = daemon->queue,
        .rings = daemon->rings,
        .metrics = daemon->metrics,
        .spin_us = executor_spin_us(daemon),
        .workspace_bytes = daemon->workspace_bytes,
        .adhoc_max_bytes = config->adhoc_max_bytes,
    };
    status = dk_executor_new(&options, &daemon->executor, error);
    if (status != DK_OK) {
        goto unload;
    }
    status = allow_model_control(daemon, daemon->workspace_bytes, error);
    if (status != DK_OK) {
        goto unload;
    }
    status = dk_tuning_new(daemon, &daemon->tuning, error);
    if (status != DK_OK) {
        goto unload;
    }
    return DK_OK;
unload:
    dk_daemon_unload(daemon);
    return status;
}

void dk_daemon_quiesce(struct dk_daemon *daemon)
{
    dk_tuning_free(daemon->tuning);
    daemon->tuning = NULL;
    dk_model_control_stop(daemon->model_control);
    dk_executor_free(daemon->executor);
    daemon->executor = NULL;
}

void dk_daemon_unload(struct dk_daemon *daemon)
{
    dk_daemon_quiesce(daemon);
    dk_rings_free(daemon->rings);
    daemon->rings = NULL;
    dk_queue_free(daemon->queue);
    daemon->queue = NULL;
    dk_bell_free(daemon->bell);
    daemon->bell = NULL;
    dk_regions_free(daemon->regions);
    daemon->regions = NULL;
    dk_body_readers_free(daemon->infer_readers);
    daemon->infer_readers = NULL;
    dk_body_readers_free(daemon->readers);
    daemon->readers = NULL;
    dk_jobs_free(daemon->jobs);
    daemon->jobs = NULL;
    dk_slabs_free(daemon->slabs);
    daemon->slabs = NULL;
    dk_model_control_free(daemon->model_control);
    daemon->model_control = NULL;
    if (daemon->models != NULL) {
        dk_models_free(daemon->models);
        daemon->models = NULL;
    }
}

void dk_daemon_set_state(struct dk_daemon *daemon, enum dk_daemon_state state)
{
    atomic_store(&daemon->state, state);
    dk_metrics_set(daemon->metrics, DK_METRIC_READY, state == DK_DAEMON_READY);
}
