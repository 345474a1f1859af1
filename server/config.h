/* config.h: flags > environment (DECOMPOSEK_*) > file -> one const struct; one table drives parsing, --help
 * and docs. */
#ifndef DK_SERVER_CONFIG_H
#define DK_SERVER_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "decomposek.h"
#include "server/log.h"

enum { DK_MAX_MODELS = 256 };

/* --model NAME=FILE[,tensor=T][,bias=T][,layout=nk|kn][,epilogue=none|relu|sigmoid]
 * FILE is a .safetensors file or a Hugging Face folder's shard. tensor defaults to the only 2-D float tensor
 * of the file (else an error that lists them); layout defaults to nk (as nn.Linear). A comma in FILE or T is
 * written `\,` and a backslash `\\`. */
struct dk_model_spec {
    const char *name, *path, *tensor, *bias; /* tensor and bias may be NULL */
    dk_layout layout;
    dk_epilogue epilogue;
};

/* Numeric user or group ids: "1000,1001", or "any". */
enum { DK_MAX_IDS = 16 };
struct dk_id_list {
    bool is_any;
    uint32_t count;
    uint32_t ids[DK_MAX_IDS];
};

/* What happens to shapes whose plans the cache does not know: built-in plans; measured before ready; measured
 * while serving, for the next load. */
enum dk_tune_mode { DK_TUNE_OFF, DK_TUNE_STARTUP, DK_TUNE_BACKGROUND };

struct dk_config {
    const char *host;           /* --host, 127.0.0.1 */
    uint16_t port;              /* --port, 8000; 0: any, printed and logged */
    const char *http_socket;    /* --http-socket PATH: HTTP on a UNIX socket as well; NULL off */
    uint32_t http_socket_mode;  /* --http-socket-mode, 0660 octal */
    const char *api_key_file;   /* --api-key-file PATH; NULL: no key is asked for */
    uint32_t http_threads;      /* --http-threads, 0: min(online CPUs, 4) */
    uint32_t max_connections;   /* --max-connections, 4096 */
    uint32_t max_in_flight;     /* --max-in-flight, 1024 */
    uint32_t header_timeout_ms; /* --header-timeout-ms, 10000: whole header block */
    uint32_t body_timeout_ms;   /* --body-timeout-ms, 60000: whole body */
    uint32_t idle_timeout_ms;   /* --idle-timeout-ms, 75000 */
    uint64_t max_body_bytes;    /* --max-body-bytes, 0: largest tensor + 1 MiB */
    uint32_t queue_depth;       /* --queue-depth, 1024 */
    uint32_t small_slab_count, small_slab_rows; /* --small-slabs 64, --small-slab-rows 64 */
    uint32_t large_slab_count;                  /* --large-slabs 4, each of max_body_bytes */
    bool allow_model_control;    /* --allow-model-control: clients may load, upload and remove models */
    uint64_t max_upload_bytes;   /* --max-upload-bytes, 1 GiB: of PUT /v1/models/{name} */
    uint32_t max_models;         /* --max-models, 256: serving at once */
    uint64_t workspace_bytes;    /* --workspace-bytes, 0: at least what the models at the start need */
    bool allow_client_shm;       /* --allow-client-shm: clients may register objects of /dev/shm */
    uint32_t max_client_regions; /* --max-client-regions, 256 */
    uint64_t adhoc_max_bytes; /* --adhoc-max-bytes, 64 MiB: packed B of a product without a model; 0 switches
                                 ad hoc off */
    dk_backend_kind backend;  /* --backend auto|cpu|cuda */
    int device_index;         /* --device 0 */
    uint32_t threads;         /* --threads 0 */
    uint32_t max_tokens;      /* --max-tokens 4096 */
    uint32_t spin_us;         /* --spin-us 0 (automatic): executor and compute threads */
    bool use_blas;            /* --cpu-blas */
    const char *cpu_isa;      /* --cpu-isa */
    const char *plugin_path;  /* --cuda-plugin */
    enum dk_tune_mode tune;   /* --tune off|startup|background */
    const char *plan_cache;   /* --plan-cache PATH or "off"; NULL: the default place */
    bool is_batch_invariant;  /* --batch-invariant */
    uint32_t drain_grace_ms;  /* --drain-grace-ms, 1000: ready is 503, still serving */
    uint32_t drain_limit_ms;  /* --drain-limit-ms, 30000: then exit 1 */
    enum dk_log_level log_level;   /* --log-level error|warn|info|debug */
    enum dk_log_format log_format; /* --log-format kv|json */
    const char *shm_socket;        /* --shm-socket PATH: the native ring's handshake; NULL off */
    uint32_t shm_socket_mode;      /* --shm-socket-mode, 0660 octal */
    struct dk_id_list shm_allow_uid, shm_allow_gid; /* beside root and the daemon's own user */
    uint32_t shm_sessions;                          /* --shm-sessions, 64: connected clients */
    uint64_t shm_session_bytes; /* --shm-session-bytes, 256 MiB: memory and pushed weights of one */
    uint64_t shm_total_bytes;   /* --shm-total-bytes, 1 GiB: of all */
    bool shm_load_models;       /* --shm-load-models: clients may push weights */
    const struct dk_model_spec *models;
    size_t model_count;
    bool check_only; /* --check-config: load everything, serve nothing, exit */
};

enum dk_config_action { DK_CONFIG_RUN, DK_CONFIG_PRINTED /* --help, --version: exit 0 */ };

/* `environment` like environ. --config FILE (or DECOMPOSEK_CONFIG) names a file of `name = value` lines, #
 * comments, the same names as the flags without dashes in front; `model` may repeat. Bounds are checked;
 * DK_BAD_VALUE quotes the source (flag, variable, or file:line), the value and what is allowed; a file that
 * cannot be read is DK_IO_ERROR. Models of all sources add up, in the order file, environment, flags; one of
 * a name already given by an earlier source takes its place; the same name twice in one source is an error.
 * An empty variable counts as unset. Unknown DECOMPOSEK_* variables are refused when they look like a typing
 * mistake, else left alone; DECOMPOSEK_PORT=tcp://... (Kubernetes sets it for a Service named decomposek) is
 * left alone as well. --help and --version print to stdout. *out is set only for DK_CONFIG_RUN; free it with
 * dk_config_free. argv and environment are borrowed until return. Thread: before any other starts. */
dk_status dk_config_parse(int argc, char **argv, char **environment, const struct dk_config **out,
                          enum dk_config_action *action, struct dk_error *error);
void dk_config_free(const struct dk_config *config); /* NULL-safe; frees every string and spec */

#endif
