/* test_client_file.c: files appear complete or not at all, and devices are never replaced. */
#include "tests/unit/client/check.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "client/file.h"

static char folder[64];

static int set_up(void **state)
{
    (void)state;
    make_temporary_folder(folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remove_folder(folder);
    return 0;
}

static const char *in_folder(const char *name)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void check_content(const char *path, const char *expected)
{
    void *bytes;
    size_t length;
    assert_int_equal(dk_file_read(path, 1 << 20, &bytes, &length, NULL), DK_OK);
    assert_int_equal(length, strlen(expected));
    assert_memory_equal(bytes, expected, length);
    free(bytes);
}

static void test_committed_file_replaces_and_aborted_leaves_nothing(void **state)
{
    (void)state;
    struct dk_file_writer writer;
    write_bytes(in_folder("a"), "old", 3);
    assert_int_equal(dk_file_writer_open(in_folder("a"), &writer, NULL), DK_OK);
    assert_int_equal(dk_file_writer_append(&writer, "new!", 4, NULL), DK_OK);
    check_content(in_folder("a"), "old");
    dk_file_writer_abort(&writer);
    check_content(in_folder("a"), "old");
    assert_int_equal(dk_file_write(in_folder("a"), "ne", 2, "w!", 2, NULL), DK_OK);
    check_content(in_folder("a"), "new!");
    assert_int_equal(unlink(in_folder("a")), 0);
    bool is_empty = false; /* no temporary file is left */
    assert_int_equal(dk_folder_is_empty(folder, &is_empty, NULL), DK_OK);
    assert_true(is_empty);
}

static void test_symbolic_link_is_written_through(void **state)
{
    (void)state;
    write_bytes(in_folder("target"), "old", 3);
    assert_int_equal(symlink("target", in_folder("link")), 0);
    assert_int_equal(dk_file_write(in_folder("link"), "new", 3, NULL, 0, NULL), DK_OK);
    struct stat info;
    assert_int_equal(lstat(in_folder("link"), &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    check_content(in_folder("target"), "new");
}

static void test_device_is_written_not_replaced(void **state)
{
    (void)state;
    assert_int_equal(dk_file_write("/dev/null", "x", 1, NULL, 0, NULL), DK_OK);
    struct stat info;
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    struct dk_error error;
    assert_int_equal(dk_file_write("/dev/full", "x", 1, NULL, 0, &error), DK_IO_ERROR);
    check_contains(error.message, "/dev/full");
}

static void test_unwritable_place_is_named(void **state)
{
    (void)state;
    struct dk_error error;
    assert_int_equal(dk_file_write(in_folder("no/such/file"), "x", 1, NULL, 0, &error), DK_IO_ERROR);
    check_contains(error.message, "no/such/file");
    assert_int_equal(dk_file_write(folder, "x", 1, NULL, 0, &error), DK_IO_ERROR);
    check_contains(error.message, folder);
}

static void test_read_keeps_to_its_limit(void **state)
{
    (void)state;
    void *bytes;
    size_t length;
    write_bytes(in_folder("five"), "12345", 5);
    assert_int_equal(dk_file_read(in_folder("five"), 5, &bytes, &length, NULL), DK_OK);
    assert_int_equal(length, 5);
    free(bytes);
    struct dk_error error;
    assert_int_equal(dk_file_read(in_folder("five"), 4, &bytes, &length, &error), DK_TOO_LARGE);
    check_contains(error.message, "4 bytes");
    assert_int_equal(dk_file_read("/dev/zero", 100000, &bytes, &length, &error), DK_TOO_LARGE);
    assert_int_equal(dk_file_read(in_folder("absent"), 4, &bytes, &length, &error), DK_IO_ERROR);
    check_contains(error.message, "absent");
}

static void test_only_regular_files_open_for_inspection(void **state)
{
    (void)state;
    int fd;
    uint64_t size;
    struct dk_error error;
    assert_int_equal(mkfifo(in_folder("fifo"), 0600), 0);
    assert_int_equal(dk_file_open_regular(in_folder("fifo"), &fd, &size, &error), DK_BAD_FILE);
    assert_int_equal(dk_file_open_regular(folder, &fd, &size, &error), DK_BAD_FILE);
    assert_int_equal(dk_file_open_regular("/dev/zero", &fd, &size, &error), DK_BAD_FILE);
    check_contains(error.message, "not a regular file");
}

static void test_file_that_shrinks_gives_an_error(void **state)
{
    (void)state;
    write_bytes(in_folder("f"), "12345678", 8);
    int fd;
    uint64_t size;
    assert_int_equal(dk_file_open_regular(in_folder("f"), &fd, &size, NULL), DK_OK);
    assert_int_equal(truncate(in_folder("f"), 4), 0);
    char bytes[8];
    struct dk_error error;
    assert_int_equal(dk_file_pread(fd, "f", bytes, 8, 0, &error), DK_BAD_FILE);
    check_contains(error.message, "shorter");
    close(fd);
}

static void test_folders_are_made_with_their_parents(void **state)
{
    (void)state;
    assert_int_equal(dk_folder_make(in_folder("a/b/c"), NULL), DK_OK);
    assert_int_equal(dk_folder_make(in_folder("a/b/c/"), NULL), DK_OK);
    bool is_empty = false;
    assert_int_equal(dk_folder_is_empty(in_folder("a/b/c"), &is_empty, NULL), DK_OK);
    assert_true(is_empty);
    assert_int_equal(dk_folder_is_empty(in_folder("a"), &is_empty, NULL), DK_OK);
    assert_false(is_empty);
    write_bytes(in_folder("plain"), "", 0);
    struct dk_error error;
    assert_int_equal(dk_folder_make(in_folder("plain/x"), &error), DK_IO_ERROR);
    check_contains(error.message, "plain");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_committed_file_replaces_and_aborted_leaves_nothing, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_symbolic_link_is_written_through, set_up, tear_down),
        cmocka_unit_test(test_device_is_written_not_replaced),
        cmocka_unit_test_setup_teardown(test_unwritable_place_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_read_keeps_to_its_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_only_regular_files_open_for_inspection, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_file_that_shrinks_gives_an_error, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_folders_are_made_with_their_parents, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
