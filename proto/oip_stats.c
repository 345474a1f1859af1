/* oip_stats.c: the statistics extension's answer. */
#include "proto/oip_stats.h"

#include "proto/oip_member.h"
#include "proto/oip_model.h"

static void write_u64(struct dk_json_text *text, const char *before, uint64_t value)
{
    dk_json_text_raw(text, before);
    dk_json_text_u64(text, value);
}

static void write_duration(struct dk_json_text *text, const char *before,
                           const struct dk_oip_duration *duration)
{
    dk_json_text_raw(text, before);
    write_u64(text, "{\"count\":", duration->count);
    write_u64(text, ",\"ns\":", duration->ns);
    dk_json_text_raw(text, "}");
}

static void write_batch(struct dk_json_text *text, const struct dk_oip_batch_stats *batch)
{
    write_u64(text, "{\"batch_size\":", batch->batch_size);
    write_duration(text, ",\"compute_input\":", &batch->compute_input);
    write_duration(text, ",\"compute_infer\":", &batch->compute_infer);
    write_duration(text, ",\"compute_output\":", &batch->compute_output);
    dk_json_text_raw(text, "}");
}

static void write_memory(struct dk_json_text *text, const struct dk_oip_memory_usage *memory)
{
    dk_json_text_raw(text, "{\"type\":");
    dk_oip_text_string(text, memory->type);
    dk_json_text_raw(text, ",\"id\":");
    dk_json_text_i64(text, memory->id);
    write_u64(text, ",\"byte_size\":", memory->byte_size);
    dk_json_text_raw(text, "}");
}

static void write_model(struct dk_json_text *text, const struct dk_oip_model_stats *model)
{
    dk_json_text_raw(text, "{\"name\":");
    dk_oip_text_string(text, model->name);
    write_u64(text, ",\"version\":\"" DK_OIP_VERSION "\",\"last_inference\":", model->last_inference_ms);
    write_u64(text, ",\"inference_count\":", model->inference_count);
    write_u64(text, ",\"execution_count\":", model->execution_count);
    write_duration(text, ",\"inference_stats\":{\"success\":", &model->success);
    write_duration(text, ",\"fail\":", &model->fail);
    write_duration(text, ",\"queue\":", &model->queue);
    write_duration(text, ",\"compute_input\":", &model->compute_input);
    write_duration(text, ",\"compute_infer\":", &model->compute_infer);
    write_duration(text, ",\"compute_output\":", &model->compute_output);
    write_duration(text, ",\"cache_hit\":", &model->cache_hit);
    write_duration(text, ",\"cache_miss\":", &model->cache_miss);
    dk_json_text_raw(text, "},\"response_stats\":{},\"batch_stats\":[");
    for (size_t i = 0; i < model->batch_count; i++) {
        dk_json_text_raw(text, i > 0 ? "," : "");
        write_batch(text, &model->batches[i]);
    }
    dk_json_text_raw(text, "],\"memory_usage\":[");
    for (size_t i = 0; i < model->memory_count; i++) {
        dk_json_text_raw(text, i > 0 ? "," : "");
        write_memory(text, &model->memory[i]);
    }
    dk_json_text_raw(text, "]}");
}

void dk_oip_stats(struct dk_json_text *text, const struct dk_oip_model_stats *models, size_t model_count)
{
    dk_json_text_raw(text, "{\"model_stats\":[");
    for (size_t i = 0; i < model_count; i++) {
        dk_json_text_raw(text, i > 0 ? "," : "");
        write_model(text, &models[i]);
    }
    dk_json_text_raw(text, "]}");
}
