/* command.h: what every subcommand of `decomposek` shares: its table row, exit codes, common options, errors.
 */
#ifndef DK_CLIENT_CLI_COMMAND_H
#define DK_CLIENT_CLI_COMMAND_H

#include <stdbool.h>

#include "client/api_key.h"
#include "client/cli/options.h"
#include "client/http_client.h"
#include "proto/status.h"

enum dk_exit { DK_EXIT_OK = 0, DK_EXIT_FAILURE = 1, DK_EXIT_USAGE = 2 };

/* Values of the common options; they may stand before or after the subcommand. */
struct dk_cli {
    const char *url, *unix_socket, *api_key_file;
    const char *api_key; /* of the environment, used unless a file is named; NULL: none */
    double timeout_s;
    bool is_json, wants_help;
};

struct dk_command {
    const char *name;
    int (*run)(const struct dk_command *self, struct dk_cli *cli, int argc,
               char **argv); /* returns dk_exit */
    const char *description; /* one line */
};

int dk_cmd_bench(const struct dk_command *self, struct dk_cli *cli, int argc, char **argv);
int dk_cmd_infer(const struct dk_command *self, struct dk_cli *cli, int argc, char **argv);
int dk_cmd_models(const struct dk_command *self, struct dk_cli *cli, int argc, char **argv);
int dk_cmd_plans(const struct dk_command *self, struct dk_cli *cli, int argc, char **argv);
int dk_cmd_top(const struct dk_command *self, struct dk_cli *cli, int argc, char **argv);
int dk_cmd_tune(const struct dk_command *self, struct dk_cli *cli, int argc, char **argv);
int dk_cmd_check(const struct dk_command *self, struct dk_cli *cli, int argc, char **argv);
int dk_cmd_demo_checkpoint(const struct dk_command *self, struct dk_cli *cli, int argc, char **argv);

/* Rows for the common options, bound to `cli`. Fills `out`; sizes are fixed. */
enum { DK_CLI_CONNECTION_OPTIONS = 4, DK_CLI_OUTPUT_OPTIONS = 2 };
void dk_cli_connection_options(struct dk_cli *cli, struct dk_option out[DK_CLI_CONNECTION_OPTIONS]);
void dk_cli_output_options(struct dk_cli *cli, struct dk_option out[DK_CLI_OUTPUT_OPTIONS]);

/* The frame of a subcommand's command line: parse `own` and the common options, answer --help.
 * Returns true when the command should go on; else *exit_code says how it ends. */
struct dk_usage {
    const char *arguments; /* "[FILE]..." */
    const char *details;   /* paragraphs after the options; may be NULL */
    const struct dk_option *own;
    size_t own_count;
    bool uses_connection;
    int min_positionals, max_positionals;
};
bool dk_cli_begin(const struct dk_command *self, struct dk_cli *cli, const struct dk_usage *usage, int argc,
                  char **argv, int *out_positional_count, int *exit_code);

/* Print "decomposek <command>: <message>" to standard error and, with --json, the error object to standard
 * output. Return DK_EXIT_FAILURE and DK_EXIT_USAGE. */
int dk_cli_fail(const struct dk_command *self, const struct dk_cli *cli, const struct dk_error *error);
int dk_cli_usage_error(const struct dk_command *self, const char *message);

/* What the common options say of the connection; `out` points into `cli` and `key`, which the caller clears
 * when it is done with both. DK_EXIT_OK, or the exit code after printing what is wrong with the key. */
struct dk_cli_key {
    char text[DK_CLIENT_API_KEY_BYTES + 1];
};
int dk_cli_http_options(const struct dk_command *self, const struct dk_cli *cli, struct dk_cli_key *key,
                        struct dk_http_options *out);
/* The client of the common options. DK_EXIT_OK, or the exit code after printing why not: a URL that is none
 * is a usage error; nothing is sent yet. */
int dk_cli_connect(const struct dk_command *self, const struct dk_cli *cli, struct dk_http_client **out);

#endif
