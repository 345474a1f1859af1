/* route.h: one row of logits -> expert ids and combine weights, by a rule of proto/routing.h. */
#ifndef DK_KERNELS_CPU_ROUTE_H
#define DK_KERNELS_CPU_ROUTE_H

#include "proto/routing.h"

/* Scores of `count` logits, for all scorings but SOFTMAX_AFTER_TOPK (a copy). Error of a score: within 6
 * units in the last place (softmax: plus count * 2^-24 relative, of its sum); the same bits on every
 * instruction set. `scores` may be `logits`. */
void dk_route_scores(dk_scoring scoring, const float *logits, float *scores, size_t count);

/* Route one row. `routing` was checked.
 *   logits           [expert_count], the GEMM's fp32 result with its bias
 *   correction_bias  [expert_count] or NULL (as zeros)
 *   ids, weights     [top_k], in descending order of choice, ids distinct whatever the input
 * Thread: any. Source: the published gates of the DeepSeek models (noaux_tc, group_limited_greedy) and plain
 * top-k; ties, NaN and groups as proto/routing.h says. */
void dk_route_row(const struct dk_routing *routing, const float *logits, const float *correction_bias,
                  int32_t *ids, float *weights);

#endif
