/* test_plan_cache.c: what is saved comes back; whatever else the file may be is a miss with one warning. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/plan_cache.h"

static char folder[] = "/tmp/dk_test_plan_cache_XXXXXX";
static char path[64];
static const struct dk_plan_stamp stamp = {"NVIDIA H200", "sm_90", "13.0", "13.0", "0.1.0"};

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    (void)snprintf(path, sizeof path, "%s/plans", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static int remove_file(void **state)
{
    (void)state;
    (void)unlink(path);
    (void)rmdir(path);
    return 0;
}

static struct dk_plan_cache *new_cache(void)
{
    struct dk_plan_cache *cache = NULL;
    assert_int_equal(dk_plan_cache_new(&stamp, &cache, NULL), DK_OK);
    return cache;
}

static struct dk_plan_key make_key(uint32_t i)
{
    return (struct dk_plan_key){.n = 256 + i,
                                .k = 7168,
                                .a_dtype = DK_BF16,
                                .b_dtype = DK_BF16,
                                .c_dtype = DK_FP32,
                                .layout = DK_LAYOUT_NK,
                                .epilogue = DK_EPILOGUE_NONE,
                                .bucket_rows = 16};
}

static struct dk_plan_choice make_choice(uint64_t time_ns)
{
    return (struct dk_plan_choice){.variant = "cluster_16x16",
                                   .split_k = 16,
                                   .chunk_k = 448,
                                   .tile_m = 16,
                                   .tile_n = 16,
                                   .is_dependent = true,
                                   .time_ns = time_ns};
}

static void expect_choice(const struct dk_plan_cache *cache, uint32_t i, uint64_t time_ns)
{
    struct dk_plan_choice found, wanted = make_choice(time_ns);
    struct dk_plan_key key = make_key(i);
    assert_true(dk_plan_cache_find(cache, &key, &found));
    assert_string_equal(found.variant, wanted.variant);
    assert_int_equal(found.split_k, wanted.split_k);
    assert_int_equal(found.chunk_k, wanted.chunk_k);
    assert_int_equal(found.tile_m, wanted.tile_m);
    assert_int_equal(found.tile_n, wanted.tile_n);
    assert_int_equal(found.is_dependent, wanted.is_dependent);
    assert_int_equal(found.time_ns, wanted.time_ns);
}

static void put(struct dk_plan_cache *cache, uint32_t i, uint64_t time_ns)
{
    struct dk_plan_key key = make_key(i);
    struct dk_plan_choice choice = make_choice(time_ns);
    dk_plan_cache_put(cache, &key, &choice);
}

static void save(uint32_t count)
{
    struct dk_plan_cache *cache = new_cache();
    struct dk_error error;
    for (uint32_t i = 0; i < count; i++)
        put(cache, i, 100 + i);
    if (dk_plan_cache_save(cache, path, &error) != DK_OK)
        fail_msg("%s", error.message);
    dk_plan_cache_free(cache);
}

/* The text of the file with `count` plans; freed by the caller. */
static char *saved_text(uint32_t count, size_t *length)
{
    char *text = calloc(1, 1 << 20);
    save(count);
    FILE *file = fopen(path, "r");
    assert_true(text && file);
    *length = fread(text, 1, (1 << 20) - 1, file);
    (void)fclose(file);
    return text;
}

static struct dk_plan_cache_report parse(const char *text, size_t length, size_t expected_count)
{
    struct dk_plan_cache_report report;
    struct dk_plan_cache *cache = new_cache();
    char *copy = malloc(length + 1); /* exact bounds for the sanitizer */
    assert_non_null(copy);
    memcpy(copy, text, length);
    char *exact = realloc(copy, length > 0 ? length : 1);
    dk_plan_cache_parse(cache, exact, length, &report);
    assert_int_equal(dk_plan_cache_count(cache), expected_count);
    assert_int_equal(report.taken_count, expected_count);
    free(exact);
    dk_plan_cache_free(cache);
    return report;
}

static void test_saved_plans_come_back(void **state)
{
    (void)state;
    struct dk_plan_cache_report report;
    save(3);
    struct dk_plan_cache *cache = new_cache();
    dk_plan_cache_load(cache, path, &report);
    assert_string_equal(report.warning, "");
    assert_int_equal(report.taken_count, 3);
    for (uint32_t i = 0; i < 3; i++)
        expect_choice(cache, i, 100 + i);
    dk_plan_cache_free(cache);
}

static void test_each_part_of_the_key_matters(void **state)
{
    (void)state;
    struct dk_plan_cache *cache = new_cache();
    struct dk_plan_choice found;
    put(cache, 0, 1);
    struct dk_plan_key keys[10];
    for (size_t i = 0; i < 10; i++)
        keys[i] = make_key(0);
    keys[0].n++;
    keys[1].k++;
    keys[2].a_dtype = DK_FP32;
    keys[3].b_dtype = DK_FP16;
    keys[4].c_dtype = DK_BF16;
    keys[5].layout = DK_LAYOUT_KN;
    keys[6].epilogue = DK_EPILOGUE_RELU;
    keys[7].bucket_rows = 32;
    keys[8].is_pdl = true;
    keys[9].is_batch_invariant = true;
    for (size_t i = 0; i < 10; i++)
        assert_false(dk_plan_cache_find(cache, &keys[i], &found));
    dk_plan_cache_free(cache);
}

static void test_missing_file_is_nothing_to_say(void **state)
{
    (void)state;
    struct dk_plan_cache_report report;
    struct dk_plan_cache *cache = new_cache();
    dk_plan_cache_load(cache, path, &report);
    assert_string_equal(report.warning, "");
    assert_int_equal(dk_plan_cache_count(cache), 0);
    dk_plan_cache_free(cache);
}

static void test_c72_each_truncation_is_a_miss_of_what_is_gone(void **state)
{
    (void)state;
    size_t length;
    char *text = saved_text(2, &length);
    const char *first = strstr(text, "plan ");
    size_t first_end = (size_t)(strchr(first, '\n') - text);
    for (size_t cut = 0; cut < length; cut++) {
        size_t whole = cut == length - 1 ? 2 : cut >= first_end ? 1 : 0;
        struct dk_plan_cache_report report = parse(text, cut, whole);
        bool is_clean = cut == first_end || cut == first_end + 1 || cut == length - 1 ||
                        cut == (size_t)(first - text); /* whole lines only */
        if (is_clean != (report.warning[0] == '\0'))
            fail_msg("cut at %zu of %zu: warning '%s'", cut, length, report.warning);
    }
    free(text);
}

static void test_c72_garbage_is_a_miss_with_one_warning(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "garbage", "{\"plans\": []}",    "decomposek-plans 0\n", "decomposek-plans 1",
        "\n\n\n",  "\177ELF\002\001\001"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct dk_plan_cache_report report = parse(texts[i], strlen(texts[i]), 0);
        assert_true(report.warning[0] != '\0');
        for (const char *at = report.warning; *at; at++)
            assert_true((unsigned char)*at >= ' ');
    }
    char zeros[4096] = {0};
    assert_true(parse(zeros, sizeof zeros, 0).warning[0] != '\0');
    assert_true(parse("", 0, 0).warning[0] != '\0');
}

static void test_c72_absurd_values_are_ignored_one_by_one(void **state)
{
    (void)state;
    static const char *const edits[][2] = {
        {"split=16 ", "split=0 "},
        {"split=16 ", "split=-1 "},
        {"split=16 ", "split=1000000000 "},
        {"split=16 ", "split=99999999999999999999999999 "},
        {"split=16 ", "split= "},
        {"split=16 ", "split=1 "}, /* would leave K out */
        {"split=16 ", "split=0x10 "},
        {"split=16 ", "split=16.0 "},
        {"chunk=448 ", "chunk=0 "},
        {"chunk=448 ", "chunk=4294967744 "},
        {"tile_m=16 ", "tile_m=0 "},
        {"tile_n=16 ", "tile_n=2000000 "},
        {"ns=", "ns=-"},
        {"n=256 ", "n=0 "},
        {"k=7168 ", "k=0 "},
        {"k=7168 ", "k=18446744073709551617 "},
        {"rows=16 ", "rows=0 "},
        {"rows=16 ", "rows=1000000 "},
        {"a=bf16 ", "a=int32 "},
        {"b=bf16 ", "b=fp8 "},
        {"layout=nk ", "layout=nn "},
        {"epilogue=none ", "epilogue=gelu "},
        {"pdl=0 ", "pdl=2 "},
        {"invariant=0 ", "invariant= "},
        {"variant=cluster_16x16 ", "variant= "},
        {"variant=cluster_16x16 ",
         "variant=cluster_16x16_and_a_name_so_long_that_no_kernel_of_this_product_can_have_it "},
        {"variant=cluster_16x16 ", "variant=\xff\xfe "},
        {" .", " . "},
        {" .", ""},
        {"plan ", "plans "},
    };
    size_t length;
    char *text = saved_text(1, &length);
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        char edited[2048];
        const char *lines = strstr(text, "plan ");
        const char *hit = strstr(lines, edits[i][0]);
        assert_non_null(hit);
        int edited_length = snprintf(edited, sizeof edited, "%.*s%s%s", (int)(hit - text), text, edits[i][1],
                                     hit + strlen(edits[i][0]));
        /* A good line behind the bad one is taken. */
        edited_length += snprintf(edited + edited_length, sizeof edited - (size_t)edited_length, "%s", lines);
        struct dk_plan_cache_report report = parse(edited, (size_t)edited_length, 1);
        if (report.ignored_count != 1 || report.warning[0] == '\0')
            fail_msg("'%s' was not ignored", edits[i][1]);
    }
    free(text);
}

static void test_foreign_stamp_is_a_miss_that_names_the_difference(void **state)
{
    (void)state;
    size_t length;
    char *text = saved_text(1, &length);
    struct dk_plan_stamp others[5] = {stamp, stamp, stamp, stamp, stamp};
    strcpy(others[0].device, "NVIDIA H100");
    strcpy(others[1].isa, "sm_100");
    strcpy(others[2].driver, "12.9");
    strcpy(others[3].runtime, "13.1");
    strcpy(others[4].product, "0.2.0");
    for (size_t i = 0; i < 5; i++) {
        struct dk_plan_cache *cache = NULL;
        struct dk_plan_cache_report report;
        assert_int_equal(dk_plan_cache_new(&others[i], &cache, NULL), DK_OK);
        dk_plan_cache_parse(cache, text, length, &report);
        assert_int_equal(dk_plan_cache_count(cache), 0);
        assert_non_null(strstr(report.warning, "made elsewhere"));
        dk_plan_cache_free(cache);
    }
    free(text);
}

static void expect_load_warning(const char *where)
{
    struct dk_plan_cache_report report;
    struct dk_plan_cache *cache = new_cache();
    dk_plan_cache_load(cache, where, &report);
    assert_int_equal(dk_plan_cache_count(cache), 0);
    assert_true(report.warning[0] != '\0');
    dk_plan_cache_free(cache);
}

static void test_c72_folder_fifo_and_unreadable_files_are_misses(void **state)
{
    (void)state;
    assert_int_equal(mkdir(path, 0700), 0);
    expect_load_warning(path);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_load_warning(path); /* and does not wait for a writer */
    assert_int_equal(unlink(path), 0);
    save(1);
    if (geteuid() != 0) {
        assert_int_equal(chmod(path, 0), 0);
        expect_load_warning(path);
    }
    char below[80];
    (void)snprintf(below, sizeof below, "%s/below", path); /* the parent is a file */
    expect_load_warning(below);
}

static void test_file_larger_than_the_limit_is_a_miss(void **state)
{
    (void)state;
    save(1);
    assert_int_equal(truncate(path, DK_PLAN_CACHE_MAX_BYTES + 1), 0);
    expect_load_warning(path);
}

static void test_save_over_a_broken_file_leaves_a_good_one(void **state)
{
    (void)state;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fputs("decomposek-plans 1\ndevice NVID", file);
    (void)fclose(file);
    save(2);
    struct dk_plan_cache_report report;
    struct dk_plan_cache *cache = new_cache();
    dk_plan_cache_load(cache, path, &report);
    assert_string_equal(report.warning, "");
    assert_int_equal(report.taken_count, 2);
    dk_plan_cache_free(cache);
}

static void test_save_takes_along_what_others_saved_and_own_plans_win(void **state)
{
    (void)state;
    struct dk_error error;
    save(3);
    struct dk_plan_cache *cache = new_cache();
    put(cache, 2, 7);
    put(cache, 9, 8);
    assert_int_equal(dk_plan_cache_save(cache, path, &error), DK_OK);
    dk_plan_cache_free(cache);
    struct dk_plan_cache_report report;
    cache = new_cache();
    dk_plan_cache_load(cache, path, &report);
    assert_int_equal(report.taken_count, 4);
    expect_choice(cache, 0, 100);
    expect_choice(cache, 2, 7);
    expect_choice(cache, 9, 8);
    dk_plan_cache_free(cache);
}

static void test_c76_entries_are_bounded(void **state)
{
    (void)state;
    enum { MORE = DK_PLAN_CACHE_MAX_ENTRIES + 10 };
    struct dk_error error;
    struct dk_plan_cache_report report;
    struct dk_plan_cache *cache = new_cache();
    for (uint32_t i = 0; i < MORE; i++)
        put(cache, i, 1 + i);
    assert_int_equal(dk_plan_cache_count(cache), DK_PLAN_CACHE_MAX_ENTRIES);
    expect_choice(cache, MORE - 1, MORE);
    struct dk_plan_key first = make_key(0);
    struct dk_plan_choice found;
    assert_false(dk_plan_cache_find(cache, &first, &found)); /* the oldest went */
    assert_int_equal(dk_plan_cache_save(cache, path, &error), DK_OK);
    dk_plan_cache_free(cache);
    struct stat about;
    assert_int_equal(stat(path, &about), 0);
    assert_true(about.st_size <= DK_PLAN_CACHE_MAX_BYTES); /* so that it can be read again */
    cache = new_cache();
    dk_plan_cache_load(cache, path, &report);
    assert_int_equal(report.taken_count, DK_PLAN_CACHE_MAX_ENTRIES);
    dk_plan_cache_free(cache);
}

static void test_unwritable_place_is_an_error_with_the_path(void **state)
{
    (void)state;
    struct dk_error error;
    struct dk_plan_cache *cache = new_cache();
    assert_int_equal(dk_plan_cache_save(cache, "/nonexistent/plans", &error), DK_IO_ERROR);
    assert_non_null(strstr(error.message, "/nonexistent/plans"));
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(dk_plan_cache_save(cache, path, &error),
                     DK_IO_ERROR); /* nothing is left behind, see rmdir */
    dk_plan_cache_free(cache);
}

/* Saves over and over until it is killed. */
static pid_t start_writer(uint32_t first)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    struct dk_plan_cache *cache = new_cache();
    for (uint64_t round = 1;; round++) {
        for (uint32_t i = 0; i < 50; i++)
            put(cache, first + i, round);
        if (dk_plan_cache_save(cache, path, NULL) != DK_OK)
            _exit(1);
    }
}

static void remove_leftovers(void)
{
    char command[128];
    (void)snprintf(command, sizeof command, "rm -f %s.??????", path);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c): own folder, fixed text */
}

static void test_c72_two_writers_and_a_kill_leave_a_valid_file(void **state)
{
    (void)state;
    save(1);
    for (int round = 0; round < 5; round++) {
        pid_t writers[2] = {start_writer(100), start_writer(200)};
        for (int look = 0; look < 40; look++) {
            struct dk_plan_cache_report report;
            struct dk_plan_cache *cache = new_cache();
            dk_plan_cache_load(cache, path, &report);
            if (report.warning[0] != '\0' || report.taken_count < 1)
                fail_msg("%s, %zu plans", report.warning, report.taken_count);
            dk_plan_cache_free(cache);
            (void)usleep(500);
        }
        for (int i = 0; i < 2; i++) {
            int status;
            assert_int_equal(kill(writers[i], SIGKILL), 0);
            assert_int_equal(waitpid(writers[i], &status, 0), writers[i]);
            assert_true(WIFSIGNALED(status)); /* it had not failed by itself */
        }
        struct dk_plan_cache_report report;
        struct dk_plan_cache *cache = new_cache();
        dk_plan_cache_load(cache, path, &report);
        assert_string_equal(report.warning, "");
        expect_choice(cache, 0, 100);
        dk_plan_cache_free(cache);
    }
    remove_leftovers();
}

static void test_c74_default_place_needs_a_home(void **state)
{
    (void)state;
    char out[128];
    assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
    assert_int_equal(unsetenv("HOME"), 0);
    assert_false(dk_plan_cache_default_path(out, sizeof out));
    assert_int_equal(setenv("HOME", "", 1), 0);
    assert_false(dk_plan_cache_default_path(out, sizeof out));
    assert_int_equal(setenv("HOME", "relative", 1), 0);
    assert_false(dk_plan_cache_default_path(out, sizeof out));
    assert_int_equal(setenv("HOME", "/home/x", 1), 0);
    assert_true(dk_plan_cache_default_path(out, sizeof out));
    assert_string_equal(out, "/home/x/.cache/decomposek/plans");
    assert_int_equal(setenv("XDG_CACHE_HOME", "/var/cache", 1), 0);
    assert_true(dk_plan_cache_default_path(out, sizeof out));
    assert_string_equal(out, "/var/cache/decomposek/plans");
    assert_false(dk_plan_cache_default_path(out, 10));
}

static void test_folder_is_made_and_may_exist(void **state)
{
    (void)state;
    struct dk_error error;
    char deep[96], made[96];
    (void)snprintf(deep, sizeof deep, "%s/a/b/plans", folder);
    assert_int_equal(dk_plan_cache_make_folder(deep, &error), DK_OK);
    assert_int_equal(dk_plan_cache_make_folder(deep, &error), DK_OK);
    assert_int_not_equal(access(deep, F_OK), 0);
    (void)snprintf(made, sizeof made, "%s/a/b", folder);
    assert_int_equal(rmdir(made), 0);
    (void)snprintf(made, sizeof made, "%s/a", folder);
    assert_int_equal(rmdir(made), 0);
    assert_int_equal(dk_plan_cache_make_folder("/dev/null/x/plans", &error), DK_IO_ERROR);
}

#define TEST(function) cmocka_unit_test_teardown(function, remove_file)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_saved_plans_come_back),
        TEST(test_each_part_of_the_key_matters),
        TEST(test_missing_file_is_nothing_to_say),
        TEST(test_c72_each_truncation_is_a_miss_of_what_is_gone),
        TEST(test_c72_garbage_is_a_miss_with_one_warning),
        TEST(test_c72_absurd_values_are_ignored_one_by_one),
        TEST(test_foreign_stamp_is_a_miss_that_names_the_difference),
        TEST(test_c72_folder_fifo_and_unreadable_files_are_misses),
        TEST(test_file_larger_than_the_limit_is_a_miss),
        TEST(test_save_over_a_broken_file_leaves_a_good_one),
        TEST(test_save_takes_along_what_others_saved_and_own_plans_win),
        TEST(test_c76_entries_are_bounded),
        TEST(test_unwritable_place_is_an_error_with_the_path),
        TEST(test_c72_two_writers_and_a_kill_leave_a_valid_file),
        TEST(test_c74_default_place_needs_a_home),
        TEST(test_folder_is_made_and_may_exist),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
