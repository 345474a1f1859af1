/* check.h: cmocka with the headers it needs, temporary folders, and assertions on texts. */
#ifndef DK_TESTS_CLIENT_CHECK_H
#define DK_TESTS_CLIENT_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* The message is part of the contract: it must name the offending value. */
static inline void check_contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("expected '%s' in: %s", part, text);
}

/* A fresh folder; the caller's `out` has room for 64 bytes. */
static inline void make_temporary_folder(char out[64])
{
    strcpy(out, "/tmp/dk-client-XXXXXX");
    assert_non_null(mkdtemp(out));
}

static inline void remove_folder(const char *folder)
{
    char command[256];
    assert_true(strncmp(folder, "/tmp/dk-client-", 15) == 0);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

static inline void write_bytes(const char *path, const void *bytes, size_t length)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

#endif
