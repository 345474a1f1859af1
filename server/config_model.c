/* config_model.c: one model option, NAME=FILE[,tensor=T][,bias=T][,layout=L][,epilogue=E], to a spec. */
#include "server/config_options.h"

#include <stdlib.h>
#include <string.h>

#include "proto/native_api.h"

/* Ends the field at *cursor at the next bare comma, resolving `\,` and `\\` in place; moves *cursor behind
 * the comma or to NULL at the end. False for any other escape. */
static bool take_field(char **cursor, char **field)
{
    char *read = *cursor, *write = *cursor;
    *field = *cursor;
    *cursor = NULL;
    for (; *read != '\0'; read++) {
        if (*read == ',') {
            *cursor = read + 1;
            break;
        }
        if (*read == '\\') {
            read++;
            if (*read != ',' && *read != '\\')
                return false;
        }
        *write++ = *read;
    }
    *write = '\0';
    return true;
}

static dk_status set_field(struct dk_model_spec *spec, const char *field,
                           const struct dk_config_source *source, struct dk_error *error)
{
    const char *equals = strchr(field, '=');
    size_t length = equals == NULL ? 0 : (size_t)(equals - field);
    const char *value = equals == NULL ? "" : equals + 1;
    if (length == 6 && memcmp(field, "tensor", length) == 0 && *value != '\0') {
        spec->tensor = value;
        return DK_OK;
    }
    if (length == 4 && memcmp(field, "bias", length) == 0 && *value != '\0') {
        spec->bias = value;
        return DK_OK;
    }
    if (length == 6 && memcmp(field, "layout", length) == 0 &&
        dk_layout_parse(value, strlen(value), &spec->layout) == DK_OK)
        return DK_OK;
    if (length == 8 && memcmp(field, "epilogue", length) == 0 &&
        dk_epilogue_parse(value, strlen(value), &spec->epilogue) == DK_OK)
        return DK_OK;
    return dk_fail(error, DK_BAD_VALUE,
                   "%s: model '%s': '%s' is not allowed; expected tensor=T, bias=T, layout=nk|kn or "
                   "epilogue=none|relu|sigmoid",
                   source->text, spec->name, field);
}

/* `text` is cut up in place and holds every string of *spec. */
static dk_status parse_spec(char *text, struct dk_model_spec *spec, const char *value,
                            const struct dk_config_source *source, struct dk_error *error)
{
    char *cursor = text, *field = NULL;
    char *equals = strchr(text, '=');
    if (equals == NULL || equals == text || equals[1] == '\0' || equals[1] == ',')
        return dk_fail(error, DK_BAD_VALUE, "%s: '%s' is not allowed; expected NAME=FILE[,tensor=T]...",
                       source->text, value);
    *equals = '\0';
    if (!dk_model_name_is_valid(text, strlen(text)))
        return dk_fail(error, DK_BAD_VALUE,
                       "%s: model name '%s' is not allowed; expected 1 to %d of A-Z a-z 0-9 . _ -",
                       source->text, text, (int)DK_MODEL_NAME_BYTES);
    *spec = (struct dk_model_spec){.name = text, .layout = DK_LAYOUT_NK, .epilogue = DK_EPILOGUE_NONE};
    for (cursor = equals + 1; cursor != NULL;) {
        if (!take_field(&cursor, &field))
            return dk_fail(error, DK_BAD_VALUE,
                           "%s: '%s' is not allowed; a backslash stands only before ',' or '\\'",
                           source->text, value);
        if (spec->path == NULL) {
            spec->path = field;
            continue;
        }
        dk_status status = set_field(spec, field, source, error);
        if (status != DK_OK)
            return status;
    }
    return DK_OK;
}

/* The place of `spec`: that of the same name from an earlier source, else a new one. */
static dk_status place_spec(struct dk_config_owner *owner, const struct dk_model_spec *spec, char *text,
                            const struct dk_config_source *source, struct dk_error *error)
{
    struct dk_config_model added = {.spec = *spec, .text = text, .source_rank = source->rank};
    for (size_t i = 0; i < owner->model_count; i++) {
        if (strcmp(owner->models[i].spec.name, spec->name) != 0)
            continue;
        if (owner->models[i].source_rank == source->rank)
            return dk_fail(error, DK_BAD_VALUE, "%s: model '%s' is given twice", source->text, spec->name);
        free(owner->models[i].text);
        owner->models[i] = added;
        return DK_OK;
    }
    if (owner->model_count == DK_MAX_MODELS)
        return dk_fail(error, DK_BAD_VALUE, "%s: model '%s' is one too many; at most %d are allowed",
                       source->text, spec->name, (int)DK_MAX_MODELS);
    struct dk_config_model *grown =
        reallocarray(owner->models, owner->model_count + 1, sizeof *owner->models);
    if (grown == NULL)
        return dk_fail(error, DK_NO_MEMORY, "no memory for the configuration");
    owner->models = grown;
    owner->models[owner->model_count++] = added;
    return DK_OK;
}

dk_status dk_config_add_model(struct dk_config_owner *owner, const char *value,
                              const struct dk_config_source *source, struct dk_error *error)
{
    struct dk_model_spec spec;
    char *text = strdup(value);
    if (text == NULL)
        return dk_fail(error, DK_NO_MEMORY, "no memory for the configuration");
    dk_status status = parse_spec(text, &spec, value, source, error);
    if (status == DK_OK)
        status = place_spec(owner, &spec, text, source, error);
    if (status != DK_OK)
        free(text);
    return status;
}
