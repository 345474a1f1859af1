/* options.h: command-line options as a table: one row drives parsing, bounds and help. */
#ifndef DK_CLIENT_CLI_OPTIONS_H
#define DK_CLIENT_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/status.h"

/* What `target` points to is written beside each kind. */
enum dk_option_kind {
    DK_OPTION_FLAG,    /* bool */
    DK_OPTION_TEXT,    /* const char *, borrowed from argv; empty texts are refused */
    DK_OPTION_U64,     /* uint64_t inside [min, max] */
    DK_OPTION_SECONDS, /* double, 0.001 to 86400, decimal point in every locale */
    DK_OPTION_DTYPE,   /* dk_dtype: fp32, bf16 or fp16 */
    DK_OPTION_EPILOGUE /* dk_epilogue */
};

struct dk_option {
    const char *name; /* without dashes */
    enum dk_option_kind kind;
    void *target;
    bool *is_given;         /* set when met; may be NULL */
    const char *value_name; /* for help; NULL for flags */
    const char *help;
    uint64_t min, max; /* DK_OPTION_U64 only */
};

/* Tables are chained, so that groups (connection, output) are written once. */
struct dk_option_group {
    const struct dk_option *options;
    size_t count;
};

/* Parse argv[0..argc). Both "--name value" and "--name=value"; the last one wins; "--" ends options; "-" is a
 * positional argument. Positional arguments are moved to the front of argv, in order, and counted. With
 * `stop_early` parsing ends at the first one, which stays in argv with all that follows it.
 * DK_BAD_REQUEST quotes the argument and, for an unknown name, the nearest known one. */
dk_status dk_options_parse(const struct dk_option_group *groups, size_t group_count, bool stop_early,
                           int argc, char **argv, int *out_positional_count, struct dk_error *error);

/* Two columns, in table order. */
void dk_options_print(const struct dk_option_group *groups, size_t group_count, FILE *stream);

/* The candidate nearest to `word`, or NULL when none is near enough to be a slip of the fingers. `next`
 * returns candidate `index`, NULL after the last. */
const char *dk_suggest(const char *word, const char *(*next)(const void *context, size_t index),
                       const void *context);

#endif
