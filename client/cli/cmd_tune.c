/* cmd_tune.c: `decomposek tune`: hands over to decomposek-tune, which links the kernels that a client does
 * not. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/command.h"

#define TUNER "decomposek-tune"

/* The tuner beside this program. */
static bool find_beside(char *out, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", out, size - 1);
    if (length <= 0)
        return false;
    out[length] = '\0';
    char *slash = strrchr(out, '/');
    if (!slash || (size_t)(slash - out) + sizeof "/" TUNER > size)
        return false;
    memcpy(slash, "/" TUNER, sizeof "/" TUNER);
    return access(out, X_OK) == 0;
}

int dk_cmd_tune(const struct dk_command *self, struct dk_cli *cli, int argc, char **argv)
{
    char path[PATH_MAX];
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
    if (find_beside(path, sizeof path))
        (void)execv(path, arguments);
    else
        (void)execvp(TUNER, arguments);
    fprintf(stderr, "decomposek %s: cannot run %s, which comes with the kernels: %s\n", self->name, TUNER,
            strerrordesc_np(errno));
    free(arguments);
    return DK_EXIT_FAILURE;
}
