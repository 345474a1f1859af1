/* config.c: the order of the sources: defaults, file, environment, flags; later ones win. */
#include "server/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/config_options.h"

enum { RANK_FILE, RANK_ENVIRONMENT, RANK_FLAGS };

static const char prefix[] = "DECOMPOSEK_";

/* One flag of argv; values are borrowed. */
struct setting {
    const struct dk_option *option;
    const char *value;
};
struct settings {
    struct setting *items; /* room for argc */
    size_t count;
};

static dk_status refuse_flag(const char *argument, size_t length, struct dk_error *error)
{
    const struct dk_option *near = dk_option_nearest(argument + 2, length - 2);
    int shown = length > 100 ? 100 : (int)length;
    if (near == NULL)
        return dk_fail(error, DK_BAD_VALUE, "flag %.*s is unknown; --help lists all", shown, argument);
    return dk_fail(error, DK_BAD_VALUE, "flag %.*s is unknown; did you mean --%s?", shown, argument,
                   near->name);
}

/* The flag at argv[*index]; moves *index over a value that stands in the next argument. */
static dk_status read_flag(char **argv, int argc, int *index, struct setting *out, struct dk_error *error)
{
    const char *argument = argv[*index];
    if (strcmp(argument, "-h") == 0)
        argument = "--help";
    if (strncmp(argument, "--", 2) != 0 || argument[2] == '\0')
        return dk_fail(error, DK_BAD_VALUE, "argument '%s' is not allowed; expected --OPTION", argument);
    size_t length = strcspn(argument, "=");
    const char *value = argument[length] == '=' ? argument + length + 1 : NULL;
    out->option = dk_option_find(argument + 2, length - 2);
    if (out->option == NULL)
        return refuse_flag(argument, length, error);
    enum dk_option_kind kind = out->option->kind;
    bool is_action = kind == DK_OPTION_HELP || kind == DK_OPTION_VERSION;
    if (is_action && value != NULL)
        return dk_fail(error, DK_BAD_VALUE, "flag --%s takes no value, found '%s'", out->option->name, value);
    if (value == NULL && kind == DK_OPTION_BOOL)
        value = "true";
    if (value == NULL && !is_action) {
        if (*index + 1 >= argc || strncmp(argv[*index + 1], "--", 2) == 0)
            return dk_fail(error, DK_BAD_VALUE, "flag --%s needs a value: --%s %s", out->option->name,
                           out->option->name, out->option->value_name);
        value = argv[++*index];
    }
    out->value = value;
    return DK_OK;
}

static dk_status read_flags(int argc, char **argv, struct settings *out, struct dk_error *error)
{
    for (int i = 1; i < argc; i++) {
        dk_status status = read_flag(argv, argc, &i, &out->items[out->count], error);
        if (status != DK_OK)
            return status;
        out->count++;
    }
    return DK_OK;
}

/* The last value of the first option of this kind; NULL when not given. */
static const char *last_value(const struct settings *flags, enum dk_option_kind kind)
{
    const char *value = NULL;
    for (size_t i = 0; i < flags->count; i++) {
        if (flags->items[i].option->kind == kind)
            value = flags->items[i].value;
    }
    return value;
}

static dk_status apply_defaults(struct dk_config_owner *owner, struct dk_error *error)
{
    const struct dk_config_source source = {.rank = RANK_FILE, .text = "default"};
    for (size_t i = 0; i < dk_option_count; i++) {
        if (dk_options[i].default_text == NULL)
            continue;
        dk_status status = dk_option_apply(owner, &dk_options[i], dk_options[i].default_text, &source, error);
        if (status != DK_OK)
            return status;
    }
    return DK_OK;
}

static dk_status apply_flags(struct dk_config_owner *owner, const struct settings *flags,
                             struct dk_error *error)
{
    for (size_t i = 0; i < flags->count; i++) {
        char place[64];
        const struct setting *flag = &flags->items[i];
        if (flag->option->kind >= DK_OPTION_CONFIG)
            continue;
        (void)snprintf(place, sizeof place, "flag --%s", flag->option->name);
        const struct dk_config_source source = {.rank = RANK_FLAGS, .text = place};
        dk_status status = dk_option_apply(owner, flag->option, flag->value, &source, error);
        if (status != DK_OK)
            return status;
    }
    return DK_OK;
}

/* "DECOMPOSEK_MAX_TOKENS" -> "max-tokens"; false when it cannot be an option's name. */
static bool option_name(const char *variable, size_t length, char *out, size_t size)
{
    size_t skip = sizeof prefix - 1;
    if (length <= skip || length - skip >= size)
        return false;
    for (size_t i = skip; i < length; i++) {
        char c = variable[i];
        bool is_upper = c >= 'A' && c <= 'Z';
        if (!is_upper && c != '_')
            return false;
        out[i - skip] = c == '_' ? '-' : (char)(c - 'A' + 'a');
    }
    out[length - skip] = '\0';
    return true;
}

/* What Kubernetes puts into every pod of a namespace with a Service named decomposek. */
static bool is_service_link(const char *name, const char *value)
{
    return strncmp(name, "port-", 5) == 0 || strncmp(name, "service-", 8) == 0 ||
           (strcmp(name, "port") == 0 &&
            (strncmp(value, "tcp://", 6) == 0 || strncmp(value, "udp://", 6) == 0));
}

/* Several models in one variable. */
static dk_status apply_model_list(struct dk_config_owner *owner, const struct dk_option *option,
                                  const char *value, const struct dk_config_source *source,
                                  struct dk_error *error)
{
    char *list = strdup(value), *rest = NULL;
    if (list == NULL)
        return dk_fail(error, DK_NO_MEMORY, "no memory for the configuration");
    dk_status status = DK_OK;
    for (char *one = strtok_r(list, " \t\n;", &rest); one != NULL && status == DK_OK;
         one = strtok_r(NULL, " \t\n;", &rest))
        status = dk_option_apply(owner, option, one, source, error);
    free(list);
    return status;
}

static dk_status apply_variable(struct dk_config_owner *owner, const char *entry, struct dk_error *error)
{
    char name[64], place[128], wanted[64];
    size_t length = strcspn(entry, "=");
    const char *value = entry[length] == '=' ? entry + length + 1 : "";
    if (strncmp(entry, prefix, sizeof prefix - 1) != 0 || *value == '\0' ||
        !option_name(entry, length, name, sizeof name) || is_service_link(name, value))
        return DK_OK;
    (void)snprintf(place, sizeof place, "variable %.*s", length > 100 ? 100 : (int)length, entry);
    const struct dk_config_source source = {.rank = RANK_ENVIRONMENT, .text = place};
    const struct dk_option *option = dk_option_find(name, strlen(name));
    if (option == NULL || option->kind >= DK_OPTION_HELP) {
        const struct dk_option *near = dk_option_nearest(name, strlen(name));
        if (near == NULL || near->kind >= DK_OPTION_HELP)
            return DK_OK; /* another program's */
        dk_option_variable(near, wanted, sizeof wanted);
        return dk_fail(error, DK_BAD_VALUE, "%s is unknown; did you mean %s?", place, wanted);
    }
    if (option->kind == DK_OPTION_CONFIG)
        return DK_OK;
    if (option->kind == DK_OPTION_MODEL)
        return apply_model_list(owner, option, value, &source, error);
    return dk_option_apply(owner, option, value, &source, error);
}

static dk_status apply_environment(struct dk_config_owner *owner, char **environment, struct dk_error *error)
{
    for (char **entry = environment; entry != NULL && *entry != NULL; entry++) {
        dk_status status = apply_variable(owner, *entry, error);
        if (status != DK_OK)
            return status;
    }
    return DK_OK;
}

static const char *config_path(const struct settings *flags, char **environment)
{
    static const char variable[] = "DECOMPOSEK_CONFIG=";
    const char *path = last_value(flags, DK_OPTION_CONFIG);
    for (char **entry = environment; path == NULL && entry != NULL && *entry != NULL; entry++) {
        if (strncmp(*entry, variable, sizeof variable - 1) == 0 && (*entry)[sizeof variable - 1] != '\0')
            path = *entry + sizeof variable - 1;
    }
    return path;
}

static dk_status publish_models(struct dk_config_owner *owner, struct dk_error *error)
{
    if (owner->model_count == 0)
        return DK_OK;
    owner->specs = calloc(owner->model_count, sizeof *owner->specs);
    if (owner->specs == NULL)
        return dk_fail(error, DK_NO_MEMORY, "no memory for the configuration");
    for (size_t i = 0; i < owner->model_count; i++)
        owner->specs[i] = owner->models[i].spec;
    owner->config.models = owner->specs;
    owner->config.model_count = owner->model_count;
    return DK_OK;
}

static dk_status build(const struct settings *flags, char **environment, struct dk_config_owner *owner,
                       struct dk_error *error)
{
    const char *path = config_path(flags, environment);
    dk_status status = apply_defaults(owner, error);
    if (status == DK_OK && path != NULL)
        status = dk_config_apply_file(owner, path, error);
    if (status == DK_OK)
        status = apply_environment(owner, environment, error);
    if (status == DK_OK)
        status = apply_flags(owner, flags, error);
    if (status == DK_OK)
        status = publish_models(owner, error);
    return status;
}

static bool has_kind(const struct settings *flags, enum dk_option_kind kind)
{
    for (size_t i = 0; i < flags->count; i++) {
        if (flags->items[i].option->kind == kind)
            return true;
    }
    return false;
}

dk_status dk_config_parse(int argc, char **argv, char **environment, const struct dk_config **out,
                          enum dk_config_action *action, struct dk_error *error)
{
    struct dk_config_owner *owner = calloc(1, sizeof *owner);
    struct settings flags = {calloc((size_t)argc + 1, sizeof *flags.items), 0};
    dk_status status = DK_OK;
    if (owner == NULL || flags.items == NULL)
        status = dk_fail(error, DK_NO_MEMORY, "no memory for the configuration");
    if (status == DK_OK)
        status = read_flags(argc, argv, &flags, error);
    bool wants_help = status == DK_OK && has_kind(&flags, DK_OPTION_HELP);
    if (wants_help || (status == DK_OK && has_kind(&flags, DK_OPTION_VERSION))) {
        if (wants_help ? dk_config_print_help() : dk_config_print_version())
            *action = DK_CONFIG_PRINTED;
        else
            status = dk_fail(error, DK_IO_ERROR, "cannot write to standard output");
    } else if (status == DK_OK) {
        status = build(&flags, environment, owner, error);
        if (status == DK_OK) {
            *action = DK_CONFIG_RUN;
            *out = &owner->config;
            owner = NULL;
        }
    }
    if (owner != NULL)
        dk_config_free(&owner->config);
    free(flags.items);
    return status;
}

void dk_config_free(const struct dk_config *config)
{
    if (config == NULL)
        return;
    _Static_assert(offsetof(struct dk_config_owner, config) == 0, "the config is the head of its owner");
    struct dk_config_owner *owner = (struct dk_config_owner *)config;
    for (size_t i = 0; i < owner->model_count; i++)
        free(owner->models[i].text);
    for (size_t i = 0; i < owner->string_count; i++)
        free(owner->strings[i]);
    free(owner->models);
    free(owner->specs);
    free(owner->strings);
    free(owner);
}
