/* program.h: the programs that come with this one. */
#ifndef DK_CLIENT_PROGRAM_H
#define DK_CLIENT_PROGRAM_H

enum { DK_PROGRAM_PATH_BYTES = 4096 };

/* What to give execvp or posix_spawnp for program `name`: the path of one in this program's own folder, made
 * in `out`, else `name` itself, to be looked for in PATH. */
const char *dk_program_find(const char *name, char out[DK_PROGRAM_PATH_BYTES]);

#endif
