/* test_routers.c: which tensors of a checkpoint are taken for routers, and what an index must not do. */
#include "tests/unit/proto/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/routers.h"

static struct dk_routers routers;

static int tear_down(void **state)
{
    (void)state;
    dk_routers_deinit(&routers);
    return 0;
}

static dk_status add(const char *tensor, const char *file, struct dk_error *error)
{
    return dk_routers_add(&routers, 61, tensor, file, error);
}

static void test_parts_in_different_files_meet_under_one_name(void **state)
{
    (void)state;
    assert_int_equal(add("model.layers.12.mlp.gate.e_score_correction_bias", "b.safetensors", NULL), DK_OK);
    assert_int_equal(add("model.layers.3.mlp.gate.weight", "a.safetensors", NULL), DK_OK);
    assert_int_equal(add("model.layers.12.mlp.gate.weight", "a.safetensors", NULL), DK_OK);
    assert_int_equal(dk_routers_finish(&routers, NULL), DK_OK);
    assert_int_equal(routers.count, 2);
    assert_string_equal(routers.routers[0].name, "layers.3.mlp.gate");
    assert_string_equal(routers.routers[0].parts[DK_ROUTER_CORRECTION_BIAS].name, "");
    const struct dk_router *router = &routers.routers[1];
    assert_string_equal(router->name, "layers.12.mlp.gate");
    assert_int_equal(router->layer, 12);
    assert_string_equal(router->parts[DK_ROUTER_WEIGHT].file, "a.safetensors");
    assert_string_equal(router->parts[DK_ROUTER_CORRECTION_BIAS].file, "b.safetensors");
}

static void test_every_spelling(void **state)
{
    (void)state;
    static const struct {
        const char *tensor, *name;
        enum dk_router_part part;
    } cases[] = {
        {"layers.3.ffn.gate.weight", "layers.3.ffn.gate", DK_ROUTER_WEIGHT},
        {"layers.3.ffn.gate.bias", "layers.3.ffn.gate", DK_ROUTER_CORRECTION_BIAS},
        {"model.layers.0.block_sparse_moe.gate.weight", "layers.0.block_sparse_moe.gate", DK_ROUTER_WEIGHT},
        {"model.layers.0.block_sparse_moe.e_score_correction_bias", "layers.0.block_sparse_moe.gate",
         DK_ROUTER_CORRECTION_BIAS},
        {"model.layers.35.mlp.router.weight", "layers.35.mlp.router", DK_ROUTER_WEIGHT},
        {"model.layers.35.mlp.router.bias", "layers.35.mlp.router", DK_ROUTER_LOGIT_BIAS},
        {"language_model.model.layers.7.mlp.gate.weight", "layers.7.mlp.gate", DK_ROUTER_WEIGHT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(add(cases[i].tensor, "f.safetensors", NULL), DK_OK);
        bool is_found = false;
        for (size_t r = 0; r < routers.count; r++) {
            is_found =
                is_found || (strcmp(routers.routers[r].name, cases[i].name) == 0 &&
                             strcmp(routers.routers[r].parts[cases[i].part].name, cases[i].tensor) == 0);
        }
        assert_true(is_found);
    }
}

static void test_other_tensors_are_ignored(void **state)
{
    (void)state;
    static const char *const names[] = {
        "model.layers.3.mlp.gate_proj.weight",
        "model.layers.3.mlp.experts.0.gate.weight",
        "model.layers.3.mlp.gate.weight.scale",
        "model.layers.61.mlp.gate.weight", /* a predictor of further tokens */
        "model.layers.03.mlp.gate.weight",
        "model.layers.-3.mlp.gate.weight",
        "model.layers.99999999999.mlp.gate.weight",
        "model.layers.mlp.gate.weight",
        "model.players.3.mlp.gate.weight",
        "mlp.gate.weight",
        "",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(add(names[i], "../x", NULL), DK_OK);
    }
    assert_int_equal(routers.count, 0);
    struct dk_error error;
    assert_int_equal(dk_routers_finish(&routers, &error), DK_BAD_FILE);
}

static void test_files_elsewhere_are_refused(void **state)
{
    (void)state;
    static const char *const files[] = {"../a.safetensors", "/etc/passwd", "a/b.safetensors", "..", ".", ""};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct dk_error error = {0};
        assert_int_equal(add("layers.3.ffn.gate.weight", files[i], &error), DK_BAD_FILE);
        assert_non_null(strstr(error.message, "layers.3.ffn.gate.weight"));
    }
    assert_int_equal(routers.count, 0);
}

static void test_contradictions_are_refused(void **state)
{
    (void)state;
    struct dk_error error = {0};
    assert_int_equal(add("a.layers.3.mlp.gate.weight", "f", NULL), DK_OK);
    assert_int_equal(add("b.layers.3.mlp.gate.weight", "f", &error), DK_BAD_FILE);
    assert_non_null(strstr(error.message, "a.layers.3.mlp.gate.weight"));
    assert_non_null(strstr(error.message, "b.layers.3.mlp.gate.weight"));
    assert_int_equal(add("a.layers.4.mlp.gate.e_score_correction_bias", "g", NULL), DK_OK);
    assert_int_equal(dk_routers_finish(&routers, &error), DK_BAD_FILE);
    assert_non_null(strstr(error.message, "layers.4.mlp.gate.e_score_correction_bias\" (g) has no weight"));
}

static void test_too_many_routers_are_refused(void **state)
{
    (void)state;
    char name[64];
    for (uint32_t layer = 0; layer <= DK_MAX_ROUTERS; layer++) {
        (void)snprintf(name, sizeof name, "layers.%u.mlp.gate.weight", layer);
        dk_status status = dk_routers_add(&routers, UINT32_MAX, name, "f", NULL);
        assert_int_equal(status, layer < DK_MAX_ROUTERS ? DK_OK : DK_TOO_LARGE);
    }
}

static void test_index_file(void **state)
{
    (void)state;
    static const char text[] =
        "{\"metadata\":{\"total_size\":1},\"weight_map\":{\"model.embed\":\"a.safetensors\","
        "\"model.layers.3.mlp.gate.weight\":\"a.safetensors\","
        "\"model.layers.3.mlp.g\\u0061te.e_score_correction_bias\":\"b.safetensors\"}}";
    assert_int_equal(dk_routers_add_index(&routers, 61, text, sizeof text - 1, NULL), DK_OK);
    assert_int_equal(dk_routers_finish(&routers, NULL), DK_OK);
    assert_int_equal(routers.count, 1);
    assert_string_equal(routers.routers[0].parts[DK_ROUTER_CORRECTION_BIAS].file, "b.safetensors");
}

static void test_wrong_index_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *quoted;
    } cases[] = {
        {"", "byte 0"},
        {"[]", "expected a JSON object"},
        {"{}", "no weight_map"},
        {"{\"weight_map\":[]}", "weight_map: expected an object"},
        {"{\"weight_map\":{\"layers.1.ffn.gate.weight\":7}}", "layers.1.ffn.gate.weight"},
        {"{\"weight_map\":{\"layers.1.ffn.gate.weight\":\"../x\"}}", "same folder"},
        {"{\"weight_map\":{\"a\":\"b\",\"a\":\"b\"}}", "byte"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dk_error error = {0};
        dk_status status = dk_routers_add_index(&routers, 61, cases[i].text, strlen(cases[i].text), &error);
        if (status != DK_BAD_FILE || strstr(error.message, cases[i].quoted) == NULL) {
            fail_msg("%s: status %s, \"%s\"", cases[i].text, dk_status_name(status), error.message);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_parts_in_different_files_meet_under_one_name, tear_down),
        cmocka_unit_test_teardown(test_every_spelling, tear_down),
        cmocka_unit_test_teardown(test_other_tensors_are_ignored, tear_down),
        cmocka_unit_test_teardown(test_files_elsewhere_are_refused, tear_down),
        cmocka_unit_test_teardown(test_contradictions_are_refused, tear_down),
        cmocka_unit_test_teardown(test_too_many_routers_are_refused, tear_down),
        cmocka_unit_test_teardown(test_index_file, tear_down),
        cmocka_unit_test_teardown(test_wrong_index_files_are_refused, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
