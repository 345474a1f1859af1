/* listing.c: GET a list and print it. */
#include "client/cli/listing.h"

#include <stdio.h>

#include "client/remote.h"

/* The answer as the server sent it, less its spaces. */
static bool print_json(const cJSON *answer)
{
    char *text = cJSON_PrintUnformatted(answer);
    if (!text)
        return false;
    bool is_good = printf("%s\n", text) >= 0;
    cJSON_free(text);
    return is_good;
}

int dk_cli_list(const struct dk_command *self, struct dk_cli *cli, int argc, char **argv, const char *path,
                bool (*print)(const cJSON *answer))
{
    const struct dk_usage usage = {.arguments = "", .uses_connection = true};
    int count, exit_code;
    if (!dk_cli_begin(self, cli, &usage, argc, argv, &count, &exit_code))
        return exit_code;
    struct dk_http_client *client;
    if ((exit_code = dk_cli_connect(self, cli, &client)) != DK_EXIT_OK)
        return exit_code;
    struct dk_error error;
    cJSON *answer;
    dk_status status = dk_remote_get(client, path, &answer, &error);
    if (status == DK_OK) {
        if (!(cli->is_json ? print_json : print)(answer))
            status = dk_fail(&error, DK_IO_ERROR, "cannot print the answer to GET %s", path);
        cJSON_Delete(answer);
    }
    dk_http_client_free(client);
    return status == DK_OK ? DK_EXIT_OK : dk_cli_fail(self, cli, &error);
}
