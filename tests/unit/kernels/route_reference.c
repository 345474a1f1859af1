/* route_reference.c: score, sort groups, sort experts, weigh; all in binary64. */
#include "tests/unit/kernels/route_reference.h"

#include <math.h>
#include <stdlib.h>

#define RULE(s, e, g, kept, k, sum, bias, norm, by)                                                          \
    {                                                                                                        \
        .scoring = DK_SCORING_##s, .expert_count = (e), .group_count = (g), .kept_group_count = (kept),      \
        .top_k = (k), .is_group_score_sum = (sum), .has_correction_bias = (bias), .is_normalized = (norm),   \
        .scale = (by)                                                                                        \
    }

const struct dk_public_rule dk_public_rules[] = {
    {"DeepSeek-V3", RULE(SIGMOID, 256, 8, 4, 8, true, true, true, 2.5f)},
    {"Kimi-K2", RULE(SIGMOID, 384, 1, 1, 8, true, true, true, 2.827f)},
    {"GLM-4.5", RULE(SIGMOID, 160, 1, 1, 8, true, true, true, 2.5f)},
    {"DeepSeek-V2", RULE(SOFTMAX, 160, 8, 3, 6, false, false, false, 16.0f)},
    {"DeepSeek-V4-Flash", RULE(SQRTSOFTPLUS, 256, 1, 1, 6, true, true, true, 1.5f)},
    {"Qwen3-235B-A22B", RULE(SOFTMAX, 128, 1, 1, 8, false, false, true, 1.0f)},
    {"MiniMax-M2", RULE(SIGMOID, 256, 1, 1, 8, true, true, true, 1.0f)},
    {"gpt-oss-120b", RULE(SOFTMAX_AFTER_TOPK, 128, 1, 1, 4, false, false, false, 1.0f)},
};
const uint32_t dk_public_rule_count = sizeof dk_public_rules / sizeof dk_public_rules[0];

struct ranked {
    double value;
    int32_t id;
};

static int by_rank(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    if (a->value != b->value) {
        return a->value > b->value ? -1 : 1;
    }
    return (a->id > b->id) - (a->id < b->id);
}

static double score_of(dk_scoring scoring, double x)
{
    switch (scoring) {
    case DK_SCORING_SIGMOID:
        return 1 / (1 + exp(-x));
    case DK_SCORING_SQRTSOFTPLUS:
        return sqrt((x > 0 ? x : 0) + log1p(exp(-fabs(x))));
    default:
        return x;
    }
}

static void normalize_exponentials(double *values, uint32_t count)
{
    double max = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        max = fmax(max, values[i]);
    }
    for (uint32_t i = 0; i < count; i++) {
        sum += values[i] = exp(values[i] - max);
    }
    for (uint32_t i = 0; i < count; i++) {
        values[i] /= sum;
    }
}

/* Difference between the last that is in and the first that is out. */
static void note_margin(struct dk_route_reference *out, const struct ranked *sorted, uint32_t in_count,
                        uint32_t count)
{
    if (in_count > 0 && in_count < count) {
        out->margin = fmin(out->margin, sorted[in_count - 1].value - sorted[in_count].value);
    }
}

static void rank_groups(const struct dk_routing *routing, const double *choice, bool *is_kept,
                        struct dk_route_reference *out)
{
    struct ranked groups[DK_MAX_EXPERTS], members[DK_MAX_EXPERTS];
    uint32_t size = routing->expert_count / routing->group_count;
    for (uint32_t g = 0; g < routing->group_count; g++) {
        for (uint32_t i = 0; i < size; i++) {
            members[i] = (struct ranked){choice[g * size + i], (int32_t)i};
        }
        qsort(members, size, sizeof members[0], by_rank);
        double second = routing->is_group_score_sum && size > 1 ? members[1].value : 0;
        groups[g] = (struct ranked){members[0].value + second, (int32_t)g};
        is_kept[g] = false;
    }
    qsort(groups, routing->group_count, sizeof groups[0], by_rank);
    for (uint32_t i = 0; i < routing->kept_group_count; i++) {
        is_kept[groups[i].id] = true;
    }
    note_margin(out, groups, routing->kept_group_count, routing->group_count);
}

void dk_route_reference_row(const struct dk_routing *routing, const float *logits,
                            const float *correction_bias, struct dk_route_reference *out)
{
    double scores[DK_MAX_EXPERTS], choice[DK_MAX_EXPERTS], chosen[DK_MAX_TOP_K], sum = 0;
    struct ranked ranked[DK_MAX_EXPERTS];
    bool is_kept[DK_MAX_EXPERTS];
    uint32_t count = 0, group_size = routing->expert_count / routing->group_count;
    out->margin = INFINITY;
    for (uint32_t i = 0; i < routing->expert_count; i++) {
        scores[i] = score_of(routing->scoring, logits[i]);
    }
    if (routing->scoring == DK_SCORING_SOFTMAX) {
        normalize_exponentials(scores, routing->expert_count);
    }
    for (uint32_t i = 0; i < routing->expert_count; i++) {
        choice[i] = scores[i] + (correction_bias != NULL ? (double)correction_bias[i] : 0);
    }
    rank_groups(routing, choice, is_kept, out);
    for (uint32_t i = 0; i < routing->expert_count; i++) {
        if (is_kept[i / group_size]) {
            ranked[count++] = (struct ranked){choice[i], (int32_t)i};
        }
    }
    qsort(ranked, count, sizeof ranked[0], by_rank);
    for (uint32_t i = 0; i < routing->top_k; i++) {
        out->ids[i] = ranked[i].id;
        chosen[i] = scores[ranked[i].id];
        note_margin(out, ranked, i + 1, count);
    }
    if (routing->scoring == DK_SCORING_SOFTMAX_AFTER_TOPK) {
        normalize_exponentials(chosen, routing->top_k);
    }
    for (uint32_t i = 0; i < routing->top_k; i++) {
        sum += chosen[i];
    }
    for (uint32_t i = 0; i < routing->top_k; i++) {
        out->weights[i] =
            (routing->is_normalized ? chosen[i] / (sum + 1e-20) : chosen[i]) * (double)routing->scale;
    }
}
