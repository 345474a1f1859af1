/* options.c: the parser and the help printer behind option tables. */
#include "client/cli/options.h"

#include <stdlib.h>
#include <string.h>

#include "proto/dtype.h"
#include "proto/gemm.h"
#include "proto/json_reader.h"

/* --- suggestions --------------------------------------------------------------------------------------- */

enum { MAX_WORD = 32 };

/* Edits (insert, delete, replace, swap neighbours) from a to b; words longer than MAX_WORD are far from all.
 */
static size_t edit_distance(const char *a, const char *b)
{
    size_t la = strlen(a), lb = strlen(b);
    if (la > MAX_WORD || lb > MAX_WORD)
        return MAX_WORD;
    size_t d[MAX_WORD + 1][MAX_WORD + 1];
    for (size_t i = 0; i <= la; i++)
        d[i][0] = i;
    for (size_t j = 0; j <= lb; j++)
        d[0][j] = j;
    for (size_t i = 1; i <= la; i++)
        for (size_t j = 1; j <= lb; j++) {
            size_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            best = d[i - 1][j] + 1 < best ? d[i - 1][j] + 1 : best;
            best = d[i][j - 1] + 1 < best ? d[i][j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[la][lb];
}

const char *dk_suggest(const char *word, const char *(*next)(const void *context, size_t index),
                       const void *context)
{
    const char *nearest = NULL, *candidate;
    size_t nearest_distance = 1 + strlen(word) / 3; /* one slip in three letters, two in six */
    for (size_t i = 0; (candidate = next(context, i)); i++) {
        bool is_beginning = strlen(word) >= 3 && strncmp(candidate, word, strlen(word)) == 0;
        size_t distance = is_beginning ? 0 : edit_distance(word, candidate);
        if (distance < nearest_distance || (distance == nearest_distance && !nearest)) {
            nearest = candidate;
            nearest_distance = distance;
        }
    }
    return nearest;
}

struct group_list {
    const struct dk_option_group *groups;
    size_t count;
};

static const char *next_option_name(const void *context, size_t index)
{
    const struct group_list *list = context;
    for (size_t g = 0; g < list->count; g++) {
        if (index < list->groups[g].count)
            return list->groups[g].options[index].name;
        index -= list->groups[g].count;
    }
    return NULL;
}

/* --- values -------------------------------------------------------------------------------------------- */

static dk_status parse_u64(const struct dk_option *option, const char *text, struct dk_error *error)
{
    uint64_t value = 0;
    bool is_good = *text != 0;
    for (const char *at = text; is_good && *at; at++) {
        uint64_t digit = (uint64_t)(unsigned char)*at - '0';
        is_good = digit <= 9 && value <= (UINT64_MAX - digit) / 10;
        value = value * 10 + digit;
    }
    if (!is_good || value < option->min || value > option->max)
        return dk_fail(error, DK_BAD_REQUEST, "--%s: '%s' is not a whole number from %llu to %llu",
                       option->name, text, (unsigned long long)option->min, (unsigned long long)option->max);
    *(uint64_t *)option->target = value;
    return DK_OK;
}

static dk_status parse_seconds(const struct dk_option *option, const char *text, struct dk_error *error)
{
    double value;
    if (!dk_json_parse_number(text, strlen(text), &value) || !(value >= 0.001 && value <= 86400.0))
        return dk_fail(error, DK_BAD_REQUEST, "--%s: '%s' is not a number of seconds from 0.001 to 86400",
                       option->name, text);
    *(double *)option->target = value;
    return DK_OK;
}

static dk_status parse_value(const struct dk_option *option, const char *text, struct dk_error *error)
{
    switch (option->kind) {
    case DK_OPTION_TEXT:
        if (!*text)
            return dk_fail(error, DK_BAD_REQUEST, "--%s: the value is empty", option->name);
        *(const char **)option->target = text;
        return DK_OK;
    case DK_OPTION_U64:
        return parse_u64(option, text, error);
    case DK_OPTION_SECONDS:
        return parse_seconds(option, text, error);
    case DK_OPTION_DTYPE: {
        dk_dtype dtype;
        if (dk_dtype_parse(text, strlen(text), DK_DIALECT_NATIVE, &dtype) != DK_OK ||
            !dk_dtype_is_float(dtype))
            return dk_fail(error, DK_BAD_REQUEST, "--%s: '%s' is not one of fp32, bf16, fp16", option->name,
                           text);
        *(dk_dtype *)option->target = dtype;
        return DK_OK;
    }
    case DK_OPTION_EPILOGUE:
        if (dk_epilogue_parse(text, strlen(text), option->target) != DK_OK)
            return dk_fail(error, DK_BAD_REQUEST, "--%s: '%s' is not one of none, relu, sigmoid",
                           option->name, text);
        return DK_OK;
    case DK_OPTION_FLAG:
        break;
    }
    return dk_fail(error, DK_BAD_REQUEST, "--%s takes no value, found '%s'", option->name, text);
}

/* --- the command line ---------------------------------------------------------------------------------- */

static const struct dk_option *find_option(const struct group_list *list, const char *name, size_t length)
{
    for (size_t g = 0; g < list->count; g++)
        for (size_t i = 0; i < list->groups[g].count; i++) {
            const struct dk_option *option = &list->groups[g].options[i];
            if (strlen(option->name) == length && strncmp(option->name, name, length) == 0)
                return option;
        }
    return NULL;
}

static dk_status unknown_option(const struct group_list *list, const char *argument, size_t name_length,
                                struct dk_error *error)
{
    char name[MAX_WORD + 1] = "";
    if (name_length <= MAX_WORD)
        memcpy(name, argument + 2, name_length);
    const char *nearest = dk_suggest(name, next_option_name, list);
    if (nearest)
        return dk_fail(error, DK_BAD_REQUEST, "unknown option '%s'; did you mean '--%s'?", argument, nearest);
    return dk_fail(error, DK_BAD_REQUEST, "unknown option '%s'", argument);
}

/* Parses the option at argv[*index] and moves *index past its value. */
static dk_status parse_option(const struct group_list *list, int argc, char **argv, int *index,
                              struct dk_error *error)
{
    const char *argument = argv[(*index)++];
    if (strcmp(argument, "-h") == 0)
        argument = "--help";
    if (argument[1] != '-')
        return dk_fail(error, DK_BAD_REQUEST, "unknown option '%s'; options begin with two dashes", argument);
    const char *equals = strchr(argument, '=');
    size_t length = equals ? (size_t)(equals - argument - 2) : strlen(argument + 2);
    const struct dk_option *option = find_option(list, argument + 2, length);
    if (!option)
        return unknown_option(list, argument, length, error);
    if (option->is_given)
        *option->is_given = true;
    if (option->kind == DK_OPTION_FLAG && !equals) {
        *(bool *)option->target = true;
        return DK_OK;
    }
    if (!equals && *index == argc)
        return dk_fail(error, DK_BAD_REQUEST, "--%s needs a value", option->name);
    return parse_value(option, equals ? equals + 1 : argv[(*index)++], error);
}

dk_status dk_options_parse(const struct dk_option_group *groups, size_t group_count, bool stop_early,
                           int argc, char **argv, int *out_positional_count, struct dk_error *error)
{
    const struct group_list list = {groups, group_count};
    int count = 0;
    bool are_options_over = false;
    for (int i = 0; i < argc;) {
        bool is_option = !are_options_over && argv[i][0] == '-' && argv[i][1] != 0;
        if (is_option && strcmp(argv[i], "--") == 0) {
            are_options_over = true;
            i++;
        } else if (is_option) {
            dk_status status = parse_option(&list, argc, argv, &i, error);
            if (status != DK_OK)
                return status;
        } else if (stop_early) {
            memmove(argv, argv + i, (size_t)(argc - i) * sizeof *argv);
            count = argc - i;
            break;
        } else {
            argv[count++] = argv[i++];
        }
    }
    *out_positional_count = count;
    return DK_OK;
}

/* --- help ---------------------------------------------------------------------------------------------- */

void dk_options_print(const struct dk_option_group *groups, size_t group_count, FILE *stream)
{
    for (size_t g = 0; g < group_count; g++)
        for (size_t i = 0; i < groups[g].count; i++) {
            const struct dk_option *option = &groups[g].options[i];
            const char *value = option->value_name ? option->value_name : "";
            int width = 26 - 4 - (int)strlen(option->name) - 1;
            fprintf(stream, "  --%s %-*s %s\n", option->name, width > 0 ? width : 0, value, option->help);
        }
}
