/* listing.h: the common course of `models` and `plans`: GET a route, print it as JSON or as text. */
#ifndef DK_CLIENT_CLI_LISTING_H
#define DK_CLIENT_CLI_LISTING_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "client/cli/command.h"

/* `print` writes the text form and returns false when memory ran out or the stream failed. */
int dk_cli_list(const struct dk_command *self, struct dk_cli *cli, int argc, char **argv, const char *path,
                bool (*print)(const cJSON *answer));

#endif
