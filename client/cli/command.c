/* command.c: the frame around subcommands. */
#include "client/cli/command.h"

#include <stdio.h>
#include <string.h>

#include "client/api_key.h"
#include "proto/json_writer.h"
#include "proto/native_api.h"

void dk_cli_connection_options(struct dk_cli *cli, struct dk_option out[DK_CLI_CONNECTION_OPTIONS])
{
    out[0] = (struct dk_option){.name = "url",
                                .kind = DK_OPTION_TEXT,
                                .target = &cli->url,
                                .value_name = "URL",
                                .help = "the daemon (DECOMPOSEK_URL, else http://127.0.0.1:8000)"};
    out[1] = (struct dk_option){.name = "unix-socket",
                                .kind = DK_OPTION_TEXT,
                                .target = &cli->unix_socket,
                                .value_name = "PATH",
                                .help = "connect to this UNIX socket instead of the URL's host"};
    out[2] = (struct dk_option){.name = "timeout",
                                .kind = DK_OPTION_SECONDS,
                                .target = &cli->timeout_s,
                                .value_name = "SECONDS",
                                .help = "of each request (30)"};
    out[3] = (struct dk_option){.name = "api-key-file",
                                .kind = DK_OPTION_TEXT,
                                .target = &cli->api_key_file,
                                .value_name = "PATH",
                                .help = "send the first key of this file (else DECOMPOSEK_API_KEY)"};
}

void dk_cli_output_options(struct dk_cli *cli, struct dk_option out[DK_CLI_OUTPUT_OPTIONS])
{
    out[0] = (struct dk_option){.name = "json",
                                .kind = DK_OPTION_FLAG,
                                .target = &cli->is_json,
                                .help = "print JSON instead of text"};
    out[1] = (struct dk_option){
        .name = "help", .kind = DK_OPTION_FLAG, .target = &cli->wants_help, .help = "print this and exit"};
}

static void print_help(const struct dk_command *self, const struct dk_usage *usage,
                       const struct dk_option_group *groups, size_t group_count)
{
    printf("usage: decomposek %s [OPTION]... %s\n%s.\n\n", self->name, usage->arguments, self->description);
    dk_options_print(groups, group_count, stdout);
    if (usage->details)
        printf("\n%s", usage->details);
}

bool dk_cli_begin(const struct dk_command *self, struct dk_cli *cli, const struct dk_usage *usage, int argc,
                  char **argv, int *out_positional_count, int *exit_code)
{
    struct dk_option connection[DK_CLI_CONNECTION_OPTIONS], output[DK_CLI_OUTPUT_OPTIONS];
    dk_cli_connection_options(cli, connection);
    dk_cli_output_options(cli, output);
    const struct dk_option_group groups[] = {
        {usage->own, usage->own_count},
        {output, DK_CLI_OUTPUT_OPTIONS},
        {connection, usage->uses_connection ? DK_CLI_CONNECTION_OPTIONS : 0}};
    const size_t group_count = sizeof groups / sizeof groups[0];
    struct dk_error error;
    int count;
    if (dk_options_parse(groups, group_count, false, argc, argv, &count, &error) != DK_OK) {
        *exit_code = dk_cli_usage_error(self, error.message);
        return false;
    }
    if (cli->wants_help) {
        print_help(self, usage, groups, group_count);
        *exit_code = DK_EXIT_OK;
        return false;
    }
    if (count > usage->max_positionals)
        dk_fail(&error, DK_BAD_REQUEST, "unexpected argument '%s'", argv[usage->max_positionals]);
    else if (count < usage->min_positionals)
        dk_fail(&error, DK_BAD_REQUEST, "an argument is missing: %s", usage->arguments);
    else {
        *out_positional_count = count;
        return true;
    }
    *exit_code = dk_cli_usage_error(self, error.message);
    return false;
}

int dk_cli_fail(const struct dk_command *self, const struct dk_cli *cli, const struct dk_error *error)
{
    fprintf(stderr, "decomposek %s: %s\n", self->name, error->message);
    if (cli->is_json) {
        struct dk_json_text text = {0};
        dk_error_body(&text, error);
        if (!text.failed)
            printf("%s\n", text.data);
        dk_json_text_free(&text);
    }
    return DK_EXIT_FAILURE;
}

int dk_cli_usage_error(const struct dk_command *self, const char *message)
{
    fprintf(stderr, "decomposek %s: %s\n(see: decomposek %s --help)\n", self->name, message, self->name);
    return DK_EXIT_USAGE;
}

int dk_cli_http_options(const struct dk_command *self, const struct dk_cli *cli, struct dk_cli_key *key,
                        struct dk_http_options *out)
{
    struct dk_error error;
    *out = (struct dk_http_options){.url = cli->url,
                                    .unix_socket = cli->unix_socket,
                                    .api_key = cli->api_key,
                                    .timeout_s = cli->timeout_s};
    if (cli->api_key_file) {
        if (dk_client_api_key_read(cli->api_key_file, key->text, &error) != DK_OK)
            return dk_cli_fail(self, cli, &error);
        out->api_key = key->text;
    } else if (cli->api_key && !dk_client_api_key_is_valid(cli->api_key, strlen(cli->api_key))) {
        return dk_cli_usage_error(
            self, "variable DECOMPOSEK_API_KEY: expected a key of 8 to 256 visible ASCII characters");
    }
    return DK_EXIT_OK;
}

int dk_cli_connect(const struct dk_command *self, const struct dk_cli *cli, struct dk_http_client **out)
{
    struct dk_cli_key key;
    struct dk_http_options options;
    struct dk_error error;
    int exit_code = dk_cli_http_options(self, cli, &key, &options);
    if (exit_code != DK_EXIT_OK)
        return exit_code;
    dk_status status = dk_http_client_new(&options, out, &error);
    explicit_bzero(&key, sizeof key);
    if (status == DK_OK)
        return DK_EXIT_OK;
    return status == DK_BAD_VALUE ? dk_cli_usage_error(self, error.message) : dk_cli_fail(self, cli, &error);
}
