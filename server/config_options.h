/* config_options.h: the table of options and the parsing of one value (private to config*.c). */
#ifndef DK_SERVER_CONFIG_OPTIONS_H
#define DK_SERVER_CONFIG_OPTIONS_H

#include "server/config.h"

enum dk_option_kind {
    DK_OPTION_U16,
    DK_OPTION_U32,
    DK_OPTION_INT,
    DK_OPTION_SIZE,  /* uint64_t; K, M, G, T or KiB, MiB, GiB, TiB behind it */
    DK_OPTION_OCTAL, /* uint32_t */
    DK_OPTION_BOOL,
    DK_OPTION_STRING,
    DK_OPTION_NAME,   /* const char *, one of choices; "auto" is NULL */
    DK_OPTION_CHOICE, /* enum: the index in choices */
    DK_OPTION_IDS,    /* struct dk_id_list */
    DK_OPTION_MODEL,
    DK_OPTION_CONFIG, /* the file itself: flag and variable only */
    DK_OPTION_HELP,   /* flags only, from here on */
    DK_OPTION_VERSION
};

struct dk_option {
    const char *name; /* without dashes */
    enum dk_option_kind kind;
    size_t offset;              /* of the member of struct dk_config */
    const char *default_text;   /* parsed like any value; NULL: zero */
    uint64_t min, max;          /* numbers */
    const char *const *choices; /* NULL-terminated; DK_OPTION_NAME and DK_OPTION_CHOICE */
    const char *value_name, *help;
};

extern const struct dk_option dk_options[];
extern const size_t dk_option_count;

/* The config under construction; owns every string. `config` comes first: dk_config_free casts back. */
struct dk_config_owner {
    struct dk_config config;
    struct dk_config_model {
        struct dk_model_spec spec;
        char *text;      /* owns the strings of spec */
        int source_rank; /* which source gave it: 0 file, 1 environment, 2 flags */
    } * models;
    struct dk_model_spec *specs; /* what config.models points to */
    size_t model_count;
    char **strings;
    size_t string_count;
};

/* Where a value came from. */
struct dk_config_source {
    int rank;
    const char *text; /* "flag --port", "variable DECOMPOSEK_PORT", "file x.conf:3" */
};

const struct dk_option *dk_option_find(const char *name, size_t length); /* NULL when unknown */
/* The option most like `name`, or NULL when none is near (distance above a third of the length, or 2). */
const struct dk_option *dk_option_nearest(const char *name, size_t length);
/* Parse `value` and store it. DK_BAD_VALUE quotes source, value and what is allowed. DK_NO_MEMORY. */
dk_status dk_option_apply(struct dk_config_owner *owner, const struct dk_option *option, const char *value,
                          const struct dk_config_source *source, struct dk_error *error);
/* "DECOMPOSEK_MAX_TOKENS" of "max-tokens". `size` >= 64. */
void dk_option_variable(const struct dk_option *option, char *out, size_t size);
/* What a value may be, for messages and help: "0..65535", "auto, cpu or cuda", ... */
void dk_option_allowed(const struct dk_option *option, char *out, size_t size);

/* config_ids.c: false, and *out untouched, when `text` is neither "any" nor at most DK_MAX_IDS numbers
 * between commas. */
bool dk_config_parse_ids(const char *text, struct dk_id_list *out);
/* config_model.c: one --model value. */
dk_status dk_config_add_model(struct dk_config_owner *owner, const char *value,
                              const struct dk_config_source *source, struct dk_error *error);
/* config_file.c: apply every line. */
dk_status dk_config_apply_file(struct dk_config_owner *owner, const char *path, struct dk_error *error);
/* config_help.c: false when stdout failed. */
bool dk_config_print_help(void);
bool dk_config_print_version(void);

#endif
