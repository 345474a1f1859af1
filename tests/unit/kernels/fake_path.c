/* fake_path.c: see fake_path.h. */
#include "tests/unit/kernels/fake_path.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

const char *fake_path(const char *file)
{
    static char path[PATH_MAX + 256];
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
    assert_true(length > 0 && length < PATH_MAX);
    path[length] = '\0';
    char *folder_end = strrchr(path, '/');
    assert_non_null(folder_end);
    size_t room = sizeof path - (size_t)(folder_end - path);
    int written = snprintf(folder_end, room, "/../lib/%s", file);
    assert_true(written > 0 && (size_t)written < room);
    return path;
}
