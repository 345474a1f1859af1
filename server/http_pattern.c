/* http_pattern.c: matching by one walk over pattern and path, twice where a group is optional. */
#include "server/http_pattern.h"

#include <stdio.h>
#include <string.h>

#include "proto/native_api.h"

/* Where the segment called by `pattern` ("{model}...") goes; NULL for an unknown name. */
static char *parameter_of(const char *pattern, struct dk_path_parameters *out, size_t *size)
{
    *size = sizeof out->model;
    return strncmp(pattern, "{model}", 7) == 0     ? out->model
           : strncmp(pattern, "{version}", 9) == 0 ? out->version
           : strncmp(pattern, "{region}", 8) == 0  ? out->region
                                                   : NULL;
}

/* `has_group`: the group is there; else it is skipped. */
static bool match(const char *pattern, const char *path, bool has_group, struct dk_path_parameters *out)
{
    while (*pattern != '\0') {
        if (*pattern == '[' && !has_group) {
            pattern += strcspn(pattern, "]");
            pattern++;
        } else if (*pattern == '[' || *pattern == ']') {
            pattern++;
        } else if (*pattern == '{') {
            size_t length = strcspn(path, "/"), size;
            char *parameter = parameter_of(pattern, out, &size);
            if (length == 0 || parameter == NULL) {
                return false;
            }
            (void)snprintf(parameter, size, "%.*s", (int)(length < size ? length : size - 1), path);
            path += length;
            pattern += strcspn(pattern, "}") + 1;
        } else if (*pattern++ != *path++) {
            return false;
        }
    }
    return *path == '\0';
}

static void clear(struct dk_path_parameters *parameters)
{
    parameters->model[0] = parameters->version[0] = parameters->region[0] = '\0';
}

bool dk_pattern_match(const char *pattern, const char *path, struct dk_path_parameters *out)
{
    clear(out);
    if (match(pattern, path, false, out)) {
        return true;
    }
    clear(out);
    return strchr(pattern, '[') != NULL && match(pattern, path, true, out);
}

dk_status dk_path_parameters_check(const struct dk_path_parameters *parameters, struct dk_error *error)
{
    if (parameters->model[0] != '\0' &&
        !dk_model_name_is_valid(parameters->model, strlen(parameters->model))) {
        return dk_fail(error, DK_NOT_FOUND, "no model \"%s\"", parameters->model);
    }
    if (parameters->version[0] != '\0' && strcmp(parameters->version, "1") != 0) {
        return dk_fail(error, DK_NOT_FOUND, "no version \"%s\": the only one of a model is \"1\"",
                       parameters->version);
    }
    if (parameters->region[0] != '\0' &&
        !dk_model_name_is_valid(parameters->region, strlen(parameters->region))) {
        return dk_fail(error, DK_BAD_VALUE,
                       "\"%s\" cannot be the name of a region: 1 to 64 of A-Z a-z 0-9 . _ - are allowed",
                       parameters->region);
    }
    return DK_OK;
}
