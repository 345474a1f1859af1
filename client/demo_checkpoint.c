/* demo_checkpoint.c: the files of the demo checkpoint. */
#include "client/demo_checkpoint.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/json_add.h"
#include "client/random.h"
#include "client/safetensors_writer.h"

/* The routing part of the published configuration of DeepSeek-V3. */
static const char config_text[] = "{\n"
                                  "  \"architectures\": [\"DeepseekV3ForCausalLM\"],\n"
                                  "  \"model_type\": \"deepseek_v3\",\n"
                                  "  \"hidden_size\": 7168,\n"
                                  "  \"num_hidden_layers\": 61,\n"
                                  "  \"first_k_dense_replace\": 3,\n"
                                  "  \"moe_layer_freq\": 1,\n"
                                  "  \"n_routed_experts\": 256,\n"
                                  "  \"n_shared_experts\": 1,\n"
                                  "  \"num_experts_per_tok\": 8,\n"
                                  "  \"n_group\": 8,\n"
                                  "  \"topk_group\": 4,\n"
                                  "  \"topk_method\": \"noaux_tc\",\n"
                                  "  \"scoring_func\": \"sigmoid\",\n"
                                  "  \"norm_topk_prob\": true,\n"
                                  "  \"routed_scaling_factor\": 2.5,\n"
                                  "  \"num_nextn_predict_layers\": 1,\n"
                                  "  \"torch_dtype\": \"bfloat16\"\n"
                                  "}\n";

enum {
    LAYERS_PER_SHARD = 8, /* 29 MB */
    WEIGHT_BYTES = DK_DEMO_EXPERTS * DK_DEMO_HIDDEN * 2,
    BIAS_BYTES = DK_DEMO_EXPERTS * 4
};

/* 1/sqrt(7168): logits of normal rows are then about normal too. */
static const double weight_scale = 0.01181138978153835;
static const double bias_scale = 0.05;

uint32_t dk_demo_shard_count(uint32_t layer_count)
{
    uint32_t count = (layer_count + LAYERS_PER_SHARD - 1) / LAYERS_PER_SHARD;
    return count == 1 && layer_count > 1 ? 2 : count;
}

/* First layer (counted from 0) of a shard: the layers are spread evenly. */
static uint32_t first_of_shard(uint32_t layer_count, uint32_t shard)
{
    return layer_count * (shard - 1) / dk_demo_shard_count(layer_count);
}

uint32_t dk_demo_shard_of(uint32_t layer_count, uint32_t layer)
{
    uint32_t shard = 1;
    while (first_of_shard(layer_count, shard + 1) <= layer - DK_DEMO_FIRST_MOE)
        shard++;
    return shard;
}

void dk_demo_shard_name(char out[DK_DEMO_NAME_BYTES], uint32_t shard, uint32_t count)
{
    snprintf(out, DK_DEMO_NAME_BYTES, "model-%05u-of-%05u.safetensors", shard, count);
}

void dk_demo_weight_name(char out[DK_DEMO_NAME_BYTES], uint32_t layer)
{
    snprintf(out, DK_DEMO_NAME_BYTES, "model.layers.%u.mlp.gate.weight", layer);
}

void dk_demo_bias_name(char out[DK_DEMO_NAME_BYTES], uint32_t layer)
{
    snprintf(out, DK_DEMO_NAME_BYTES, "model.layers.%u.mlp.gate.e_score_correction_bias", layer);
}

/* --- a shard ------------------------------------------------------------------------------------------- */

/* `bytes` has room for a layer: bias, then weight. Each tensor has its own stream of the seed. */
static void draw_layer(uint64_t seed, uint32_t layer, unsigned char *bytes)
{
    double values[DK_DEMO_EXPERTS];
    struct dk_random random;
    dk_random_init(&random, seed, (uint64_t)layer * 2);
    dk_random_normal_fill(&random, bias_scale, values, DK_DEMO_EXPERTS);
    dk_convert_from_double(values, bytes, DK_FP32, DK_DEMO_EXPERTS);
    bytes += BIAS_BYTES;
    dk_random_init(&random, seed, (uint64_t)layer * 2 + 1);
    for (size_t i = 0; i < DK_DEMO_HIDDEN; i++, bytes += DK_DEMO_EXPERTS * 2) {
        dk_random_normal_fill(&random, weight_scale, values, DK_DEMO_EXPERTS);
        dk_convert_from_double(values, bytes, DK_BF16, DK_DEMO_EXPERTS);
    }
}

static void fill_entries(struct dk_st_entry entries[2], char names[2][DK_DEMO_NAME_BYTES], uint32_t layer)
{
    dk_demo_bias_name(names[0], layer);
    dk_demo_weight_name(names[1], layer);
    entries[0] = (struct dk_st_entry){names[0], DK_FP32, 1, {DK_DEMO_EXPERTS, 0}};
    entries[1] = (struct dk_st_entry){names[1], DK_BF16, 2, {DK_DEMO_EXPERTS, DK_DEMO_HIDDEN}};
}

static dk_status write_shard(const struct dk_demo_checkpoint *demo, uint32_t first, uint32_t end,
                             const char *path, struct dk_error *error)
{
    struct dk_st_entry entries[LAYERS_PER_SHARD * 2];
    char names[LAYERS_PER_SHARD * 2][DK_DEMO_NAME_BYTES];
    assert(end - first <= LAYERS_PER_SHARD);
    for (uint32_t i = 0; i < end - first; i++)
        fill_entries(entries + i * 2, names + i * 2, DK_DEMO_FIRST_MOE + first + i);
    unsigned char *layer_bytes = malloc(BIAS_BYTES + WEIGHT_BYTES);
    if (!layer_bytes)
        return dk_fail(error, DK_NO_MEMORY, "no memory for a layer of '%s'", path);
    struct dk_st_writer writer;
    dk_status status = dk_st_writer_open(path, entries, (size_t)(end - first) * 2, &writer, error);
    if (status != DK_OK)
        goto free_bytes;
    for (uint32_t i = first; status == DK_OK && i < end; i++) {
        draw_layer(demo->seed, DK_DEMO_FIRST_MOE + i, layer_bytes);
        status = dk_st_writer_append(&writer, layer_bytes, BIAS_BYTES + WEIGHT_BYTES, error);
    }
    if (status == DK_OK)
        status = dk_st_writer_commit(&writer, error);
    else
        dk_st_writer_abort(&writer);
free_bytes:
    free(layer_bytes);
    return status;
}

/* --- the folder ---------------------------------------------------------------------------------------- */

struct folder {
    const struct dk_demo_checkpoint *demo;
    void (*progress)(void *context, const char *path, uint64_t bytes);
    void *context;
};

static char *join(const char *folder, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

static dk_status write_shards(const struct folder *folder, struct dk_error *error)
{
    const struct dk_demo_checkpoint *demo = folder->demo;
    uint32_t count = dk_demo_shard_count(demo->layer_count);
    dk_status status = DK_OK;
    for (uint32_t shard = 1; status == DK_OK && shard <= count; shard++) {
        char name[DK_DEMO_NAME_BYTES];
        dk_demo_shard_name(name, shard, count);
        char *path = join(demo->folder, name);
        if (!path)
            return dk_fail(error, DK_NO_MEMORY, "no memory for a path");
        uint32_t first = first_of_shard(demo->layer_count, shard);
        uint32_t end = first_of_shard(demo->layer_count, shard + 1);
        status = write_shard(demo, first, end, path, error);
        if (status == DK_OK && folder->progress)
            folder->progress(folder->context, path, (uint64_t)(end - first) * (BIAS_BYTES + WEIGHT_BYTES));
        free(path);
    }
    return status;
}

static dk_status write_text(const struct folder *folder, const char *name, const char *text, size_t length,
                            struct dk_error *error)
{
    char *path = join(folder->demo->folder, name);
    if (!path)
        return dk_fail(error, DK_NO_MEMORY, "no memory for a path");
    dk_status status = dk_file_write(path, text, length, NULL, 0, error);
    if (status == DK_OK && folder->progress)
        folder->progress(folder->context, path, length);
    free(path);
    return status;
}

static void make_index(const struct dk_demo_checkpoint *demo, struct dk_json_text *text)
{
    uint32_t count = dk_demo_shard_count(demo->layer_count);
    dk_json_add_u64(text, "{\n  \"metadata\": {\n    \"total_size\": ",
                    (uint64_t)demo->layer_count * (BIAS_BYTES + WEIGHT_BYTES));
    dk_json_text_raw(text, "\n  },\n  \"weight_map\": {");
    for (uint32_t i = 0; i < demo->layer_count; i++) {
        uint32_t layer = DK_DEMO_FIRST_MOE + i;
        char tensor[DK_DEMO_NAME_BYTES], shard[DK_DEMO_NAME_BYTES];
        dk_demo_shard_name(shard, dk_demo_shard_of(demo->layer_count, layer), count);
        dk_demo_bias_name(tensor, layer);
        dk_json_add_text(text, i ? ",\n    " : "\n    ", tensor);
        dk_json_add_text(text, ": ", shard);
        dk_demo_weight_name(tensor, layer);
        dk_json_add_text(text, ",\n    ", tensor);
        dk_json_add_text(text, ": ", shard);
    }
    dk_json_text_raw(text, "\n  }\n}\n");
}

dk_status dk_demo_checkpoint_write(const struct dk_demo_checkpoint *demo,
                                   void (*progress)(void *context, const char *path, uint64_t bytes),
                                   void *context, struct dk_error *error)
{
    assert(demo->layer_count >= 1 && demo->layer_count <= DK_DEMO_MOE_LAYERS);
    const struct folder folder = {demo, progress, context};
    dk_status status = write_text(&folder, "config.json", config_text, sizeof config_text - 1, error);
    if (status == DK_OK)
        status = write_shards(&folder, error);
    if (status != DK_OK)
        return status;
    struct dk_json_text index = {0};
    make_index(demo, &index);
    status = index.failed
                 ? dk_fail(error, DK_NO_MEMORY, "no memory for the index")
                 : write_text(&folder, "model.safetensors.index.json", index.data, index.length, error);
    dk_json_text_free(&index);
    return status;
}
