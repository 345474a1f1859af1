/* routing.c: names of scorings and the checks of one rule. */
#include "proto/routing.h"

#include <math.h>
#include <string.h>

static const char *const scoring_names[DK_SCORING_COUNT] = {
#define DK_SCORING_NAME(name, text) [DK_SCORING_##name] = (text),
    DK_SCORING_MAP(DK_SCORING_NAME)
#undef DK_SCORING_NAME
};

const char *dk_scoring_name(dk_scoring scoring)
{
    unsigned index = (unsigned)scoring;
    return index < DK_SCORING_COUNT ? scoring_names[index] : "unknown";
}

dk_status dk_scoring_parse(const char *text, size_t length, dk_scoring *out)
{
    for (unsigned i = 0; i < DK_SCORING_COUNT; i++) {
        if (strlen(scoring_names[i]) == length && memcmp(scoring_names[i], text, length) == 0) {
            *out = (dk_scoring)i;
            return DK_OK;
        }
    }
    return DK_BAD_VALUE;
}

static dk_status check_range(const char *name, uint32_t value, uint32_t high, struct dk_error *error)
{
    if (value >= 1 && value <= high) {
        return DK_OK;
    }
    return dk_fail(error, DK_BAD_VALUE, "%s is %u; allowed are 1 to %u", name, value, high);
}

static dk_status check_groups(const struct dk_routing *routing, struct dk_error *error)
{
    uint32_t experts = routing->expert_count, groups = routing->group_count;
    if (experts % groups != 0) {
        return dk_fail(error, DK_BAD_VALUE, "%u experts cannot be divided into %u groups", experts, groups);
    }
    uint32_t group_size = experts / groups;
    if (routing->kept_group_count > groups) {
        return dk_fail(error, DK_BAD_VALUE, "topk_group is %u, there are %u groups",
                       routing->kept_group_count, groups);
    }
    if (groups > 1 && routing->is_group_score_sum && group_size < 2) {
        return dk_fail(error, DK_BAD_VALUE,
                       "%u experts in %u groups leave one expert a group, and its two best are asked for",
                       experts, groups);
    }
    if (routing->top_k > routing->kept_group_count * group_size) {
        return dk_fail(error, DK_BAD_VALUE, "top_k is %u, the %u kept groups of %u hold %u experts",
                       routing->top_k, routing->kept_group_count, group_size,
                       routing->kept_group_count * group_size);
    }
    return DK_OK;
}

dk_status dk_routing_check(const struct dk_routing *routing, struct dk_error *error)
{
    dk_status status = check_range("the number of experts", routing->expert_count, DK_MAX_EXPERTS, error);
    if (status == DK_OK) {
        status = check_range("n_group", routing->group_count, routing->expert_count, error);
    }
    if (status == DK_OK) {
        status = check_range("topk_group", routing->kept_group_count, routing->expert_count, error);
    }
    if (status == DK_OK) {
        status = check_range("top_k", routing->top_k, DK_MAX_TOP_K, error);
    }
    if (status == DK_OK) {
        status = check_groups(routing, error);
    }
    if (status != DK_OK) {
        return status;
    }
    if ((unsigned)routing->scoring >= DK_SCORING_COUNT) {
        return dk_fail(error, DK_BAD_VALUE, "scoring %u is unknown", (unsigned)routing->scoring);
    }
    if (routing->scoring == DK_SCORING_SOFTMAX_AFTER_TOPK && routing->has_correction_bias) {
        return dk_fail(error, DK_BAD_VALUE, "softmax_after_topk ranks the logits: no correction bias");
    }
    if (!isfinite(routing->scale) || !(routing->scale > 0)) {
        return dk_fail(error, DK_BAD_VALUE, "the scale is %g; it must be finite and above 0",
                       (double)routing->scale);
    }
    return DK_OK;
}
