/* router_config.h: a checkpoint's config.json as far as its routers go: shape, layers, rule. */
#ifndef DK_PROTO_ROUTER_CONFIG_H
#define DK_PROTO_ROUTER_CONFIG_H

#include <stddef.h>

#include "proto/routing.h"

enum { DK_MODEL_TYPE_BYTES = 64 };

struct dk_router_config {
    char model_type[DK_MODEL_TYPE_BYTES]; /* "" in DeepSeek's own spelling */
    uint32_t hidden_size;                 /* K */
    uint32_t layer_count;                 /* dense ones included */
    uint32_t dense_layer_count;           /* the first ones have no router */
    /* has_correction_bias is what the family uses; whether a layer has one, its tensors say. */
    struct dk_routing routing;
};

/* Reads a config.json, in the spelling of Hugging Face folders (hidden_size, n_routed_experts | num_experts |
 * num_local_experts, num_experts_per_tok, ...) or of DeepSeek's own repository (dim, n_activated_experts,
 * ...). What a family does not write follows from its model_type. Members that have nothing to do with
 * routers are ignored, at any size. A nested "text_config" (multimodal models) is read in place of the root.
 * DK_BAD_FILE: not strict JSON, a member of a wrong type or range (its name, what was expected and found), no
 * experts, two spellings that disagree; DK_UNSUPPORTED: a scoring or method that is not known. The rule was
 * checked with dk_routing_check. Source: the published configurations of the models in
 * kernels/README.md's list. */
dk_status dk_router_config_parse(const char *text, size_t length, struct dk_router_config *out,
                                 struct dk_error *error);

#endif
