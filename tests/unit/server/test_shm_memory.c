/* test_shm_memory.c: what a client can no longer do to memory that it shares with the daemon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/shm_memory.h"

static struct dk_ring_layout layout;

static int setup(void **state)
{
    static struct dk_shm_memory memory;
    *state = &memory;
    return dk_ring_layout_make(16, 1 << 16, &layout, NULL) == DK_OK &&
                   dk_shm_memory_new(&layout, &memory, NULL) == DK_OK
               ? 0
               : -1;
}

static int teardown(void **state)
{
    dk_shm_memory_free(*state);
    return 0;
}

static void test_memory_is_formatted_reserved_and_of_fixed_size(void **state)
{
    struct dk_shm_memory *memory = *state;
    struct stat info;
    assert_int_equal(dk_ring_check(memory->mapping, &layout, NULL), DK_OK);
    assert_int_equal(fstat(memory->fd, &info), 0);
    assert_int_equal(info.st_size, layout.mapping_bytes);
    assert_int_equal(info.st_blocks * 512, layout.mapping_bytes);
    assert_int_equal(ftruncate(memory->fd, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(memory->fd, info.st_size + 4096), -1);
    assert_int_equal(errno, EPERM);
}

static void test_sealed_memory_cannot_be_mapped_writable_nor_punched(void **state)
{
    struct dk_shm_memory *memory = *state;
    size_t bytes = memory->bytes;
    int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    unsigned char *early = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
    assert_ptr_not_equal(early, MAP_FAILED);
    assert_int_equal(dk_shm_memory_seal(memory, NULL), DK_OK);
    early[bytes - 1] = 7; /* the mapping made before goes on */
    assert_int_equal(((unsigned char *)memory->mapping)[bytes - 1], 7);
    assert_ptr_equal(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0), MAP_FAILED);
    assert_int_equal(errno, EPERM);
    assert_int_equal(fallocate(memory->fd, punch, 0, 4096), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(madvise(early, bytes, MADV_REMOVE), -1);
    assert_int_equal(write(memory->fd, "x", 1), -1);
    assert_int_equal(fcntl(memory->fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    assert_int_equal(munmap(early, bytes), 0);
}

static void test_hole_punched_before_the_seal_is_filled(void **state)
{
    struct dk_shm_memory *memory = *state;
    struct stat info;
    assert_int_equal(
        fallocate(memory->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)memory->bytes), 0);
    assert_int_equal(fstat(memory->fd, &info), 0);
    assert_int_equal(info.st_blocks, 0);
    assert_int_equal(dk_shm_memory_seal(memory, NULL), DK_OK);
    assert_int_equal(fstat(memory->fd, &info), 0);
    assert_int_equal(info.st_blocks * 512, layout.mapping_bytes);
}

/* The nearest thing to a full machine that a test may bring about. */
static void test_c52_shortage_is_an_error_that_names_the_bytes(void **state)
{
    (void)state;
    struct rlimit old, low = {.rlim_cur = 4096};
    struct dk_shm_memory memory = {.fd = -1};
    struct dk_error error;
    (void)signal(SIGXFSZ, SIG_IGN); /* as main() does */
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    dk_status status = dk_shm_memory_new(&layout, &memory, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(status, DK_NO_MEMORY);
    assert_non_null(
        strstr(error.message, "cannot reserve 73728 bytes of shared memory: File too large (EFBIG)"));
    assert_int_equal(memory.fd, -1);
    dk_shm_memory_free(&memory);
    dk_shm_memory_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_memory_is_formatted_reserved_and_of_fixed_size, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sealed_memory_cannot_be_mapped_writable_nor_punched, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_hole_punched_before_the_seal_is_filled, setup, teardown),
        cmocka_unit_test_setup_teardown(test_c52_shortage_is_an_error_that_names_the_bytes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
