/* oip_repository.c: bodies of the model-repository extension. */
#include "proto/oip_repository.h"

#include <string.h>

#include "proto/oip_member.h"
#include "proto/oip_model.h"

static const char *const state_names[] = {
#define STATE_NAME(name, text) [DK_OIP_##name] = (text),
    DK_OIP_STATE_MAP(STATE_NAME)
#undef STATE_NAME
};

void dk_oip_index(struct dk_json_text *text, const struct dk_oip_index_entry *entries, size_t count)
{
    dk_json_text_raw(text, "[");
    for (size_t i = 0; i < count; i++) {
        dk_json_text_raw(text, i > 0 ? ",{\"name\":" : "{\"name\":");
        dk_oip_text_string(text, entries[i].name);
        dk_json_text_raw(text, ",\"version\":\"" DK_OIP_VERSION "\",\"state\":");
        dk_oip_text_string(text, state_names[entries[i].state]);
        dk_json_text_raw(text, ",\"reason\":");
        dk_oip_text_string(text, entries[i].reason);
        dk_json_text_raw(text, "}");
    }
    dk_json_text_raw(text, "]");
}

static dk_status read_flag(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    return dk_oip_read_bool(member, context, error);
}

dk_status dk_oip_index_request_parse(const char *skeleton, size_t length, bool *is_only_ready,
                                     struct dk_error *error)
{
    static const struct dk_oip_field fields[] = {{"ready", read_flag}};
    struct dk_oip_member body = dk_oip_body(skeleton, length);
    bool flag = false;
    dk_status status = length == 0 ? DK_OK : dk_oip_read_object(&body, fields, 1, NULL, &flag, error);
    if (status == DK_OK) {
        *is_only_ready = flag;
    }
    return status;
}

static dk_status refuse_override(const struct dk_oip_member *member, struct dk_error *error)
{
    char path[DK_OIP_PATH_BYTES];
    return dk_fail(error, DK_UNSUPPORTED,
                   "%s: overrides are not supported; a model is loaded as this server is configured",
                   dk_oip_member_path(member, path));
}

static dk_status read_config(void *context, const struct dk_oip_member *member, struct dk_error *error)
{
    (void)context;
    return refuse_override(member, error);
}

static dk_status read_load_parameter(void *context, const struct dk_oip_member *member,
                                     struct dk_error *error)
{
    static const char file[] = "file:";
    if (member->key_length >= sizeof file - 1 && memcmp(member->key, file, sizeof file - 1) == 0) {
        return refuse_override(member, error);
    }
    return dk_oip_read_other_parameter(context, member, error);
}

static dk_status read_load_parameters(void *context, const struct dk_oip_member *member,
                                      struct dk_error *error)
{
    static const struct dk_oip_field fields[] = {{"config", read_config}};
    return dk_oip_read_object(member, fields, 1, read_load_parameter, context, error);
}

static dk_status read_unload_parameters(void *context, const struct dk_oip_member *member,
                                        struct dk_error *error)
{
    static const struct dk_oip_field fields[] = {{"unload_dependents", read_flag}};
    return dk_oip_read_object(member, fields, 1, dk_oip_read_other_parameter, context, error);
}

dk_status dk_oip_load_request_parse(const char *skeleton, size_t length, struct dk_error *error)
{
    static const struct dk_oip_field fields[] = {{"parameters", read_load_parameters}};
    struct dk_oip_member body = dk_oip_body(skeleton, length);
    return length == 0 ? DK_OK : dk_oip_read_object(&body, fields, 1, NULL, NULL, error);
}

dk_status dk_oip_unload_request_parse(const char *skeleton, size_t length, struct dk_error *error)
{
    static const struct dk_oip_field fields[] = {{"parameters", read_unload_parameters}};
    struct dk_oip_member body = dk_oip_body(skeleton, length);
    bool is_ignored; /* whether to unload dependents */
    return length == 0 ? DK_OK : dk_oip_read_object(&body, fields, 1, NULL, &is_ignored, error);
}
