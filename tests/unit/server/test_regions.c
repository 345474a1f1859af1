/* test_regions.c: registration against odd objects, bounds, and release while in use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/regions.h"

enum { OBJECT_BYTES = 4096, COUNT_MAX = 4 };

struct fixture {
    char folder[64];
    struct dk_regions *regions;
};

static void path_of(const struct fixture *f, const char *name, char path[256])
{
    (void)snprintf(path, 256, "%s/%s", f->folder, name);
}

static void make_object(const struct fixture *f, const char *name, size_t bytes, int fill)
{
    char path[256], block[OBJECT_BYTES];
    path_of(f, name, path);
    memset(block, fill, sizeof block);
    int fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    assert_true(fd >= 0 && bytes <= sizeof block);
    assert_int_equal(write(fd, block, bytes), bytes);
    (void)close(fd);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    strcpy(f->folder, "/tmp/dk-regions-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    assert_int_equal(dk_regions_new(f->folder, COUNT_MAX, NULL, &f->regions, NULL), DK_OK);
    make_object(f, "object", OBJECT_BYTES, 'a');
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    dk_regions_free(f->regions);
    DIR *folder = opendir(f->folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[320];
        (void)snprintf(path, sizeof path, "%s/%s", f->folder, entry->d_name);
        (void)remove(path); /* "." and ".." stay */
    }
    (void)closedir(folder);
    assert_int_equal(rmdir(f->folder), 0);
    free(f);
    return 0;
}

static struct dk_oip_system_region wanted_of(const char *object, uint64_t offset, uint64_t byte_size)
{
    struct dk_oip_system_region wanted = {.object = object, .offset = offset, .byte_size = byte_size};
    (void)snprintf(wanted.key, sizeof wanted.key, "/%s", object);
    return wanted;
}

static dk_status add(struct fixture *f, const char *name, const char *object, uint64_t offset,
                     uint64_t byte_size, struct dk_error *error)
{
    struct dk_oip_system_region wanted = wanted_of(object, offset, byte_size);
    return dk_regions_register(f->regions, name, &wanted, error);
}

static size_t count_of(struct fixture *f, const char *name)
{
    struct dk_region_info *list = NULL;
    size_t count = 99;
    assert_int_equal(dk_regions_list(f->regions, name, &list, &count, NULL), DK_OK);
    free(list);
    return count;
}

static int open_fd_count(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    (void)closedir(folder);
    return count;
}

static void test_c46_region_must_lie_inside_its_object(void **state)
{
    struct fixture *f = *state;
    static const struct {
        uint64_t offset, byte_size;
    } bad[] = {{0, OBJECT_BYTES + 1},
               {0, 0},
               {OBJECT_BYTES, 1},
               {1, OBJECT_BYTES},
               {0, UINT64_C(1) << 63},
               {0, UINT64_MAX},
               {UINT64_MAX, 1},
               {UINT64_MAX - OBJECT_BYTES + 2, OBJECT_BYTES},
               {UINT64_C(1) << 63, UINT64_C(1) << 63}};
    int fd_count = open_fd_count();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct dk_error error;
        assert_int_equal(add(f, "r", "object", bad[i].offset, bad[i].byte_size, &error), DK_BAD_VALUE);
        assert_non_null(strstr(error.message, "0 bytes") != NULL ? error.message
                                                                 : strstr(error.message, "/object"));
    }
    assert_int_equal(count_of(f, NULL), 0);
    assert_int_equal(open_fd_count(), fd_count);
    assert_int_equal(add(f, "r", "object", 0, OBJECT_BYTES, NULL), DK_OK);
    assert_int_equal(add(f, "s", "object", OBJECT_BYTES - 1, 1, NULL), DK_OK);
    assert_int_equal(count_of(f, NULL), 2);
}

static void test_c46_only_plain_files_are_taken(void **state)
{
    struct fixture *f = *state;
    char path[256];
    path_of(f, "folder", path);
    assert_int_equal(mkdir(path, 0700), 0);
    path_of(f, "fifo", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    path_of(f, "link", path);
    assert_int_equal(symlink("object", path), 0);
    path_of(f, "passwd", path);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    static const char *const objects[] = {"folder", "fifo", "link", "passwd", "missing"};
    int fd_count = open_fd_count();
    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
        struct dk_error error;
        assert_int_equal(add(f, "r", objects[i], 0, 1, &error), DK_BAD_VALUE);
        assert_non_null(strstr(error.message, objects[i]));
        assert_null(strstr(error.message, f->folder)); /* where it lies is nobody's business */
    }
    assert_int_equal(count_of(f, NULL), 0);
    assert_int_equal(open_fd_count(), fd_count);
}

static void test_a_name_is_taken_once(void **state)
{
    struct fixture *f = *state;
    struct dk_error error;
    assert_int_equal(add(f, "r", "object", 0, 16, NULL), DK_OK);
    assert_int_equal(add(f, "r", "object", 0, 16, &error), DK_BAD_VALUE);
    assert_non_null(strstr(error.message, "\"r\""));
    dk_regions_unregister(f->regions, "r");
    dk_regions_unregister(f->regions, "r"); /* unknown: fine */
    assert_int_equal(add(f, "r", "object", 0, 16, NULL), DK_OK);
}

static void test_number_of_regions_is_bounded(void **state)
{
    struct fixture *f = *state;
    char name[16];
    int fd_count = open_fd_count();
    for (int i = 0; i < COUNT_MAX; i++) {
        (void)snprintf(name, sizeof name, "r%d", i);
        assert_int_equal(add(f, name, "object", 0, 16, NULL), DK_OK);
    }
    assert_int_equal(add(f, "one-more", "object", 0, 16, NULL), DK_BUSY);
    assert_int_equal(open_fd_count(), fd_count + COUNT_MAX);
    dk_regions_unregister_all(f->regions);
    assert_int_equal(count_of(f, NULL), 0);
    assert_int_equal(open_fd_count(), fd_count);
    assert_int_equal(add(f, "one-more", "object", 0, 16, NULL), DK_OK);
}

static void test_list_is_in_order_of_name(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(add(f, "b", "object", 1, 16, NULL), DK_OK);
    assert_int_equal(add(f, "c", "object", 2, 16, NULL), DK_OK);
    assert_int_equal(add(f, "a", "object", 3, 16, NULL), DK_OK);
    struct dk_region_info *list = NULL;
    size_t count = 0;
    assert_int_equal(dk_regions_list(f->regions, NULL, &list, &count, NULL), DK_OK);
    assert_int_equal(count, 3);
    assert_string_equal(list[0].name, "a");
    assert_int_equal(list[0].offset, 3);
    assert_string_equal(list[2].name, "c");
    assert_string_equal(list[2].key, "/object");
    assert_int_equal(list[2].byte_size, 16);
    free(list);
    assert_int_equal(count_of(f, "b"), 1);
    assert_int_equal(count_of(f, "bb"), 0);
}

static void test_offset_of_the_region_is_added_once(void **state)
{
    struct fixture *f = *state;
    struct dk_region *region = NULL;
    char path[256], bytes[4] = "";
    assert_int_equal(add(f, "r", "object", 100, 1000, NULL), DK_OK);
    assert_int_equal(dk_regions_acquire(f->regions, "r", 10, 4, &region, NULL), DK_OK);
    assert_int_equal(dk_region_write(region, 10, "wxyz", 4, NULL), DK_OK);
    path_of(f, "object", path);
    int fd = open(path, O_RDONLY);
    assert_int_equal(pread(fd, bytes, 4, 110), 4);
    (void)close(fd);
    assert_memory_equal(bytes, "wxyz", 4);
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(dk_region_read(region, 10, bytes, 4, NULL), DK_OK);
    assert_memory_equal(bytes, "wxyz", 4);
    dk_region_release(f->regions, region);
}

static void test_acquire_beyond_the_region_is_refused(void **state)
{
    struct fixture *f = *state;
    static const struct {
        uint64_t offset, byte_size;
    } bad[] = {{0, 1001},       {1, 1000},           {1001, 0},
               {UINT64_MAX, 1}, {1, UINT64_MAX},     {UINT64_MAX, UINT64_MAX},
               {1000, 1},       {UINT64_MAX - 9, 10}};
    struct dk_region *region = NULL;
    assert_int_equal(add(f, "r", "object", 0, 1000, NULL), DK_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(dk_regions_acquire(f->regions, "r", bad[i].offset, bad[i].byte_size, &region, NULL),
                         DK_BAD_VALUE);
        assert_null(region);
    }
    assert_int_equal(dk_regions_acquire(f->regions, "s", 0, 1, &region, NULL), DK_BAD_VALUE);
    assert_int_equal(dk_regions_acquire(f->regions, "r", 1000, 0, &region, NULL), DK_OK);
    dk_region_release(f->regions, region);
}

static void test_c49_region_in_use_outlives_its_name(void **state)
{
    struct fixture *f = *state;
    struct dk_region *region = NULL;
    char bytes[4] = "";
    make_object(f, "other", OBJECT_BYTES, 'b');
    int fd_count = open_fd_count();
    assert_int_equal(add(f, "r", "object", 0, 16, NULL), DK_OK);
    assert_int_equal(dk_regions_acquire(f->regions, "r", 0, 4, &region, NULL), DK_OK);
    dk_regions_unregister(f->regions, "r");
    assert_int_equal(count_of(f, NULL), 0);
    assert_int_equal(add(f, "r", "other", 0, 16, NULL), DK_OK); /* the name is free at once */
    assert_int_equal(dk_region_read(region, 0, bytes, 4, NULL), DK_OK);
    assert_memory_equal(bytes, "aaaa", 4); /* still the old object */
    assert_int_equal(open_fd_count(), fd_count + 2);
    dk_region_release(f->regions, region);
    assert_int_equal(open_fd_count(), fd_count + 1);
    dk_regions_unregister_all(f->regions);
    assert_int_equal(open_fd_count(), fd_count);
}

static void test_c46_object_made_shorter_later_is_an_error_not_a_signal(void **state)
{
    struct fixture *f = *state;
    struct dk_region *region = NULL;
    struct dk_error error;
    char path[256], bytes[64];
    assert_int_equal(add(f, "r", "object", 0, OBJECT_BYTES, NULL), DK_OK);
    assert_int_equal(dk_regions_acquire(f->regions, "r", 0, OBJECT_BYTES, &region, NULL), DK_OK);
    path_of(f, "object", path);
    assert_int_equal(truncate(path, 32), 0);
    assert_int_equal(dk_region_read(region, 0, bytes, 64, &error), DK_BAD_VALUE);
    assert_non_null(strstr(error.message, "shorter"));
    assert_int_equal(dk_region_write(region, 0, bytes, 64, &error), DK_BAD_VALUE);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_size, 32); /* and it has not been made longer again */
    assert_int_equal(dk_region_read(region, 0, bytes, 32, NULL), DK_OK);
    dk_region_release(f->regions, region);
}

struct racer {
    struct fixture *fixture;
    int index, done_count;
};

/* Registers, uses and unregisters one of two names that all threads fight for. */
static void *race(void *context)
{
    struct racer *racer = context;
    struct fixture *f = racer->fixture;
    for (int i = 0; i < 2000; i++) {
        const char *name = (i + racer->index) % 2 == 0 ? "r" : "s";
        struct dk_region *region = NULL;
        char bytes[8];
        (void)add(f, name, "object", 0, 64, NULL);
        if (dk_regions_acquire(f->regions, name, 8, 8, &region, NULL) == DK_OK) {
            racer->done_count += dk_region_read(region, 8, bytes, 8, NULL) == DK_OK && bytes[0] == 'a';
            dk_region_release(f->regions, region);
        } else {
            racer->done_count++;
        }
        if (i % 3 == 0) {
            dk_regions_unregister_all(f->regions);
        } else {
            dk_regions_unregister(f->regions, name);
        }
    }
    return NULL;
}

static void test_c49_unregister_races_with_use(void **state)
{
    struct fixture *f = *state;
    enum { RACERS = 4 };
    struct racer racers[RACERS];
    pthread_t threads[RACERS];
    int fd_count = open_fd_count();
    for (int i = 0; i < RACERS; i++) {
        racers[i] = (struct racer){.fixture = f, .index = i};
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < RACERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(racers[i].done_count, 2000);
    }
    dk_regions_unregister_all(f->regions);
    assert_int_equal(open_fd_count(), fd_count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(test_c46_region_must_lie_inside_its_object),
        TEST(test_c46_only_plain_files_are_taken),
        TEST(test_a_name_is_taken_once),
        TEST(test_number_of_regions_is_bounded),
        TEST(test_list_is_in_order_of_name),
        TEST(test_offset_of_the_region_is_added_once),
        TEST(test_acquire_beyond_the_region_is_refused),
        TEST(test_c49_region_in_use_outlives_its_name),
        TEST(test_c46_object_made_shorter_later_is_an_error_not_a_signal),
        TEST(test_c49_unregister_races_with_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
