/* routing.h: the rule by which a router's logits become expert ids and combine weights, and its checks. */
#ifndef DK_PROTO_ROUTING_H
#define DK_PROTO_ROUTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, text): how a logit x becomes a score. SOFTMAX_AFTER_TOPK ranks the logits and takes the softmax of
 * the chosen ones only. */
#define DK_SCORING_MAP(X)                                                                                    \
    X(SIGMOID, "sigmoid")                                                                                    \
    X(SOFTMAX, "softmax")                                                                                    \
    X(SQRTSOFTPLUS, "sqrtsoftplus")                                                                          \
    X(SOFTMAX_AFTER_TOPK, "softmax_after_topk")

enum dk_scoring {
#define DK_SCORING_ENUM(name, text) DK_SCORING_##name,
    DK_SCORING_MAP(DK_SCORING_ENUM)
#undef DK_SCORING_ENUM
        DK_SCORING_COUNT
};
typedef enum dk_scoring dk_scoring;

DK_API const char *dk_scoring_name(dk_scoring scoring);
/* DK_BAD_VALUE without a message when unknown; *out untouched then. */
DK_API dk_status dk_scoring_parse(const char *text, size_t length, dk_scoring *out);

enum { DK_MAX_EXPERTS = 1024, DK_MAX_TOP_K = 32 };

/* One rule. In this order: logits (a logit bias is the GEMM's own bias); score; choice = score + correction
 * bias; per group of neighbouring experts the sum of its two best choices, or its best; the kept groups; the
 * top_k best choices inside them; weight = score without the correction bias; normalised by the sum of the
 * chosen + 1e-20 if is_normalized; times scale.
 *
 * Ties go to the lower index, for groups and for experts. A NaN choice counts as minus infinity; an expert
 * outside the kept groups is never chosen; so the ids of a row are always distinct. A NaN score gives a NaN
 * weight where it is chosen or normalised by. Ids come in descending order of choice. */
struct dk_routing {
    dk_scoring scoring;
    uint32_t expert_count;                  /* N, 1..DK_MAX_EXPERTS */
    uint32_t group_count, kept_group_count; /* 1 and 1: no groups */
    uint32_t top_k;                         /* 1..DK_MAX_TOP_K */
    bool is_group_score_sum;                /* the sum of a group's two best choices, else its best */
    bool has_correction_bias;               /* fp32 [N], in the choice only */
    bool is_normalized;
    float scale;
};

/* DK_BAD_VALUE naming both numbers: expert_count not divisible by group_count, more kept groups than groups,
 * top_k above the experts of the kept groups, a group of one expert whose two best are asked for, a
 * correction bias with SOFTMAX_AFTER_TOPK, a scale that is not finite and positive, an extent out of range.
 */
DK_API dk_status dk_routing_check(const struct dk_routing *routing, struct dk_error *error);

#ifdef __cplusplus
}
#endif
#endif
