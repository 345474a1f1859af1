/* test_client_area.c: blocks never overlap, come back whole, and wait for their last user. */
#include "client/area.h"
#include "tests/unit/client/check.h"

enum { MAX_BLOCKS = 512 };

static void test_blocks_are_aligned_and_inside(void **state)
{
    (void)state;
    struct dk_area area;
    assert_int_equal(dk_area_init(&area, 1 << 20, NULL), DK_OK);
    assert_int_equal(dk_area_largest(&area), 1 << 20);
    size_t offset;
    assert_true(dk_area_take(&area, 1000, &offset));
    assert_int_equal(offset % 1024, 0);
    assert_true(dk_area_take(&area, 1 << 19, &offset));
    assert_int_equal(offset, 1 << 19);
    assert_int_equal(dk_area_largest_free(&area), 1 << 18);
    dk_area_deinit(&area);
}

static void test_all_of_an_odd_size_is_used(void **state)
{
    (void)state;
    struct dk_area area;
    assert_int_equal(dk_area_init(&area, 7 * 4096, NULL), DK_OK);
    assert_int_equal(dk_area_largest(&area), 4 * 4096);
    size_t offset, count = 0;
    while (dk_area_take(&area, 4096, &offset))
        count++;
    assert_int_equal(count, 7);
    assert_int_equal(dk_area_largest_free(&area), 0);
    for (size_t i = 0; i < 7; i++)
        dk_area_give(&area, i * 4096);
    assert_int_equal(dk_area_largest_free(&area), 4 * 4096);
    dk_area_deinit(&area);
}

static void test_too_small_an_area_is_refused(void **state)
{
    (void)state;
    struct dk_area area;
    struct dk_error error;
    assert_int_equal(dk_area_init(&area, 100, &error), DK_BAD_VALUE);
    check_contains(error.message, "100");
}

static void test_large_areas_keep_the_bookkeeping_small(void **state)
{
    (void)state;
    struct dk_area area;
    size_t offset;
    assert_int_equal(dk_area_init(&area, (size_t)1 << 40, NULL), DK_OK);
    assert_true(area.unit_count <= 1 << 16);
    assert_true(dk_area_take(&area, (size_t)1 << 39, &offset));
    assert_true(dk_area_take(&area, 1, &offset));
    assert_false(dk_area_take(&area, (size_t)1 << 39, &offset));
    dk_area_deinit(&area);
}

static void test_find_gives_the_block_around_a_range(void **state)
{
    (void)state;
    struct dk_area area;
    size_t offset, found = 77;
    assert_int_equal(dk_area_init(&area, 1 << 16, NULL), DK_OK);
    assert_true(dk_area_take(&area, 256, &offset));
    assert_true(dk_area_take(&area, 4096, &offset));
    assert_true(dk_area_find(&area, offset + 100, 3996, &found));
    assert_int_equal(found, offset);
    found = 77;
    assert_false(dk_area_find(&area, offset + 100, 3997, &found)); /* beyond its end */
    assert_false(dk_area_find(&area, offset + 4096, 1, &found));   /* a free neighbour */
    assert_false(dk_area_find(&area, (size_t)1 << 20, 1, &found)); /* outside */
    assert_false(dk_area_find(&area, offset, SIZE_MAX, &found));
    dk_area_give(&area, offset);
    assert_false(dk_area_find(&area, offset, 1, &found)); /* given back */
    assert_int_equal(found, 77);
    dk_area_deinit(&area);
}

static void test_a_block_in_use_is_not_handed_out_again(void **state)
{
    (void)state;
    struct dk_area area;
    size_t first, offset;
    assert_int_equal(dk_area_init(&area, 4096, NULL), DK_OK);
    assert_true(dk_area_take(&area, 4096, &first));
    dk_area_use(&area, first);
    dk_area_use(&area, first);
    dk_area_give(&area, first);
    assert_false(dk_area_is_taken(&area, first));
    assert_false(dk_area_take(&area, 1, &offset));
    dk_area_unuse(&area, first);
    assert_false(dk_area_take(&area, 1, &offset));
    dk_area_unuse(&area, first);
    assert_true(dk_area_take(&area, 4096, &offset));
    dk_area_deinit(&area);
}

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

/* Against a plain list: no two blocks overlap, and the area is whole at the end. */
static void test_random_traffic_never_overlaps(void **state)
{
    (void)state;
    struct dk_area area;
    struct {
        size_t offset, bytes;
    } blocks[MAX_BLOCKS];
    size_t count = 0;
    uint32_t seed = 5;
    const size_t total = 3 * (1 << 18);
    assert_int_equal(dk_area_init(&area, total, NULL), DK_OK);
    for (int step = 0; step < 200000; step++) {
        if (count < MAX_BLOCKS && next_random(&seed) % 2) {
            size_t bytes = 1 + next_random(&seed) % (1U << next_random(&seed) % 17), offset;
            if (!dk_area_take(&area, bytes, &offset))
                continue;
            assert_true(offset + bytes <= total);
            for (size_t i = 0; i < count; i++)
                if (offset < blocks[i].offset + blocks[i].bytes && blocks[i].offset < offset + bytes)
                    fail_msg("step %d: %zu+%zu overlaps %zu+%zu", step, offset, bytes, blocks[i].offset,
                             blocks[i].bytes);
            blocks[count].offset = offset;
            blocks[count++].bytes = bytes;
        } else if (count > 0) {
            size_t i = next_random(&seed) % count;
            dk_area_give(&area, blocks[i].offset);
            blocks[i] = blocks[--count];
        }
    }
    while (count > 0)
        dk_area_give(&area, blocks[--count].offset);
    assert_int_equal(dk_area_largest_free(&area), dk_area_largest(&area));
    dk_area_deinit(&area);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_aligned_and_inside),
        cmocka_unit_test(test_all_of_an_odd_size_is_used),
        cmocka_unit_test(test_too_small_an_area_is_refused),
        cmocka_unit_test(test_large_areas_keep_the_bookkeeping_small),
        cmocka_unit_test(test_find_gives_the_block_around_a_range),
        cmocka_unit_test(test_a_block_in_use_is_not_handed_out_again),
        cmocka_unit_test(test_random_traffic_never_overlaps),
    };
    return cmocka_run_group_tests_name("client area", tests, NULL, NULL);
}
