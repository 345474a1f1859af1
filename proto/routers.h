/* routers.h: which tensors of a checkpoint are routers: by name, from an index file or from a file's header.
 */
#ifndef DK_PROTO_ROUTERS_H
#define DK_PROTO_ROUTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/status.h"

enum { DK_ROUTER_NAME_BYTES = 64, DK_ROUTER_TEXT_BYTES = 255, DK_MAX_ROUTERS = 1024 };

/* What a tensor is to its router. X(id, name for messages) */
#define DK_ROUTER_PART_MAP(X)                                                                                \
    X(WEIGHT, "weight")                                                                                      \
    X(LOGIT_BIAS, "logit bias")                                                                              \
    X(CORRECTION_BIAS, "correction bias")
enum dk_router_part {
#define DK_ROUTER_PART_ENUM(id, name) DK_ROUTER_##id,
    DK_ROUTER_PART_MAP(DK_ROUTER_PART_ENUM)
#undef DK_ROUTER_PART_ENUM
        DK_ROUTER_PART_COUNT
};

/* One tensor, wherever it lies; the parts of one router may lie in different files. */
struct dk_router_tensor {
    char name[DK_ROUTER_TEXT_BYTES + 1]; /* "": the router has no such part */
    char file[DK_ROUTER_TEXT_BYTES + 1]; /* inside the checkpoint's folder, no folder part */
};

struct dk_router {
    char name[DK_ROUTER_NAME_BYTES + 1]; /* served under it: "layers.3.mlp.gate" */
    uint32_t layer;
    struct dk_router_tensor parts[DK_ROUTER_PART_COUNT];
};

struct dk_routers { /* zero-initialise; free with dk_routers_deinit */
    struct dk_router *routers;
    size_t count, capacity;
};
void dk_routers_deinit(struct dk_routers *routers); /* NULL-safe, zeroes */

/* Takes note of a tensor if its name is a router's in a known spelling (in front of "layers." may stand
 * anything that ends in a dot, or nothing):
 *   layers.L.mlp.gate.{weight, bias, e_score_correction_bias}
 *   layers.L.ffn.gate.{weight, bias: the correction}          (DeepSeek's own)
 *   layers.L.block_sparse_moe.{gate.weight, e_score_correction_bias}
 *   layers.L.mlp.router.{weight, bias}
 * Others are ignored. Layers from `layer_limit` on (predictors of further tokens) are ignored too.
 * DK_BAD_FILE names the tensor: the same part of the same router twice, a file name with a folder part, a
 * name too long. DK_TOO_LARGE: above DK_MAX_ROUTERS. DK_NO_MEMORY. */
dk_status dk_routers_add(struct dk_routers *routers, uint32_t layer_limit, const char *tensor,
                         const char *file, struct dk_error *error);
/* All tensors of a model.safetensors.index.json (its weight_map). DK_BAD_FILE: not strict JSON, no
 * weight_map, an entry that is not a string. */
dk_status dk_routers_add_index(struct dk_routers *routers, uint32_t layer_limit, const char *text,
                               size_t length, struct dk_error *error);
/* After the last: sorts by layer, then name. DK_BAD_FILE: a bias without its weight, or no router at all. */
dk_status dk_routers_finish(struct dk_routers *routers, struct dk_error *error);

#endif
