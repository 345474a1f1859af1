/* run_cli.h: run the built command line and keep what it printed. */
#ifndef DK_TESTS_CLIENT_RUN_CLI_H
#define DK_TESTS_CLIENT_RUN_CLI_H

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include "tests/unit/client/check.h"

struct cli_result {
    int exit_code;
    char out[65536], err[65536];
};

static void slurp(int fd, char *out, size_t size)
{
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    size_t length = 0;
    for (ssize_t got; (got = read(fd, out + length, size - 1 - length)) > 0;)
        length += (size_t)got;
    out[length] = 0;
    close(fd);
}

/* `words`: arguments after the program's name, NULL at the end. `stdout_path`: NULL to keep it. Standard
 * input is empty. */
static struct cli_result run_cli_to(const char *stdout_path, char **environment, const char *const *words)
{
    static struct cli_result result;
    char *argv[32] = {(char *)(uintptr_t)DK_CLI_PATH};
    for (int i = 0; words[i]; i++) {
        assert_true(i < 30);
        argv[i + 1] = (char *)(uintptr_t)words[i];
    }
    FILE *out = tmpfile(), *err = tmpfile();
    assert_non_null(out);
    assert_non_null(err);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (stdout_path)
        posix_spawn_file_actions_addopen(&actions, 1, stdout_path, O_WRONLY, 0);
    else
        posix_spawn_file_actions_adddup2(&actions, fileno(out), 1);
    posix_spawn_file_actions_adddup2(&actions, fileno(err), 2);
    pid_t pid;
    assert_int_equal(posix_spawn(&pid, DK_CLI_PATH, &actions, NULL, argv, environment), 0);
    posix_spawn_file_actions_destroy(&actions);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status))
        fail_msg("the program was ended by signal %d", WTERMSIG(status));
    result.exit_code = WEXITSTATUS(status);
    slurp(dup(fileno(out)), result.out, sizeof result.out);
    slurp(dup(fileno(err)), result.err, sizeof result.err);
    fclose(out);
    fclose(err);
    return result;
}

#define RUN(...) run_cli_to(NULL, environ, (const char *const[]){__VA_ARGS__, NULL})

static inline void check_exit(const struct cli_result *result, int exit_code)
{
    if (result->exit_code != exit_code)
        fail_msg("exit code %d, expected %d; it said: %s%s", result->exit_code, exit_code, result->out,
                 result->err);
}

#endif
