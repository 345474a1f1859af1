/* test_weights_file.c: what is opened, what is refused, and files that change while they are read. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/weights_file.h"
#include "tests/unit/server/weights_writer.h"

static char folder[64], path[108];
static struct dk_error error;

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/dk_weights_XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/w.safetensors", folder);
    memset(&error, 0, sizeof error);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void refuse(dk_status wanted, const char *text)
{
    struct dk_weights_file *file = NULL;
    memset(&error, 0, sizeof error);
    assert_int_equal(dk_weights_file_open(path, &file, &error), wanted);
    assert_null(file);
    assert_int_equal(strncmp(error.message, path, strlen(path)), 0);
    if (strstr(error.message, text) == NULL)
        fail_msg("'%s' is not in '%s'", text, error.message);
}

static const float pattern[6] = {1, 2, 3, 4, 5, 6};

static void write_two(void)
{
    const struct test_tensor tensors[] = {{"b", "F32", "[2]", pattern + 4, 8},
                                          {"a", "F32", "[2,2]", pattern, 16}};
    write_weights(path, tensors, 2);
}

static void test_tensors_are_found_and_read(void **state)
{
    (void)state;
    struct dk_weights_file *file = NULL;
    float got[4] = {0};
    write_two();
    assert_int_equal(dk_weights_file_open(path, &file, &error), DK_OK);
    const struct dk_st_tensor *a = dk_st_index_find(dk_weights_file_index(file), "a");
    assert_non_null(a);
    assert_int_equal(dk_weights_file_read(file, a, got, &error), DK_OK);
    assert_memory_equal(got, pattern, 16);
    const struct dk_st_tensor *b = dk_st_index_find(dk_weights_file_index(file), "b");
    assert_int_equal(dk_weights_file_read(file, b, got, &error), DK_OK);
    assert_memory_equal(got, pattern + 4, 8);
    dk_weights_file_close(file);
    dk_weights_file_close(NULL);
}

static void test_what_is_no_regular_file_is_named(void **state)
{
    (void)state;
    refuse(DK_IO_ERROR, "No such file");
    assert_int_equal(mkdir(path, 0700), 0);
    refuse(DK_BAD_FILE, "is a directory, expected a regular file");
    rmdir(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    refuse(DK_BAD_FILE, "is a FIFO"); /* and does not wait for a writer */
    unlink(path);
    assert_int_equal(symlink("/dev/null", path), 0);
    refuse(DK_BAD_FILE, "is a character device");
    unlink(path);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    refuse(DK_IO_ERROR, "cannot open");
    close(fd);
}

static void test_a_symlink_to_a_file_is_followed(void **state)
{
    (void)state;
    struct dk_weights_file *file = NULL;
    char target[128];
    write_two();
    snprintf(target, sizeof target, "%s/target", folder);
    assert_int_equal(rename(path, target), 0);
    assert_int_equal(symlink("target", path), 0);
    assert_int_equal(dk_weights_file_open(path, &file, &error), DK_OK);
    dk_weights_file_close(file);
    unlink(target);
}

static void write_bytes(const void *bytes, size_t length)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, length), length);
    close(fd);
}

static void test_c56_tiny_files_and_lying_length_words(void **state)
{
    (void)state;
    const struct {
        const char *bytes;
        size_t length;
    } bad[] = {{"", 0},
               {"\2\0\0\0\0\0\0", 7},
               {"\0\0\0\0\0\0\0\0", 8},
               {"\2\0\0\0\0\0\0\0", 8},
               {"\3\0\0\0\0\0\0\0{}", 10},
               {"\0\0\0\0\0\0\0\200{}", 10},
               {"\377\377\377\377\377\377\377\377{}", 10},
               {"\1\341\365\5\0\0\0\0{}", 10}, /* 100,000,001 */
               {"\2\0\0\0\0\0\0\0[]", 10}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_bytes(bad[i].bytes, bad[i].length);
        refuse(DK_BAD_FILE, ":");
    }
    write_bytes("\2\0\0\0\0\0\0\0{}", 10);
    struct dk_weights_file *file = NULL;
    assert_int_equal(dk_weights_file_open(path, &file, &error), DK_OK); /* empty, but right */
    assert_int_equal(dk_weights_file_index(file)->tensor_count, 0);
    dk_weights_file_close(file);
}

static void test_c56_a_huge_length_word_allocates_nothing(void **state)
{
    (void)state;
    struct rusage before, after;
    write_bytes("\0\0\0\0\1\0\0\0{}", 10); /* 4 GiB */
    assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
    refuse(DK_BAD_FILE, "4294967296");
    assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
    assert_true(after.ru_maxrss - before.ru_maxrss < 16 * 1024);
}

static void test_c56_offsets_past_the_end_are_refused_with_the_tensor(void **state)
{
    (void)state;
    write_raw_weights(path, "{\"gate\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}", pattern,
                      12);
    refuse(DK_BAD_FILE, "gate");
    write_raw_weights(path, "{\"gate\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,16]}}", pattern,
                      16);
    refuse(DK_BAD_FILE, "gate");
    write_raw_weights(path, "{\"gate\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[16,0]}}", pattern,
                      16);
    refuse(DK_BAD_FILE, "gate");
}

static void test_truncation_after_the_open_is_an_error_and_no_signal(void **state)
{
    (void)state;
    struct dk_weights_file *file = NULL;
    float got[4];
    write_two();
    assert_int_equal(dk_weights_file_open(path, &file, &error), DK_OK);
    const struct dk_st_tensor *a = dk_st_index_find(dk_weights_file_index(file), "a");
    assert_int_equal(truncate(path, (off_t)a->file_offset + 4), 0);
    assert_int_equal(dk_weights_file_read(file, a, got, &error), DK_BAD_FILE);
    assert_non_null(strstr(error.message, "tensor 'a': expected 16 bytes, found 4"));
    dk_weights_file_close(file);
}

static void test_writing_after_the_open_is_noticed(void **state)
{
    (void)state;
    struct dk_weights_file *file = NULL;
    float got[4];
    write_two();
    assert_int_equal(dk_weights_file_open(path, &file, &error), DK_OK);
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    const struct dk_st_tensor *a = dk_st_index_find(dk_weights_file_index(file), "a");
    assert_int_equal(dk_weights_file_read(file, a, got, &error), DK_BAD_FILE);
    assert_non_null(strstr(error.message, "written while loading"));
    dk_weights_file_close(file);
}

static void test_replacing_by_rename_after_the_open_keeps_the_old_content(void **state)
{
    (void)state;
    struct dk_weights_file *file = NULL;
    float got[4];
    write_two();
    assert_int_equal(dk_weights_file_open(path, &file, &error), DK_OK);
    write_raw_weights(path, "{}", "", 0);
    const struct dk_st_tensor *a = dk_st_index_find(dk_weights_file_index(file), "a");
    assert_int_equal(dk_weights_file_read(file, a, got, &error), DK_OK);
    assert_memory_equal(got, pattern, 16);
    dk_weights_file_close(file);
}

static void test_c44_without_descriptors_the_open_fails_cleanly(void **state)
{
    (void)state;
    struct rlimit before, none;
    write_two();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    struct dk_weights_file *file = NULL;
    dk_status status = dk_weights_file_open(path, &file, &error);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, DK_IO_ERROR);
    assert_non_null(strstr(error.message, "Too many open files"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_tensors_are_found_and_read),
        TEST(test_what_is_no_regular_file_is_named),
        TEST(test_a_symlink_to_a_file_is_followed),
        TEST(test_c56_tiny_files_and_lying_length_words),
        TEST(test_c56_a_huge_length_word_allocates_nothing),
        TEST(test_c56_offsets_past_the_end_are_refused_with_the_tensor),
        TEST(test_truncation_after_the_open_is_an_error_and_no_signal),
        TEST(test_writing_after_the_open_is_noticed),
        TEST(test_replacing_by_rename_after_the_open_keeps_the_old_content),
        TEST(test_c44_without_descriptors_the_open_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
