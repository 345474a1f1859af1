/* test_tune.c: the tuner takes the fastest plan, writes it down, and the next engine uses what was written.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "decomposek.h"
#include "tests/unit/kernels/fake_path.h"

enum {
    ORDINARY = 0,
    BARELY_FASTER = 1,
    FAILS_AT_FOUR_ROWS = 2,
    OTHER_DEVICE = 3,
    MAX_TOKENS = 8,
    BUCKETS = 4
};

static char folder[] = "/tmp/dk_test_tune_XXXXXX";
static char path[64];

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
    (void)unlink(path);
    return rmdir(folder);
}

static int remove_cache(void **state)
{
    (void)state;
    (void)unlink(path);
    return 0;
}

static struct dk_engine *open_engine(struct dk_engine_options options)
{
    struct dk_engine *engine = NULL;
    struct dk_error error;
    options.plugin_path = fake_path(FAKE_TUNABLE);
    options.backend = DK_BACKEND_CUDA;
    options.max_tokens = MAX_TOKENS;
    if (dk_engine_new(&options, &engine, &error) != DK_OK)
        fail_msg("%s", error.message);
    return engine;
}

static struct dk_engine *open_mode(int mode)
{
    return open_engine((struct dk_engine_options){.device_index = mode, .plan_cache_path = path});
}

static struct dk_weights *make_weights(struct dk_engine *engine)
{
    static const uint16_t data[64 * 16];
    struct dk_weights_desc desc = {16, 64, DK_BF16, DK_LAYOUT_NK, data, NULL};
    struct dk_weights *weights = NULL;
    struct dk_error error;
    if (dk_weights_new(engine, &desc, &weights, &error) != DK_OK)
        fail_msg("%s", error.message);
    return weights;
}

static void close_all(struct dk_engine *engine, struct dk_weights *weights)
{
    dk_weights_free(weights);
    dk_engine_free(engine);
}

static void tune_and_save(int mode)
{
    struct dk_error error;
    struct dk_tune_options options = {0};
    struct dk_engine *engine = open_mode(mode);
    struct dk_weights *weights = make_weights(engine);
    assert_int_equal(dk_weights_tune(weights, &options, &error), DK_OK);
    close_all(engine, weights);
}

static void expect_plans(const struct dk_weights *weights, const char *variant)
{
    for (uint64_t m = 1; m <= MAX_TOKENS; m++)
        assert_string_equal(dk_plan_get(weights, m)->variant, variant);
}

static void test_tuner_uses_the_fastest_plan(void **state)
{
    (void)state;
    struct dk_error error;
    struct dk_tune_options options = {0};
    struct dk_engine *engine = open_mode(ORDINARY);
    struct dk_weights *weights = make_weights(engine);
    expect_plans(weights, "built_in");
    assert_int_equal(dk_plan_get_origin(weights).tuned_count, 0);
    assert_int_equal(dk_weights_tune(weights, &options, &error), DK_OK);
    expect_plans(weights, "fast");
    assert_int_equal(dk_plan_get_origin(weights).tuned_count, BUCKETS);
    close_all(engine, weights);
}

static void test_cache_written_by_tuning_is_used_by_the_next_start(void **state)
{
    (void)state;
    tune_and_save(ORDINARY);
    struct dk_engine *engine = open_mode(ORDINARY);
    assert_string_equal(dk_engine_get_info(engine)->plan_cache_warning, "");
    assert_int_equal(dk_engine_get_info(engine)->cached_plan_count, BUCKETS);
    struct dk_weights *weights = make_weights(engine);
    expect_plans(weights, "fast");
    assert_int_equal(dk_plan_get_origin(weights).tuned_count, BUCKETS);
    close_all(engine, weights);
}

static bool count_bucket(void *context, const struct dk_tune_result *result)
{
    (void)result;
    ++*(int *)context;
    return true;
}

static void test_known_buckets_are_not_measured_again_unless_forced(void **state)
{
    (void)state;
    struct dk_error error;
    int count = 0;
    struct dk_tune_options options = {.on_bucket = count_bucket, .context = &count};
    tune_and_save(ORDINARY);
    struct dk_engine *engine = open_mode(ORDINARY);
    struct dk_weights *weights = make_weights(engine);
    assert_int_equal(dk_weights_tune(weights, &options, &error), DK_OK);
    assert_int_equal(count, 0);
    options.is_forced = true;
    assert_int_equal(dk_weights_tune(weights, &options, &error), DK_OK);
    assert_int_equal(count, BUCKETS);
    assert_int_equal(dk_plan_get_origin(weights).tuned_count, BUCKETS);
    close_all(engine, weights);
}

static void test_cache_of_another_device_is_a_miss(void **state)
{
    (void)state;
    tune_and_save(ORDINARY);
    struct dk_engine *engine = open_mode(OTHER_DEVICE);
    assert_non_null(strstr(dk_engine_get_info(engine)->plan_cache_warning, "device Fake"));
    struct dk_weights *weights = make_weights(engine);
    expect_plans(weights, "built_in");
    close_all(engine, weights);
}

static void test_batch_invariant_and_chained_plans_have_entries_of_their_own(void **state)
{
    (void)state;
    tune_and_save(ORDINARY);
    struct dk_engine_options options[] = {{.plan_cache_path = path, .is_batch_invariant = true},
                                          {.plan_cache_path = path, .use_dependent_launch = true}};
    for (size_t i = 0; i < 2; i++) {
        struct dk_engine *engine = open_engine(options[i]);
        struct dk_weights *weights = make_weights(engine);
        expect_plans(weights, "built_in");
        close_all(engine, weights);
    }
}

static void replace_in_cache(const char *old, const char *new)
{
    static char text[1 << 16], result[1 << 16];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t length = fread(text, 1, sizeof text - 1, file);
    text[length] = '\0';
    (void)fclose(file);
    char *out = result;
    const char *at = text;
    for (const char *hit; (hit = strstr(at, old)); at = hit + strlen(old))
        out += sprintf(out, "%.*s%s", (int)(hit - at), at, new);
    (void)sprintf(out, "%s", at);
    assert_string_not_equal(text, result);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(result, file) >= 0);
    (void)fclose(file);
}

static void test_c72_plans_that_do_not_exist_are_ignored(void **state)
{
    (void)state;
    static const char *const edits[][2] = {{"variant=fast", "variant=from_next_year"},
                                           {"split=1 ", "split=2 "},
                                           {"chunk=64", "chunk=65"},
                                           {"tile_m=1 ", "tile_m=7 "},
                                           {"dependent=0", "dependent=1"}};
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        (void)unlink(path);
        tune_and_save(ORDINARY);
        replace_in_cache(edits[i][0], edits[i][1]);
        struct dk_engine *engine = open_mode(ORDINARY);
        struct dk_weights *weights = make_weights(engine);
        expect_plans(weights, "built_in");
        assert_int_equal(dk_plan_get_origin(weights).unknown_count, BUCKETS);
        assert_int_equal(dk_plan_get_origin(weights).tuned_count, 0);
        struct dk_tune_options options = {0};
        struct dk_error error;
        assert_int_equal(dk_weights_tune(weights, &options, &error), DK_OK); /* measured again */
        expect_plans(weights, "fast");
        assert_int_equal(dk_plan_get_origin(weights).unknown_count, 0);
        close_all(engine, weights);
    }
}

static void test_noise_does_not_change_a_plan(void **state)
{
    (void)state;
    struct dk_error error;
    struct dk_tune_options options = {0};
    struct dk_engine *engine = open_mode(BARELY_FASTER);
    struct dk_weights *weights = make_weights(engine);
    assert_int_equal(dk_weights_tune(weights, &options, &error), DK_OK);
    expect_plans(weights, "built_in");
    close_all(engine, weights);
}

static void test_only_remembering_leaves_the_plans_in_use(void **state)
{
    (void)state;
    struct dk_error error;
    struct dk_tune_options options = {.is_only_remembered = true};
    struct dk_engine *engine = open_mode(ORDINARY);
    struct dk_weights *weights = make_weights(engine);
    assert_int_equal(dk_weights_tune(weights, &options, &error), DK_OK);
    expect_plans(weights, "built_in");
    struct dk_weights *next = make_weights(engine); /* a reload */
    expect_plans(next, "fast");
    dk_weights_free(next);
    close_all(engine, weights);
}

static bool end_at_two_rows(void *context, const struct dk_tune_result *result)
{
    (void)context;
    return result->bucket_rows < 2;
}

static void test_ended_tuning_keeps_what_it_has(void **state)
{
    (void)state;
    struct dk_error error;
    struct dk_tune_options options = {.on_bucket = end_at_two_rows};
    struct dk_engine *engine = open_mode(ORDINARY);
    struct dk_weights *weights = make_weights(engine);
    assert_int_equal(dk_weights_tune(weights, &options, &error), DK_CANCELLED);
    close_all(engine, weights);
    engine = open_mode(ORDINARY);
    assert_int_equal(dk_engine_get_info(engine)->cached_plan_count, 2);
    dk_engine_free(engine);
}

static void test_failing_device_ends_tuning_with_its_words(void **state)
{
    (void)state;
    struct dk_error error;
    struct dk_tune_options options = {0};
    struct dk_engine *engine = open_mode(FAILS_AT_FOUR_ROWS);
    struct dk_weights *weights = make_weights(engine);
    assert_int_equal(dk_weights_tune(weights, &options, &error), DK_DEVICE_FAILED);
    assert_non_null(strstr(error.message, "fell off the bus"));
    assert_string_equal(dk_plan_get(weights, 2)->variant, "fast");
    assert_string_equal(dk_plan_get(weights, 4)->variant, "built_in");
    close_all(engine, weights);
}

static void test_largest_rows_bound_what_is_measured(void **state)
{
    (void)state;
    struct dk_error error;
    int count = 0;
    struct dk_tune_options options = {.max_rows = 2, .on_bucket = count_bucket, .context = &count};
    struct dk_engine *engine = open_mode(ORDINARY);
    struct dk_weights *weights = make_weights(engine);
    assert_int_equal(dk_weights_tune(weights, &options, &error), DK_OK);
    assert_int_equal(count, 2);
    close_all(engine, weights);
}

static void test_c74_unwritable_cache_is_reported_and_plans_serve(void **state)
{
    (void)state;
    struct dk_error error;
    struct dk_tune_options options = {0};
    struct dk_engine *engine =
        open_engine((struct dk_engine_options){.plan_cache_path = "/nonexistent/folder/plans"});
    struct dk_weights *weights = make_weights(engine);
    assert_int_equal(dk_weights_tune(weights, &options, &error), DK_IO_ERROR);
    assert_non_null(strstr(error.message, "/nonexistent/folder/plans"));
    expect_plans(weights, "fast");
    close_all(engine, weights);
}

static void test_nothing_is_tuned_when_a_variant_is_forced(void **state)
{
    (void)state;
    struct dk_error error;
    struct dk_tune_options options = {0};
    tune_and_save(ORDINARY);
    struct dk_engine *engine =
        open_engine((struct dk_engine_options){.plan_cache_path = path, .force_variant = "built_in"});
    struct dk_weights *weights = make_weights(engine);
    expect_plans(weights, "built_in");
    assert_int_equal(dk_weights_tune(weights, &options, &error), DK_BAD_VALUE);
    close_all(engine, weights);
}

static void test_measure_refuses_rows_the_plan_does_not_hold(void **state)
{
    (void)state;
    struct dk_error error;
    double ns = -1.0;
    struct dk_engine *engine = open_mode(ORDINARY);
    struct dk_weights *weights = make_weights(engine);
    const struct dk_weights *const list[] = {weights};
    struct dk_measure measure = {.weights = list, .weight_count = 1, .a_dtype = DK_BF16, .c_dtype = DK_FP32};
    for (uint64_t m = 0; m <= 3; m += 3) {
        measure.m = m;
        assert_int_equal(dk_plan_measure(&measure, dk_plan_get(weights, 2), &ns, &error), DK_BAD_SHAPE);
    }
    measure.m = 2;
    measure.weight_count = 0;
    assert_int_equal(dk_plan_measure(&measure, dk_plan_get(weights, 2), &ns, &error), DK_BAD_VALUE);
    assert_true(ns == -1.0);
    close_all(engine, weights);
}

static void test_cpu_times_are_taken_through_the_host(void **state)
{
    (void)state;
    struct dk_engine_options options = {
        .backend = DK_BACKEND_CPU, .thread_count = 1, .max_tokens = 4, .plan_cache_path = path};
    struct dk_tune_options tune = {0};
    struct dk_engine *engine = NULL;
    struct dk_error error;
    for (uint32_t known = 0; known <= 3; known += 3) {
        assert_int_equal(dk_engine_new(&options, &engine, &error), DK_OK);
        assert_int_equal(dk_engine_get_info(engine)->cached_plan_count, known);
        struct dk_weights *weights = make_weights(engine);
        assert_int_equal(dk_plan_get_origin(weights).tuned_count, known);
        if (dk_weights_tune(weights, &tune, &error) != DK_OK)
            fail_msg("%s", error.message);
        assert_int_equal(dk_plan_get_origin(weights).tuned_count, 3);
        close_all(engine, weights);
    }
}

#define TEST(function) cmocka_unit_test_setup(function, remove_cache)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_tuner_uses_the_fastest_plan),
        TEST(test_cache_written_by_tuning_is_used_by_the_next_start),
        TEST(test_known_buckets_are_not_measured_again_unless_forced),
        TEST(test_cache_of_another_device_is_a_miss),
        TEST(test_batch_invariant_and_chained_plans_have_entries_of_their_own),
        TEST(test_c72_plans_that_do_not_exist_are_ignored),
        TEST(test_noise_does_not_change_a_plan),
        TEST(test_only_remembering_leaves_the_plans_in_use),
        TEST(test_ended_tuning_keeps_what_it_has),
        TEST(test_failing_device_ends_tuning_with_its_words),
        TEST(test_largest_rows_bound_what_is_measured),
        TEST(test_c74_unwritable_cache_is_reported_and_plans_serve),
        TEST(test_nothing_is_tuned_when_a_variant_is_forced),
        TEST(test_measure_refuses_rows_the_plan_does_not_hold),
        TEST(test_cpu_times_are_taken_through_the_host),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
