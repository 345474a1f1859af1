/* route.c: scores, group choice, and a top-k kept sorted by insertion. */
#include "kernels/cpu/route.h"

#include <assert.h>
#include <math.h>

#include "kernels/cpu/exp.h"
#include "kernels/cpu/reduce.h"

static float largest(const float *values, size_t count)
{
    float result = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        result = values[i] > result ? values[i] : result; /* NaN compares false */
    }
    return result;
}

/* exp(x - max) / sum. A row with NaN or +inf becomes NaN throughout, as the formula says. */
static void softmax(const float *logits, float *scores, size_t count)
{
    enum { LANES = 16 }; /* sums side by side: a fixed order that the compiler may vectorise */
    float max = largest(logits, count), sums[LANES] = {0}, sum = 0;
    for (size_t i = 0; i < count; i++) {
        float y = logits[i] - max;
        float e = dk_exp_of_negative(y < -104.0f ? -104.0f : y);
        scores[i] = y < -104.0f ? 0.0f : e;
    }
    for (size_t i = 0; i < count; i++) {
        sums[i % LANES] += scores[i];
    }
    for (size_t i = 0; i < LANES; i++) {
        sum += sums[i];
    }
    for (size_t i = 0; i < count; i++) {
        scores[i] /= sum;
    }
}

/* sqrt(log(1 + exp(x))), the logarithm as max(x, 0) + log1p(exp(-|x|)). log1p(e) = 2 atanh(e / (2 + e)) by
 * its series: e <= 1, so the argument is at most 1/3 and nine terms leave under 2^-30. */
static void sqrt_softplus(const float *logits, float *scores, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float x = logits[i], y = x < 0 ? x : -x;
        float e = dk_exp_of_negative(y < -104.0f ? -104.0f : y);
        e = y < -104.0f ? 0.0f : e;
        float s = e / (2.0f + e), square = s * s, series = 1.0f / 17;
        series = series * square + 1.0f / 15;
        series = series * square + 1.0f / 13;
        series = series * square + 1.0f / 11;
        series = series * square + 1.0f / 9;
        series = series * square + 1.0f / 7;
        series = series * square + 1.0f / 5;
        series = series * square + 1.0f / 3;
        float log1p_e = 2.0f * (series * square * s + s);
        scores[i] = sqrtf((x > 0 ? x : 0.0f) + log1p_e);
    }
}

void dk_route_scores(dk_scoring scoring, const float *logits, float *scores, size_t count)
{
    switch (scoring) {
    case DK_SCORING_SOFTMAX:
        softmax(logits, scores, count);
        break;
    case DK_SCORING_SQRTSOFTPLUS:
        sqrt_softplus(logits, scores, count);
        break;
    default:
        if (scores != logits) {
            memcpy(scores, logits, count * sizeof *scores);
        }
        if (scoring == DK_SCORING_SIGMOID) {
            dk_sigmoid(scores, count);
        }
        break;
    }
}

/* The best so far, in descending order of value; among equals the one that came first stands first. */
struct top_list {
    uint32_t count, capacity;
    float values[DK_MAX_TOP_K];
    int32_t ids[DK_MAX_TOP_K];
};

static void top_insert(struct top_list *list, float value, int32_t id)
{
    uint32_t at = list->count < list->capacity ? list->count++ : list->capacity - 1;
    for (; at > 0 && list->values[at - 1] < value; at--) {
        list->values[at] = list->values[at - 1];
        list->ids[at] = list->ids[at - 1];
    }
    list->values[at] = value;
    list->ids[at] = id;
}

/* Values must not be NaN. Ids must come in ascending order, so that ties keep the lower. */
static void top_scan(struct top_list *list, const float *values, int32_t first_id, uint32_t count)
{
    uint32_t i = 0;
    for (; i < count && list->count < list->capacity; i++) {
        top_insert(list, values[i], first_id + (int32_t)i);
    }
    for (; i < count; i++) {
        if (values[i] > list->values[list->capacity - 1]) {
            top_insert(list, values[i], first_id + (int32_t)i);
        }
    }
}

static float group_score(const struct dk_routing *routing, const float *choice, uint32_t size)
{
    if (!routing->is_group_score_sum) {
        return largest(choice, size);
    }
    float first = -INFINITY, second = -INFINITY;
    for (uint32_t i = 0; i < size; i++) {
        float value = choice[i];
        float smaller = value > first ? first : value;
        first = value > first ? value : first;
        second = smaller > second ? smaller : second;
    }
    return first + second;
}

/* Whether each group is kept: the kept_group_count best, the lower index among equals. */
static void keep_groups(const struct dk_routing *routing, const float *choice, bool *is_kept)
{
    uint32_t size = routing->expert_count / routing->group_count;
    float scores[DK_MAX_EXPERTS];
    for (uint32_t g = 0; g < routing->group_count; g++) {
        /* inf - inf of two biases: NaN must not make the order depend on the position */
        float score = group_score(routing, choice + g * size, size);
        scores[g] = isnan(score) ? -INFINITY : score;
        is_kept[g] = false;
    }
    for (uint32_t kept = 0; kept < routing->kept_group_count; kept++) {
        uint32_t best = routing->group_count;
        for (uint32_t g = 0; g < routing->group_count; g++) {
            if (!is_kept[g] && (best == routing->group_count || scores[g] > scores[best])) {
                best = g;
            }
        }
        is_kept[best] = true;
    }
}

static void choose(const struct dk_routing *routing, const float *choice, struct top_list *list)
{
    if (routing->kept_group_count == routing->group_count) {
        top_scan(list, choice, 0, routing->expert_count);
        return;
    }
    bool is_kept[DK_MAX_EXPERTS];
    uint32_t size = routing->expert_count / routing->group_count;
    keep_groups(routing, choice, is_kept);
    for (uint32_t g = 0; g < routing->group_count; g++) {
        if (is_kept[g]) {
            top_scan(list, choice + g * size, (int32_t)(g * size), size);
        }
    }
}

static void weigh(const struct dk_routing *routing, const struct top_list *list, const float *scores,
                  float *weights)
{
    float chosen[DK_MAX_TOP_K], sum = 0;
    for (uint32_t i = 0; i < routing->top_k; i++) {
        chosen[i] = scores[list->ids[i]];
    }
    if (routing->scoring == DK_SCORING_SOFTMAX_AFTER_TOPK) {
        softmax(chosen, chosen, routing->top_k);
    }
    for (uint32_t i = 0; i < routing->top_k; i++) {
        sum += chosen[i];
    }
    for (uint32_t i = 0; i < routing->top_k; i++) {
        float weight = routing->is_normalized ? chosen[i] / (sum + 1e-20f) : chosen[i];
        weights[i] = weight * routing->scale;
    }
}

void dk_route_row(const struct dk_routing *routing, const float *logits, const float *correction_bias,
                  int32_t *ids, float *weights)
{
    assert(routing->expert_count <= DK_MAX_EXPERTS && routing->top_k <= DK_MAX_TOP_K);
    float scores[DK_MAX_EXPERTS], choice[DK_MAX_EXPERTS];
    uint32_t count = routing->expert_count;
    dk_route_scores(routing->scoring, logits, scores, count);
    for (uint32_t i = 0; i < count; i++) {
        float value = correction_bias != NULL ? scores[i] + correction_bias[i] : scores[i];
        choice[i] = value > -INFINITY ? value : -INFINITY; /* NaN too */
    }
    struct top_list list = {.capacity = routing->top_k};
    choose(routing, choice, &list);
    memcpy(ids, list.ids, routing->top_k * sizeof *ids);
    weigh(routing, &list, scores, weights);
}
