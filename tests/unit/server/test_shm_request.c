/* test_shm_request.c: every rule of a submission, from just inside to just outside. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "server/models.h"
#include "server/shm_request.h"

enum { DATA_BYTES = 1 << 20 };
static unsigned char data[DATA_BYTES];
static const struct dk_ring ring = {.data = data, .data_bytes = DATA_BYTES};
static const struct dk_model model = {.n = 16, .k = 64, .epilogue = DK_EPILOGUE_RELU};

static struct dk_ring_submission good(void)
{
    return (struct dk_ring_submission){.a_offset = 0,
                                       .c_offset = 512,
                                       .rows = 2,
                                       .a_dtype = DK_FP32,
                                       .c_dtype = DK_BF16,
                                       .epilogue = DK_RING_MODEL_EPILOGUE};
}

static enum dk_ring_detail check(const struct dk_ring_submission *submission)
{
    struct dk_launch launch, before;
    memset(&launch, 0x5a, sizeof launch);
    before = launch;
    enum dk_ring_detail detail = dk_shm_request_check(submission, &model, &ring, &launch);
    if (detail != DK_RING_DETAIL_NONE) {
        assert_memory_equal(&launch, &before, sizeof launch);
    }
    return detail;
}

static void test_good_request_becomes_a_launch(void **state)
{
    (void)state;
    struct dk_ring_submission submission = good();
    struct dk_launch launch;
    assert_int_equal(dk_shm_request_check(&submission, &model, &ring, &launch), DK_RING_DETAIL_NONE);
    assert_int_equal(launch.m, 2);
    assert_int_equal(launch.n, 16);
    assert_int_equal(launch.k, 64);
    assert_ptr_equal(launch.a, data);
    assert_ptr_equal(launch.c, data + 512);
    assert_int_equal(launch.c_dtype, DK_BF16);
    assert_int_equal(launch.epilogue, DK_EPILOGUE_RELU);
    assert_int_equal(launch.rows_done, 0);
    submission.epilogue = DK_EPILOGUE_NONE;
    assert_int_equal(dk_shm_request_check(&submission, &model, &ring, &launch), DK_RING_DETAIL_NONE);
    assert_int_equal(launch.epilogue, DK_EPILOGUE_NONE);
}

static void test_fields_out_of_range_are_refused(void **state)
{
    (void)state;
    struct dk_ring_submission s = good();
    s.rows = DK_MAX_M + 1;
    assert_int_equal(check(&s), DK_RING_DETAIL_ROWS);
    s.rows = UINT32_MAX;
    assert_int_equal(check(&s), DK_RING_DETAIL_ROWS);
    for (int dtype = 3; dtype < 256; dtype++) {
        s = good();
        s.a_dtype = (uint8_t)dtype;
        assert_int_equal(check(&s), DK_RING_DETAIL_A_DTYPE);
        s = good();
        s.c_dtype = (uint8_t)dtype;
        assert_int_equal(check(&s), DK_RING_DETAIL_C_DTYPE);
    }
    for (int epilogue = DK_EPILOGUE_COUNT; epilogue < DK_RING_MODEL_EPILOGUE; epilogue++) {
        s = good();
        s.epilogue = (uint8_t)epilogue;
        assert_int_equal(check(&s), DK_RING_DETAIL_EPILOGUE);
    }
    s = good();
    s.flags = 1;
    assert_int_equal(check(&s), DK_RING_DETAIL_RESERVED);
    for (int i = 0; i < 2; i++) {
        s = good();
        s.reserved[i] = 1;
        assert_int_equal(check(&s), DK_RING_DETAIL_RESERVED);
    }
}

static void test_offsets_must_be_aligned(void **state)
{
    (void)state;
    for (uint64_t off = 1; off < 64; off++) {
        struct dk_ring_submission s = good();
        s.a_offset = off;
        assert_int_equal(check(&s), DK_RING_DETAIL_A_ALIGNMENT);
        s = good();
        s.c_offset = off;
        assert_int_equal(check(&s), DK_RING_DETAIL_C_ALIGNMENT);
    }
}

static void test_tensors_must_lie_inside(void **state)
{
    (void)state;
    struct dk_ring_submission s = good();
    s.a_offset = DATA_BYTES - 512; /* two rows of 256 bytes: the last place */
    s.c_offset = 0;
    assert_int_equal(check(&s), DK_RING_DETAIL_NONE);
    static const uint64_t outside[] = {DATA_BYTES - 448, DATA_BYTES, DATA_BYTES + 64, (uint64_t)1 << 63,
                                       UINT64_MAX - 63};
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        s = good();
        s.a_offset = outside[i];
        assert_int_equal(check(&s), DK_RING_DETAIL_A_RANGE);
    }
    s = good();
    s.c_offset = DATA_BYTES - 64; /* two rows of 32 bytes */
    assert_int_equal(check(&s), DK_RING_DETAIL_NONE);
    static const uint64_t outside_c[] = {DATA_BYTES, (uint64_t)1 << 63, UINT64_MAX - 63};
    for (size_t i = 0; i < sizeof outside_c / sizeof outside_c[0]; i++) {
        s = good();
        s.c_offset = outside_c[i];
        assert_int_equal(check(&s), DK_RING_DETAIL_C_RANGE);
    }
    s = good();
    s.rows = DK_MAX_M; /* sizes far beyond the area, without wrapping */
    assert_int_equal(check(&s), DK_RING_DETAIL_A_RANGE);
    struct dk_model wide = {.n = DK_MAX_N, .k = DK_MAX_K};
    struct dk_launch launch;
    assert_int_equal(dk_shm_request_check(&s, &wide, &ring, &launch), DK_RING_DETAIL_A_RANGE);
}

static void test_a_and_c_must_not_overlap(void **state)
{
    (void)state;
    static const uint64_t c_offsets[] = {1024 - 64, 1024, 1024 + 448};
    for (size_t i = 0; i < sizeof c_offsets / sizeof c_offsets[0]; i++) { /* A is [1024, 1536), C takes 64 */
        struct dk_ring_submission s = good();
        s.a_offset = 1024;
        s.c_offset = c_offsets[i];
        assert_int_equal(check(&s), i == 0 ? DK_RING_DETAIL_NONE : DK_RING_DETAIL_OVERLAP);
    }
    struct dk_ring_submission s = good();
    s.a_offset = s.c_offset = 1024;
    s.rows = 0; /* nothing overlaps nothing */
    assert_int_equal(check(&s), DK_RING_DETAIL_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_request_becomes_a_launch),
        cmocka_unit_test(test_fields_out_of_range_are_refused),
        cmocka_unit_test(test_offsets_must_be_aligned),
        cmocka_unit_test(test_tensors_must_lie_inside),
        cmocka_unit_test(test_a_and_c_must_not_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
