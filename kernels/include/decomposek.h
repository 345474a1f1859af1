/* decomposek.h: the C ABI of libdecomposek: engine, weights, plans, enqueue.
 *
 * C[m,n] = epilogue(A[m,k] * B[k,n] + bias[n]) where K is the only large dimension. K is cut into S fixed
 * chunks that run in parallel; their fp32 partials [S,m,n] are summed in index order with the epilogue fused,
 * so equal inputs give equal bits. Source: the decompose-K article; derivation and measurements in
 * kernels/README.md. */
#ifndef DECOMPOSEK_H
#define DECOMPOSEK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/dtype.h"
#include "proto/gemm.h"
#include "proto/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dk_engine;  /* one device; thread-safe except where said */
struct dk_weights; /* one B (and its bias), resident in the layout the kernels want */

enum dk_backend_kind { DK_BACKEND_AUTO, DK_BACKEND_CPU, DK_BACKEND_CUDA };
typedef enum dk_backend_kind dk_backend_kind;

/* Zero-initialise, then set what differs from the defaults. */
struct dk_engine_options {
    dk_backend_kind backend; /* AUTO: CUDA when its plugin loads and a device answers, else CPU */
    int device_index;        /* CUDA device */
    uint32_t
        thread_count; /* CPU backend: compute threads, the caller included; 0: online CPUs (affinity mask) */
    uint32_t max_tokens; /* largest bucket, 1..65536; 0: 4096. Rounded up to a bucket */
    uint32_t spin_us;    /* CPU backend: how long idle compute threads spin before sleeping; 0: default */
    bool
        use_blas; /* CPU backend: allow OpenBLAS where it is the faster candidate (gives up row invariance) */
    const char
        *cpu_isa; /* NULL: best of this machine; "avx512", "avx2", "portable" force one (tests, peers) */
    const char
        *plugin_path; /* NULL: libdecomposek_cuda.so beside this library, then the loader's search path */
    bool is_batch_invariant; /* one fixed chunking and one instruction shape for all m <= 64: a row's bits do
                                not depend on its batch mates */
    bool
        use_dependent_launch; /* CUDA: plans for a chain of kernels joined by programmatic dependent launch */
    const char *force_variant;   /* NULL, or the only variant to use where it is valid (tests, benchmarks) */
    const char *plan_cache_path; /* NULL, or a file of tuned plans; whatever is odd in it is a miss */
};

struct dk_engine_info {
    char backend[16]; /* "cpu" or "cuda" */
    char reason[256]; /* one line: which backend was taken and why, for the log */
    char device_name[128];
    char isa[32];                                 /* "avx512", "avx2", "portable", "sm_90" */
    char driver_version[32], runtime_version[32]; /* CUDA only, else "" */
    uint32_t thread_count;
    uint32_t max_tokens;
    uint32_t bucket_count;
    uint32_t cached_plan_count;   /* plans that the plan cache held */
    char plan_cache_warning[256]; /* what was odd about the plan cache; "" when nothing was */
};

/* One entry of the plan table. Immutable, owned by the weights it was got from. */
struct dk_plan {
    const char *variant;  /* static name of the kernel variant */
    uint32_t bucket_rows; /* m <= bucket_rows */
    uint32_t split_k;     /* S >= 1; need not divide k */
    uint32_t chunk_k;     /* K per chunk; the last may be shorter; ceil(k / chunk_k) == split_k */
    uint32_t tile_m, tile_n;
    bool is_dependent;        /* launched with programmatic dependent launch */
    uint32_t backend_variant; /* private to the backend */
    size_t workspace_bytes;   /* fp32 partials for m = bucket_rows */
};

/* Take a backend and start its threads. DK_UNAVAILABLE when the asked backend cannot serve (message says
 * which driver or library is missing and what was needed). *out untouched on failure. Thread: any. */
DK_API dk_status dk_engine_new(const struct dk_engine_options *options, struct dk_engine **out,
                               struct dk_error *error);
/* NULL-safe. All weights of the engine must be freed before. */
DK_API void dk_engine_free(struct dk_engine *engine);
DK_API const struct dk_engine_info *dk_engine_get_info(const struct dk_engine *engine); /* valid until free */

/* The upper bounds of m that share a plan: 1, 2, 4, ..., 32, 48, 64, 96, ..., max_tokens. 0 past the last
 * bucket. */
DK_API uint32_t dk_engine_bucket_rows(const struct dk_engine *engine, uint32_t bucket_index);
/* Smallest bucket that holds `m` rows (1 <= m <= max_tokens); UINT32_MAX when none does. O(1). */
DK_API uint32_t dk_engine_bucket_index(const struct dk_engine *engine, uint64_t m);

struct dk_weights_desc {
    uint64_t n, k;
    dk_dtype dtype; /* fp32, bf16, fp16; kept at this width */
    dk_layout layout;
    const void *data;  /* host memory, dense row-major, any alignment; borrowed until return */
    const float *bias; /* [n] or NULL; borrowed until return */
};
/* Copy, repack and plan. DK_BAD_SHAPE, DK_BAD_DTYPE, DK_NO_MEMORY, DK_DEVICE_FAILED. Thread: any (not the hot
 * path). */
DK_API dk_status dk_weights_new(struct dk_engine *engine, const struct dk_weights_desc *desc,
                                struct dk_weights **out, struct dk_error *error);
/* A holder with room for any B of at most `capacity_bytes` packed bytes and bias of n floats: for products
 * whose B comes with the request. Packing pads n (CPU: the last 1..64 columns to 16, 32 or 64) and, for bf16,
 * k to even. dk_weights_assign fills it without allocating; DK_TOO_LARGE when it does not fit; after any
 * failure the holder keeps what it held. Not thread-safe. Until the first B, dk_workspace_bytes says what is
 * enough for every B that fits. */
DK_API dk_status dk_weights_new_scratch(struct dk_engine *engine, size_t capacity_bytes,
                                        struct dk_weights **out, struct dk_error *error);
DK_API dk_status dk_weights_assign(struct dk_weights *scratch, const struct dk_weights_desc *desc,
                                   struct dk_error *error);
DK_API void dk_weights_free(struct dk_weights *weights);          /* NULL-safe */
DK_API size_t dk_weights_bytes(const struct dk_weights *weights); /* resident bytes, packing included */

/* The plan for `m` rows of this B. O(1), never NULL for 1 <= m <= max_tokens. */
DK_API const struct dk_plan *dk_plan_get(const struct dk_weights *weights, uint64_t m);
/* Every plan that could serve `m` rows of this B on this device, the present one included; up to `capacity`
 * are written, the number there are is returned. For tuning; not the hot path. */
DK_API uint32_t dk_plan_candidates(const struct dk_weights *weights, uint64_t m, struct dk_plan *out,
                                   uint32_t capacity);
/* Use `plan` (one of the candidates) for its bucket from now on. Not while a call is under way. DK_BAD_VALUE.
 */
DK_API dk_status dk_plan_set(struct dk_weights *weights, uint32_t bucket_index, const struct dk_plan *plan,
                             struct dk_error *error);
/* Where the plans of these weights come from: buckets with a plan from the cache or the tuner, and cached
 * plans that were ignored because this build and device offer no such plan. The other buckets use built-in
 * plans. */
struct dk_plan_origin {
    uint32_t tuned_count, unknown_count;
};
DK_API struct dk_plan_origin dk_plan_get_origin(const struct dk_weights *weights);

/* How a product is timed. */
struct dk_measure {
    const struct dk_weights *const *weights; /* [weight_count] of one shape, type and engine, used in turn: */
    uint32_t weight_count; /* more bytes than the last-level cache holds time cold, one times hot */
    uint64_t m;
    dk_dtype a_dtype, c_dtype;
    dk_epilogue epilogue;
    uint32_t chain_count;  /* calls back to back in one timing; 0: weight_count */
    uint32_t repeat_count; /* timings, of which the median counts; 0: 20 */
};
/* Nanoseconds of one call under `plan`, a candidate for `m` rows: the median over timings of a chain of calls
 * on random data, divided by its length. CUDA: a replayed graph between device events, on a stream of its
 * own. CPU: the time of the calls. Allocates and synchronises; not the hot path. DK_UNSUPPORTED when the plan
 * cannot serve such a call. */
DK_API dk_status dk_plan_measure(const struct dk_measure *measure, const struct dk_plan *plan, double *out_ns,
                                 struct dk_error *error);

/* What the tuner found for one bucket; pointers are valid during the call. */
struct dk_tune_result {
    uint32_t bucket_rows, candidate_count;
    const struct dk_plan *candidates; /* [candidate_count] */
    const double *times_ns;           /* [candidate_count]; 0: could not serve the call */
    uint32_t before, best;            /* indices: the plan that was in use, the plan to use from now on */
};
/* Zero-initialise, then set what differs. */
struct dk_tune_options {
    uint64_t max_rows;       /* largest m to tune for; 0: max_tokens */
    uint32_t repeat_count;   /* timings of each of the best; 0: 20 */
    bool is_forced;          /* measure also what the cache knows */
    bool is_only_remembered; /* leave the plans of `weights` as they are (they may be in use): for the cache
                                only */
    /* After each bucket that was measured; false ends tuning with DK_CANCELLED. May be NULL. */
    bool (*on_bucket)(void *context, const struct dk_tune_result *result);
    void *context;
};
/* Measure every candidate of every bucket that the plan cache does not know, with random weights of the same
 * shape and type beyond the last-level cache and A of the weights' type, C fp32; use the fastest, and write
 * the cache file if the engine has one. Takes seconds on CUDA. Not while a call with `weights` is under way,
 * unless is_only_remembered. A cache that cannot be written is DK_IO_ERROR, with the plans in use all the
 * same. */
DK_API dk_status dk_weights_tune(struct dk_weights *weights, const struct dk_tune_options *options,
                                 struct dk_error *error);

/* The usual place of a plan cache: $XDG_CACHE_HOME/decomposek/plans, else $HOME/.cache/decomposek/plans.
 * False when neither variable names an absolute path or the result does not fit. Creates nothing. */
DK_API bool dk_plan_cache_default_path(char *out, size_t size);
/* Creates the folders that `path` lies in, as far as they are missing, private to the user. DK_IO_ERROR. */
DK_API dk_status dk_plan_cache_make_folder(const char *path, struct dk_error *error);

/* Bytes that are enough for any product of 1..m rows of these weights (never falls as m grows; may be 0: then
 * workspace may be NULL); 0 for m = 0 or m > max_tokens. Enqueue never allocates. */
DK_API size_t dk_workspace_bytes(const struct dk_weights *weights, uint64_t m);
/* Device memory for workspaces, aligned as the backend wants (CPU: host memory on a 64-byte border; one of
 * your own on such a border will do). One product at a time may use a workspace. Free before the engine. */
DK_API dk_status dk_workspace_new(struct dk_engine *engine, size_t bytes, void **out, struct dk_error *error);
DK_API void dk_workspace_free(struct dk_engine *engine, void *workspace);

struct dk_call {
    uint64_t m;    /* 0 <= m <= max_tokens; 0 does nothing and succeeds */
    const void *a; /* [m, k] row-major of a_dtype, any alignment. CPU: host memory. CUDA: device memory */
    size_t a_row_elements; /* leading dimension of A, >= k */
    dk_dtype a_dtype;      /* fp32, bf16 or fp16, independent of the weights' type */
    void *c;               /* [m, n] of c_dtype */
    size_t c_row_elements; /* leading dimension of C, >= n */
    dk_dtype c_dtype;      /* fp32, bf16 or fp16 */
    dk_epilogue epilogue;
    const float *bias; /* [n] replaces the weights' own bias; NULL: the weights' own, if any */
    void *workspace;   /* >= dk_workspace_bytes(weights, m); contents on entry and return mean nothing */
    void *stream;      /* CUDA: cudaStream_t, NULL the default stream. CPU: ignored */
};
/* Enqueue one product. CUDA: returns before the product is ready, allocates and synchronises nothing, may be
 * captured in a graph. CPU: the product is ready on return; calls from several threads take turns. Every
 * element's error is at most (ceil(chunk_k/16) + split_k) * 2^-23 * sum|a*b| plus the output's rounding; NaN
 * and infinities propagate and stay in their row (a NaN's sign and payload are not specified); C is written
 * entirely (rows < m, columns < n) and nothing else is. A and C must not overlap. CPU without use_blas: a
 * row's bits depend on the row and the weights only, not on m, threads or instruction set. Errors:
 * DK_BAD_SHAPE, DK_BAD_DTYPE, DK_BAD_VALUE (NULL or misaligned pointer), DK_TOO_LARGE (m > max_tokens),
 * DK_DEVICE_FAILED. Thread: any. */
DK_API dk_status dk_enqueue(const struct dk_weights *weights, const struct dk_call *call,
                            struct dk_error *error);

/* Host-memory convenience used by the daemon: A and C in host memory, copies included, returns when C is
 * ready. `kernel_ns` (may be NULL) receives the time of the kernels alone (CUDA: device timer; CPU: monotonic
 * clock). Thread: one caller at a time per engine on CUDA. */
DK_API dk_status dk_run_host(const struct dk_weights *weights, const struct dk_call *call,
                             uint64_t *kernel_ns, struct dk_error *error);

DK_API const char *dk_version(void);

#ifdef __cplusplus
}
#endif
#endif
