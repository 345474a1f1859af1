/* test_shm_models.c: names, ids and versions of one session, with the daemon's models behind them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "server/shm_models.h"
#include "tests/unit/server/ring_fixture.h"
#include "tests/unit/server/weights_writer.h"

struct world {
    struct dk_engine *engine;
    struct dk_models *registry;
    struct dk_shm_models *models;
    char folder[64], path[96];
};

static void write_file(const struct world *world, float value)
{
    float b[RING_N * RING_K];
    for (int i = 0; i < RING_N * RING_K; i++) {
        b[i] = value;
    }
    const struct test_tensor tensor = {"w", "F32", "[3,4]", b, sizeof b};
    write_weights(world->path, &tensor, 1);
}

static int setup(void **state)
{
    static struct world world;
    struct dk_engine_options options = {.backend = DK_BACKEND_CPU, .thread_count = 1, .max_tokens = 4};
    (void)snprintf(world.folder, sizeof world.folder, "/tmp/dk_shm_models_XXXXXX");
    *state = &world;
    if (mkdtemp(world.folder) == NULL || dk_engine_new(&options, &world.engine, NULL) != DK_OK) {
        return -1;
    }
    (void)snprintf(world.path, sizeof world.path, "%s/w.safetensors", world.folder);
    write_file(&world, 1);
    static struct dk_model_spec spec = {.name = "gate", .layout = DK_LAYOUT_NK};
    spec.path = world.path;
    return dk_models_new(world.engine, NULL, &spec, 1, &world.registry, NULL) == DK_OK &&
                   dk_shm_models_new(world.registry, &world.models, NULL) == DK_OK
               ? 0
               : -1;
}

static int teardown(void **state)
{
    struct world *world = *state;
    dk_shm_models_free(world->models);
    dk_models_free(world->registry);
    dk_engine_free(world->engine);
    (void)unlink(world->path);
    return rmdir(world->folder);
}

static uint32_t open_model(struct world *world, const char *name)
{
    struct dk_model *model;
    uint32_t id = UINT32_MAX;
    assert_int_equal(dk_shm_models_open(world->models, name, &id, &model, NULL), DK_OK);
    dk_model_release(model);
    return id;
}

static uint32_t push(struct world *world, const char *name)
{
    uint32_t id = UINT32_MAX;
    assert_int_equal(dk_shm_models_push(world->models, ring_model_new(world->engine, name, 1), &id, NULL),
                     DK_OK);
    return id;
}

static void test_same_name_has_the_same_id(void **state)
{
    struct world *world = *state;
    assert_int_equal(open_model(world, "gate"), 0);
    assert_int_equal(push(world, "own"), 1);
    assert_int_equal(open_model(world, "gate"), 0);
    assert_int_equal(open_model(world, "own"), 1);
}

static void test_unknown_names_and_ids_are_refused(void **state)
{
    struct world *world = *state;
    struct dk_model *model;
    struct dk_error error;
    uint32_t id = 77;
    enum dk_ring_detail detail = DK_RING_DETAIL_NONE;
    assert_int_equal(dk_shm_models_open(world->models, "nope", &id, &model, &error), DK_NOT_FOUND);
    assert_string_equal(error.message, "no model \"nope\"");
    assert_int_equal(id, 77);
    assert_null(dk_shm_models_get(world->models, 0, &detail)); /* the failed name got no id */
    assert_int_equal(detail, DK_RING_DETAIL_MODEL_ID);
    assert_null(dk_shm_models_get(world->models, UINT32_MAX, &detail));
}

static void test_reload_is_seen_after_a_refresh_and_the_old_version_goes(void **state)
{
    struct world *world = *state;
    enum dk_ring_detail detail;
    uint32_t id = open_model(world, "gate");
    struct dk_model *old = dk_shm_models_get(world->models, id, &detail);
    assert_int_equal(old->version, 1);
    assert_int_equal(atomic_load(&old->reference_count), 2); /* the registry's and ours */
    assert_ptr_equal(dk_shm_models_get(world->models, id, &detail), old);
    assert_int_equal(atomic_load(&old->reference_count), 2); /* taken once, not per request */
    write_file(world, 2);
    assert_int_equal(dk_models_reload(world->registry, NULL), DK_OK);
    assert_ptr_equal(dk_shm_models_get(world->models, id, &detail), old); /* within a turn */
    assert_int_equal(atomic_load(&old->reference_count), 1);
    dk_shm_models_refresh(world->models); /* frees it: a leak would be seen by the sanitizer */
    assert_int_equal(dk_shm_models_get(world->models, id, &detail)->version, 2);
}

static void test_pushed_model_hides_the_daemons_and_is_replaced(void **state)
{
    struct world *world = *state;
    enum dk_ring_detail detail;
    uint32_t id = open_model(world, "gate");
    struct dk_model *daemons = dk_shm_models_get(world->models, id, &detail);
    assert_int_equal(push(world, "gate"), id);
    dk_shm_models_refresh(world->models);
    struct dk_model *own = dk_shm_models_get(world->models, id, &detail);
    assert_ptr_not_equal(own, daemons);
    assert_int_equal(own->version, 1);
    assert_int_equal(push(world, "gate"), id);
    dk_shm_models_refresh(world->models);
    assert_int_equal(dk_shm_models_get(world->models, id, &detail)->version, 2);
    uint64_t bytes = dk_shm_models_pushed_bytes(world->models, NULL);
    assert_true(bytes > 0);
    assert_int_equal(dk_shm_models_pushed_bytes(world->models, "gate"), bytes);
    assert_int_equal(dk_shm_models_pushed_bytes(world->models, "other"), 0);
}

static void test_too_many_names_are_refused(void **state)
{
    struct world *world = *state;
    struct dk_error error;
    uint32_t id = 0;
    char name[16];
    for (uint32_t i = 0; i < DK_SHM_MODELS_MAX; i++) {
        (void)snprintf(name, sizeof name, "m%u", i);
        assert_int_equal(push(world, name), i);
    }
    struct dk_model *one_more = ring_model_new(world->engine, "more", 1), *model;
    assert_int_equal(dk_shm_models_push(world->models, one_more, &id, &error), DK_BUSY);
    dk_model_release(one_more); /* still ours */
    assert_int_equal(dk_shm_models_open(world->models, "gate", &id, &model, &error), DK_BUSY);
    assert_int_equal(open_model(world, "m17"), 17);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_same_name_has_the_same_id),
        TEST(test_unknown_names_and_ids_are_refused),
        TEST(test_reload_is_seen_after_a_refresh_and_the_old_version_goes),
        TEST(test_pushed_model_hides_the_daemons_and_is_replaced),
        TEST(test_too_many_names_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
