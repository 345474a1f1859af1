/* program.c: find a program beside this one. */
#include "client/program.h"

#include <string.h>
#include <sys/types.h>
#include <unistd.h>

const char *dk_program_find(const char *name, char out[DK_PROGRAM_PATH_BYTES])
{
    ssize_t length = readlink("/proc/self/exe", out, DK_PROGRAM_PATH_BYTES - 1);
    if (length <= 0)
        return name;
    out[length] = '\0';
    char *slash = strrchr(out, '/');
    if (!slash || (size_t)(slash + 1 - out) + strlen(name) + 1 > DK_PROGRAM_PATH_BYTES)
        return name;
    memcpy(slash + 1, name, strlen(name) + 1);
    return access(out, X_OK) == 0 ? out : name;
}
