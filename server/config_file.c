/* config_file.c: the configuration file: lines of `name = value`. */
#include "server/config_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE_BYTES = 64 * 1024 };

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static char *trim(char *text)
{
    while (is_blank(*text))
        text++;
    size_t length = strlen(text);
    while (length > 0 && is_blank(text[length - 1]))
        length--;
    text[length] = '\0';
    return text;
}

/* `"..."` with `\"` and `\\`; only blanks or a comment may follow. NULL when it does not end. */
static char *unquote(char *text)
{
    char *read = text + 1, *write = text;
    for (; *read != '"'; read++) {
        if (*read == '\\' && (read[1] == '"' || read[1] == '\\'))
            read++;
        if (*read == '\0')
            return NULL;
        *write++ = *read;
    }
    char *rest = trim(read + 1);
    *write = '\0';
    return *rest == '\0' || *rest == '#' ? text : NULL;
}

/* A bare value ends at a '#' that follows a blank. */
static char *bare(char *text)
{
    for (char *at = text; *at != '\0'; at++) {
        if (*at == '#' && (at == text || is_blank(at[-1]))) {
            *at = '\0';
            break;
        }
    }
    return trim(text);
}

static dk_status refuse_name(const char *name, const struct dk_config_source *source, struct dk_error *error)
{
    const struct dk_option *near = dk_option_nearest(name, strlen(name));
    if (near == NULL || near->kind >= DK_OPTION_CONFIG)
        return dk_fail(error, DK_BAD_VALUE, "%s: option '%s' is unknown", source->text, name);
    return dk_fail(error, DK_BAD_VALUE, "%s: option '%s' is unknown; did you mean '%s'?", source->text, name,
                   near->name);
}

static dk_status apply_line(struct dk_config_owner *owner, char *line, const struct dk_config_source *source,
                            struct dk_error *error)
{
    char *name = trim(line);
    if (*name == '\0' || *name == '#')
        return DK_OK;
    char *equals = strchr(name, '=');
    if (equals == NULL)
        return dk_fail(error, DK_BAD_VALUE, "%s: '%s' is not allowed; expected name = value", source->text,
                       name);
    *equals = '\0';
    char *value = trim(equals + 1);
    name = trim(name);
    const struct dk_option *option = dk_option_find(name, strlen(name));
    if (option == NULL)
        return refuse_name(name, source, error);
    if (option->kind >= DK_OPTION_CONFIG)
        return dk_fail(error, DK_BAD_VALUE, "%s: option '%s' is not allowed in a file", source->text, name);
    char *text = *value == '"' ? unquote(value) : bare(value);
    if (text == NULL)
        return dk_fail(error, DK_BAD_VALUE, "%s: the quoted value of '%s' does not end", source->text, name);
    return dk_option_apply(owner, option, text, source, error);
}

static dk_status apply_lines(struct dk_config_owner *owner, FILE *file, const char *path,
                             struct dk_error *error)
{
    char place[256], *line = NULL;
    size_t capacity = 0;
    dk_status status = DK_OK;
    for (unsigned long number = 1; status == DK_OK; number++) {
        errno = 0;
        ssize_t length = getline(&line, &capacity, file);
        if (length < 0) {
            if (ferror(file))
                status =
                    dk_fail(error, DK_IO_ERROR, "file %s: cannot read: %s", path, strerrordesc_np(errno));
            break;
        }
        (void)snprintf(place, sizeof place, "file %.200s:%lu", path, number);
        const struct dk_config_source source = {.rank = 0, .text = place};
        if (strlen(line) != (size_t)length)
            status = dk_fail(error, DK_BAD_VALUE, "%s: the line holds a zero byte", place);
        else if (length > MAX_LINE_BYTES)
            status = dk_fail(error, DK_BAD_VALUE, "%s: the line has %zd bytes; at most %d are allowed", place,
                             length, (int)MAX_LINE_BYTES);
        else
            status = apply_line(owner, line, &source, error);
    }
    free(line);
    return status;
}

dk_status dk_config_apply_file(struct dk_config_owner *owner, const char *path, struct dk_error *error)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return dk_fail(error, DK_IO_ERROR, "file %s: cannot open: %s", path, strerrordesc_np(errno));
    dk_status status = apply_lines(owner, file, path, error);
    (void)fclose(file); /* only read */
    return status;
}
