/* router_config.c: the members that describe routers, in each spelling, and what families leave unsaid. */
#include "proto/router_config.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

#include "proto/json_reader.h"

enum { CONFIG_LIMIT_BYTES = 16 * 1024 * 1024, VALUE_SHOWN = 80 };

/* Up to four spellings of one member, NULL past the last. */
struct spelling {
    const char *names[4];
};

static const struct spelling hidden_size = {{"hidden_size", "dim"}};
static const struct spelling layer_count = {{"num_hidden_layers", "n_layers"}};
static const struct spelling dense_layers = {{"first_k_dense_replace", "n_dense_layers"}};
static const struct spelling experts = {{"n_routed_experts", "num_experts", "num_local_experts"}};
static const struct spelling top_k = {{"num_experts_per_tok", "n_activated_experts", "experts_per_token"}};
static const struct spelling groups = {{"n_group", "n_expert_groups"}};
static const struct spelling kept_groups = {{"topk_group", "n_limited_groups"}};
static const struct spelling scale = {{"routed_scaling_factor", "route_scale"}};
static const struct spelling scoring = {{"scoring_func", "score_func"}};
static const struct spelling normalize = {{"norm_topk_prob"}};
static const struct spelling method = {{"topk_method"}};

/* What a family does where its configuration is silent. */
struct family {
    const char *model_type;
    dk_scoring scoring;
    const char *method;
    bool is_normalized;
};
static const struct family families[] = {
    {"deepseek_v3", DK_SCORING_SIGMOID, "noaux_tc", true},
    {"kimi_k2", DK_SCORING_SIGMOID, "noaux_tc", true},
    {"deepseek_v2", DK_SCORING_SOFTMAX, "greedy", false},
    {"deepseek_v4", DK_SCORING_SQRTSOFTPLUS, "noaux_tc", true},
    {"glm4_moe", DK_SCORING_SIGMOID, "noaux_tc", true},
    {"qwen3_moe", DK_SCORING_SOFTMAX, "greedy", false},
    {"minimax_m2", DK_SCORING_SIGMOID, "noaux_tc", true},
    {"gpt_oss", DK_SCORING_SOFTMAX_AFTER_TOPK, "greedy", false},
    {"", DK_SCORING_SIGMOID, NULL, true}, /* DeepSeek's own spelling, and families not listed */
};
enum { FAMILY_COUNT = sizeof families / sizeof families[0] };

static const struct family *find_family(const char *model_type)
{
    size_t i = 0;
    while (i + 1 < FAMILY_COUNT && strcmp(families[i].model_type, model_type) != 0) {
        i++;
    }
    return &families[i];
}

/* The member in whichever spelling, and that spelling; null counts as absent. */
static const cJSON *find(const cJSON *root, const struct spelling *spelling, const char **name)
{
    for (size_t i = 0; i < 4 && spelling->names[i] != NULL; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, spelling->names[i]);
        if (item != NULL && !cJSON_IsNull(item)) {
            *name = spelling->names[i];
            return item;
        }
    }
    *name = spelling->names[0];
    return NULL;
}

/* Spellings beside each other must say the same, or one of them would be ignored in silence. */
static dk_status check_agreement(const cJSON *root, const struct spelling *spelling, const cJSON *item,
                                 const char *name, struct dk_error *error)
{
    for (size_t i = 0; i < 4 && spelling->names[i] != NULL; i++) {
        const cJSON *other = cJSON_GetObjectItemCaseSensitive(root, spelling->names[i]);
        if (other != NULL && !cJSON_IsNull(other) && !cJSON_Compare(item, other, true)) {
            return dk_fail(error, DK_BAD_FILE, "%s and %s disagree", name, spelling->names[i]);
        }
    }
    return DK_OK;
}

static dk_status read_u32(const cJSON *root, const struct spelling *spelling, uint32_t otherwise,
                          uint32_t *out, struct dk_error *error)
{
    const char *name;
    const cJSON *item = find(root, spelling, &name);
    if (item == NULL) {
        *out = otherwise;
        return DK_OK;
    }
    if (!cJSON_IsNumber(item)) {
        return dk_fail(error, DK_BAD_FILE, "%s: expected an integer", name);
    }
    double value = item->valuedouble;
    if (!(value >= 0) || value > 16777216.0 || value != floor(value)) {
        return dk_fail(error, DK_BAD_FILE, "%s: expected an integer from 0 to 16777216, found %g", name,
                       value);
    }
    *out = (uint32_t)value;
    return check_agreement(root, spelling, item, name, error);
}

static dk_status read_needed_u32(const cJSON *root, const struct spelling *spelling, uint32_t *out,
                                 struct dk_error *error)
{
    dk_status status = read_u32(root, spelling, 0, out, error);
    if (status == DK_OK && *out == 0) {
        return dk_fail(error, DK_BAD_FILE, "%s: expected a positive integer, found %s", spelling->names[0],
                       "none");
    }
    return status;
}

static dk_status read_text(const cJSON *root, const struct spelling *spelling, const char **out,
                           struct dk_error *error)
{
    const char *name;
    const cJSON *item = find(root, spelling, &name);
    *out = NULL;
    if (item == NULL) {
        return DK_OK;
    }
    if (!cJSON_IsString(item)) {
        return dk_fail(error, DK_BAD_FILE, "%s: expected a string", name);
    }
    *out = item->valuestring;
    return check_agreement(root, spelling, item, name, error);
}

static dk_status read_scale(const cJSON *root, float *out, struct dk_error *error)
{
    const char *name;
    const cJSON *item = find(root, &scale, &name);
    *out = 1.0f;
    if (item == NULL) {
        return DK_OK;
    }
    if (!cJSON_IsNumber(item)) {
        return dk_fail(error, DK_BAD_FILE, "%s: expected a number", name);
    }
    *out = (float)item->valuedouble;
    return check_agreement(root, &scale, item, name, error);
}

static dk_status read_normalize(const cJSON *root, const struct family *family, bool *out,
                                struct dk_error *error)
{
    const char *name;
    const cJSON *item = find(root, &normalize, &name);
    *out = family->is_normalized;
    if (item == NULL) {
        return DK_OK;
    }
    if (!cJSON_IsBool(item)) {
        return dk_fail(error, DK_BAD_FILE, "%s: expected true or false", name);
    }
    *out = cJSON_IsTrue(item) != 0;
    return DK_OK;
}

static dk_status read_scoring(const cJSON *root, const struct family *family, dk_scoring *out,
                              struct dk_error *error)
{
    const char *text;
    dk_status status = read_text(root, &scoring, &text, error);
    *out = family->scoring;
    if (status != DK_OK || text == NULL) {
        return status;
    }
    if (dk_scoring_parse(text, strlen(text), out) != DK_OK) {
        return dk_fail(error, DK_UNSUPPORTED,
                       "scoring_func \"%.*s\" is not known; sigmoid, softmax, sqrtsoftplus and "
                       "softmax_after_topk are",
                       VALUE_SHOWN, text);
    }
    return DK_OK;
}

/* noaux_tc: correction bias, and groups ranked by the sum of their two best. group_limited_greedy: groups
 * ranked by their best. greedy: no groups, whatever n_group says. */
static dk_status read_method(const cJSON *root, const struct family *family, struct dk_routing *routing,
                             struct dk_error *error)
{
    const char *text;
    dk_status status = read_text(root, &method, &text, error);
    if (status != DK_OK) {
        return status;
    }
    if (text == NULL) {
        text = family->method != NULL ? family->method : "noaux_tc";
    }
    if (strcmp(text, "greedy") == 0) {
        routing->group_count = routing->kept_group_count = 1;
        return DK_OK;
    }
    if (strcmp(text, "group_limited_greedy") == 0) {
        return DK_OK;
    }
    if (strcmp(text, "noaux_tc") != 0) {
        return dk_fail(error, DK_UNSUPPORTED,
                       "topk_method \"%.*s\" is not known; noaux_tc, group_limited_greedy and greedy are",
                       VALUE_SHOWN, text);
    }
    routing->has_correction_bias = true;
    routing->is_group_score_sum = true;
    return DK_OK;
}

static dk_status read_rule(const cJSON *root, const struct family *family, struct dk_routing *routing,
                           struct dk_error *error)
{
    dk_status status = read_needed_u32(root, &experts, &routing->expert_count, error);
    if (status == DK_OK) {
        status = read_needed_u32(root, &top_k, &routing->top_k, error);
    }
    if (status == DK_OK) {
        status = read_u32(root, &groups, 1, &routing->group_count, error);
    }
    if (status == DK_OK) {
        status = read_u32(root, &kept_groups, 1, &routing->kept_group_count, error);
    }
    if (status == DK_OK) {
        status = read_scale(root, &routing->scale, error);
    }
    if (status == DK_OK) {
        status = read_normalize(root, family, &routing->is_normalized, error);
    }
    if (status == DK_OK) {
        status = read_scoring(root, family, &routing->scoring, error);
    }
    if (status == DK_OK) {
        status = read_method(root, family, routing, error);
    }
    struct dk_error rule_error = {0};
    if (status == DK_OK && dk_routing_check(routing, &rule_error) != DK_OK) {
        return dk_fail(error, DK_BAD_FILE, "%s", rule_error.message);
    }
    return status;
}

static dk_status read_model_type(const cJSON *root, char *out, struct dk_error *error)
{
    static const struct spelling spelling = {{"model_type"}};
    const char *text;
    dk_status status = read_text(root, &spelling, &text, error);
    if (status != DK_OK || text == NULL) {
        return status;
    }
    if (strlen(text) >= DK_MODEL_TYPE_BYTES) {
        return dk_fail(error, DK_BAD_FILE, "model_type: expected under %d bytes, found \"%.*s\"...",
                       (int)DK_MODEL_TYPE_BYTES, VALUE_SHOWN, text);
    }
    memcpy(out, text, strlen(text) + 1);
    return DK_OK;
}

static dk_status read_config(const cJSON *root, struct dk_router_config *config, struct dk_error *error)
{
    dk_status status = read_model_type(root, config->model_type, error);
    if (status == DK_OK) {
        status = read_needed_u32(root, &hidden_size, &config->hidden_size, error);
    }
    if (status == DK_OK) {
        status = read_needed_u32(root, &layer_count, &config->layer_count, error);
    }
    if (status == DK_OK) {
        status = read_u32(root, &dense_layers, 0, &config->dense_layer_count, error);
    }
    return status == DK_OK ? read_rule(root, find_family(config->model_type), &config->routing, error)
                           : status;
}

static dk_status parse_skeleton(const char *skeleton, size_t length, struct dk_router_config *out,
                                struct dk_error *error)
{
    cJSON *root = cJSON_ParseWithLength(skeleton, length);
    if (root == NULL) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for a configuration of %zu bytes", length);
    }
    dk_status status;
    if (!cJSON_IsObject(root)) {
        status = dk_fail(error, DK_BAD_FILE, "expected a JSON object");
    } else {
        const cJSON *nested = cJSON_GetObjectItemCaseSensitive(root, "text_config");
        struct dk_router_config config = {0};
        status = read_config(cJSON_IsObject(nested) ? nested : root, &config, error);
        if (status == DK_OK) {
            *out = config;
        }
    }
    cJSON_Delete(root);
    return status;
}

dk_status dk_router_config_parse(const char *text, size_t length, struct dk_router_config *out,
                                 struct dk_error *error)
{
    struct dk_json_reader *reader;
    if (dk_json_reader_new_sized(NULL, 0, NULL, CONFIG_LIMIT_BYTES, &reader) != DK_OK) {
        return dk_fail(error, DK_NO_MEMORY, "no memory to read a configuration of %zu bytes", length);
    }
    const char *skeleton;
    size_t skeleton_length;
    struct dk_error json_error = {0};
    dk_status status = dk_json_reader_feed(reader, text, length, &json_error);
    if (status == DK_OK) {
        status = dk_json_reader_finish(reader, &skeleton, &skeleton_length, &json_error);
    }
    if (status == DK_OK) {
        status = parse_skeleton(skeleton, skeleton_length, out, error);
    } else {
        status = dk_fail(error, status == DK_NO_MEMORY ? status : DK_BAD_FILE, "%s", json_error.message);
    }
    dk_json_reader_free(reader);
    return status;
}
