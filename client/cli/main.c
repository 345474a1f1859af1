/* main.c: `decomposek`, the command-line client: the subcommand table, dispatch and help. */
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/command.h"

/* The locale is never set: numbers are read and written with a point everywhere. */

static const struct dk_command commands[] = {
    {"infer", dk_cmd_infer, "Multiply rows by a model's weights and show the answer"},
    {"bench", dk_cmd_bench, "Measure latency and throughput: of a daemon, or of the kernels alone"},
    {"top", dk_cmd_top, "Watch rates and times by shape"},
    {"models", dk_cmd_models, "List the models the daemon serves"},
    {"plans", dk_cmd_plans, "List the daemon's engine and its plan for each bucket"},
    {"tune", dk_cmd_tune, "Measure plans on this machine and write the plan cache (no daemon needed)"},
    {"check", dk_cmd_check, "Validate safetensors files and list their tensors"},
    {"demo-checkpoint", dk_cmd_demo_checkpoint,
     "Write a seeded checkpoint folder with DeepSeek-V3 router shapes"},
};
enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static const char *next_command_name(const void *context, size_t index)
{
    (void)context;
    return index < COMMAND_COUNT ? commands[index].name : index == COMMAND_COUNT ? "help" : NULL;
}

static const struct dk_command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    const char *nearest = dk_suggest(name, next_command_name, NULL);
    fprintf(stderr, "decomposek: unknown command '%s'", name);
    if (nearest)
        fprintf(stderr, "; did you mean '%s'?\n", nearest);
    else
        fprintf(stderr, "\n(see: decomposek help)\n");
    return NULL;
}

static void print_help(FILE *stream, const struct dk_option_group *groups, size_t group_count)
{
    fprintf(stream,
            "usage: decomposek [OPTION]... COMMAND [ARGUMENT]...\nThe client of decomposekd.\n\ncommands:\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(stream, "  %-18s %s\n", commands[i].name, commands[i].description);
    fprintf(stream, "  %-18s %s\n\ncommon options:\n", "help [COMMAND]",
            "Show this, or the help of one command");
    dk_options_print(groups, group_count, stream);
    fprintf(stream, "\nExit codes: 0 ok, 1 runtime failure or an error from the server, 2 usage.\n");
}

static int dispatch(struct dk_cli *cli, int argc, char **argv)
{
    struct dk_option connection[DK_CLI_CONNECTION_OPTIONS], output[DK_CLI_OUTPUT_OPTIONS];
    bool wants_version = false;
    const struct dk_option version[] = {{.name = "version",
                                         .kind = DK_OPTION_FLAG,
                                         .target = &wants_version,
                                         .help = "print the version and exit"}};
    dk_cli_connection_options(cli, connection);
    dk_cli_output_options(cli, output);
    const struct dk_option_group groups[] = {
        {connection, DK_CLI_CONNECTION_OPTIONS}, {output, DK_CLI_OUTPUT_OPTIONS}, {version, 1}};
    const size_t group_count = sizeof groups / sizeof groups[0];
    struct dk_error error;
    if (dk_options_parse(groups, group_count, true, argc - 1, argv + 1, &argc, &error) != DK_OK) {
        fprintf(stderr, "decomposek: %s\n(see: decomposek help)\n", error.message);
        return DK_EXIT_USAGE;
    }
    argv++;
    if (wants_version) {
        printf("decomposek %s\n", DK_VERSION);
        return DK_EXIT_OK;
    }
    bool is_help = argc > 0 && strcmp(argv[0], "help") == 0;
    if (is_help) {
        cli->wants_help = true;
        argc--;
        argv++;
    }
    if (argc == 0) {
        print_help(cli->wants_help ? stdout : stderr, groups, group_count);
        return cli->wants_help ? DK_EXIT_OK : DK_EXIT_USAGE;
    }
    const struct dk_command *command = find_command(argv[0]);
    return command ? command->run(command, cli, argc - 1, argv + 1) : DK_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    const char *url = getenv("DECOMPOSEK_URL");
    const char *key = getenv("DECOMPOSEK_API_KEY");
    struct dk_cli cli = {.url = url && *url ? url : "http://127.0.0.1:8000",
                         .api_key = key && *key ? key : NULL,
                         .timeout_s = 30.0};
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        fprintf(stderr, "decomposek: cannot start the HTTP library\n");
        return DK_EXIT_FAILURE;
    }
    int exit_code = dispatch(&cli, argc, argv);
    curl_global_cleanup();
    /* A full disk or a closed pipe shows up here at the latest: an answer that was lost is no success. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "decomposek: cannot write to standard output\n");
        return exit_code == DK_EXIT_OK ? DK_EXIT_FAILURE : exit_code;
    }
    return exit_code;
}
