/* oip_model.c: metadata of the server and of a model, and a model's configuration. */
#include "proto/oip_model.h"

#include "proto/oip_member.h"

void dk_oip_server_metadata(struct dk_json_text *text, const char *name, const char *version,
                            const char *const *extensions, size_t extension_count)
{
    dk_json_text_raw(text, "{\"name\":");
    dk_oip_text_string(text, name);
    dk_json_text_raw(text, ",\"version\":");
    dk_oip_text_string(text, version);
    dk_json_text_raw(text, ",\"extensions\":[");
    for (size_t i = 0; i < extension_count; i++) {
        dk_json_text_raw(text, i > 0 ? "," : "");
        dk_oip_text_string(text, extensions[i]);
    }
    dk_json_text_raw(text, "]}");
}

static void write_tensor_metadata(struct dk_json_text *text, const struct dk_oip_tensor_spec *spec)
{
    dk_json_text_raw(text, "{\"name\":");
    dk_oip_text_string(text, spec->name);
    dk_json_text_raw(text, ",\"datatype\":");
    dk_oip_text_string(text, dk_dtype_name(spec->dtype, DK_DIALECT_OIP));
    dk_json_text_raw(text, ",\"shape\":[-1,");
    dk_json_text_u64(text, spec->row_length);
    dk_json_text_raw(text, "]}");
}

void dk_oip_model_metadata(struct dk_json_text *text, const struct dk_oip_model *model)
{
    dk_json_text_raw(text, "{\"name\":");
    dk_oip_text_string(text, model->name);
    dk_json_text_raw(text, ",\"versions\":[\"" DK_OIP_VERSION "\"],\"platform\":");
    dk_oip_text_string(text, model->platform);
    dk_json_text_raw(text, ",\"inputs\":[");
    write_tensor_metadata(text, &model->input);
    dk_json_text_raw(text, "],\"outputs\":[");
    for (size_t i = 0; i < model->output_count; i++) {
        dk_json_text_raw(text, i > 0 ? "," : "");
        write_tensor_metadata(text, &model->outputs[i]);
    }
    dk_json_text_raw(text, "]}");
}

static void write_tensor_config(struct dk_json_text *text, const struct dk_oip_tensor_spec *spec)
{
    dk_json_text_raw(text, "{\"name\":");
    dk_oip_text_string(text, spec->name);
    dk_json_text_raw(text, ",\"data_type\":\"TYPE_");
    dk_json_text_raw(text, dk_dtype_name(spec->dtype, DK_DIALECT_OIP));
    dk_json_text_raw(text, "\",\"dims\":[");
    dk_json_text_u64(text, spec->row_length);
    dk_json_text_raw(text, "]}");
}

void dk_oip_model_config(struct dk_json_text *text, const struct dk_oip_model *model)
{
    dk_json_text_raw(text, "{\"name\":");
    dk_oip_text_string(text, model->name);
    dk_json_text_raw(text, ",\"platform\":");
    dk_oip_text_string(text, model->platform);
    dk_json_text_raw(text, ",\"backend\":");
    dk_oip_text_string(text, model->platform);
    dk_json_text_raw(text, ",\"version_policy\":{\"specific\":{\"versions\":[" DK_OIP_VERSION
                           "]}},\"max_batch_size\":");
    dk_json_text_u64(text, model->max_batch_size);
    dk_json_text_raw(text, ",\"input\":[");
    write_tensor_config(text, &model->input);
    dk_json_text_raw(text, "],\"output\":[");
    for (size_t i = 0; i < model->output_count; i++) {
        dk_json_text_raw(text, i > 0 ? "," : "");
        write_tensor_config(text, &model->outputs[i]);
    }
    dk_json_text_raw(text, "],\"model_transaction_policy\":{\"decoupled\":false},"
                           "\"response_cache\":{\"enable\":false}}");
}
