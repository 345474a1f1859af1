/* cmd_tune.c: `decomposek tune`: hands over to decomposek-tune, which links the kernels that a client does
 * not. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/command.h"
#include "client/program.h"

#define TUNER "decomposek-tune"

int dk_cmd_tune(const struct dk_command *self, struct dk_cli *cli, int argc, char **argv)
{
    char path[DK_PROGRAM_PATH_BYTES];
    char **arguments = calloc((size_t)argc + 3, sizeof *arguments);
    if (!arguments) {
        fprintf(stderr, "decomposek %s: out of memory\n", self->name);
        return DK_EXIT_FAILURE;
    }
    int count = 0;
    arguments[count++] = (char *)TUNER; /* exec copies it */
    if (cli->wants_help)
        arguments[count++] = (char *)"--help";
    for (int i = 0; i < argc; i++)
        arguments[count++] = argv[i];
    (void)execvp(dk_program_find(TUNER, path), arguments);
    fprintf(stderr, "decomposek %s: cannot run %s, which comes with the kernels: %s\n", self->name, TUNER,
            strerrordesc_np(errno));
    free(arguments);
    return DK_EXIT_FAILURE;
}
