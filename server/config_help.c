/* config_help.c: --help, made from the table of options, and --version. */
#include "server/config_options.h"

#include <stdio.h>
#include <string.h>

enum { TEXT_COLUMNS = 100, INDENT = 6 };

static const char head[] =
    "Usage: decomposekd [--OPTION VALUE | --OPTION=VALUE]...\n"
    "\n"
    "Serves matrix products whose only large dimension is K: over HTTP, from resident weights.\n"
    "\n"
    "Options (each also as a variable of the environment and as a line of the file):\n"
    "\n";

static const char tail[] =
    "Sources\n"
    "  Flags win over the environment, the environment wins over the file. An empty variable counts as\n"
    "  unset. Models of all sources add up; one of the same name from a stronger source takes its place.\n"
    "  DECOMPOSEK_MODEL may hold several models, separated by blanks or ';'. DECOMPOSEK_PORT=tcp://...,\n"
    "  which Kubernetes sets for a Service named decomposek, is left alone.\n"
    "\n"
    "File\n"
    "  One `name = value` a line, names as the flags without dashes; `model` may repeat. `#` starts a\n"
    "  comment at the start of a line or after a blank. A value may stand in double quotes; in them\n"
    "  \\\" and \\\\ are a quote and a backslash. Example:\n"
    "\n"
    "    # router of layer 3\n"
    "    model = gate=/models/gate.safetensors,tensor=model.layers.3.mlp.gate.weight\n"
    "    port = 8000\n"
    "    adhoc-max-bytes = 16MiB\n"
    "\n"
    "Exit codes\n"
    "  0 stopped as asked, 1 runtime failure, 2 wrong usage or configuration, 3 the device failed or the\n"
    "  backend asked for cannot serve.\n";

/* Words of `text` in lines of TEXT_COLUMNS. */
static void print_wrapped(const char *text)
{
    size_t column = 0;
    while (*text != '\0') {
        size_t word = strcspn(text, " ");
        if (column == 0 || column + 1 + word > TEXT_COLUMNS) {
            (void)printf("%s%*s", column == 0 ? "" : "\n", INDENT, "");
            column = INDENT;
        } else {
            (void)putchar(' ');
            column++;
        }
        (void)printf("%.*s", (int)word, text);
        column += word;
        text += word;
        text += strspn(text, " ");
    }
    (void)putchar('\n');
}

static void print_option(const struct dk_option *option)
{
    char allowed[128], variable[64], text[640];
    bool is_bool = option->kind == DK_OPTION_BOOL;
    (void)printf("  --%s%s%s%s\n", option->name, is_bool ? "[=true|false]" : "",
                 option->value_name == NULL ? "" : " ", option->value_name == NULL ? "" : option->value_name);
    size_t length = (size_t)snprintf(text, sizeof text, "%s.", option->help);
    if (option->kind < DK_OPTION_STRING || option->kind == DK_OPTION_NAME ||
        option->kind == DK_OPTION_CHOICE) {
        dk_option_allowed(option, allowed, sizeof allowed);
        length += (size_t)snprintf(text + length, sizeof text - length, " Allowed: %s.", allowed);
    }
    if (option->default_text != NULL)
        length +=
            (size_t)snprintf(text + length, sizeof text - length, " Default: %s.", option->default_text);
    if (option->kind <= DK_OPTION_CONFIG) {
        dk_option_variable(option, variable, sizeof variable);
        (void)snprintf(text + length, sizeof text - length, " [%s]", variable);
    }
    print_wrapped(text);
}

bool dk_config_print_help(void)
{
    (void)fputs(head, stdout);
    for (size_t i = 0; i < dk_option_count; i++)
        print_option(&dk_options[i]);
    (void)putchar('\n');
    (void)fputs(tail, stdout);
    return fflush(stdout) == 0 && !ferror(stdout);
}

bool dk_config_print_version(void)
{
    (void)printf("decomposekd %s\n", DK_VERSION);
    return fflush(stdout) == 0 && !ferror(stdout);
}
