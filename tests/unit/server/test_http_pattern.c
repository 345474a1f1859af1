/* test_http_pattern.c: which paths a pattern describes, and which names may stand in them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "server/http_pattern.h"

static const char infer[] = "/v2/models/{model}[/versions/{version}]/infer";
static const char unregister[] = "/v2/systemsharedmemory[/region/{region}]/unregister";

static void test_literal_paths_match_only_themselves(void **state)
{
    (void)state;
    struct dk_path_parameters parameters;
    assert_true(dk_pattern_match("/v1/models", "/v1/models", &parameters));
    assert_string_equal(parameters.model, "");
    assert_false(dk_pattern_match("/v1/models", "/v1/model", &parameters));
    assert_false(dk_pattern_match("/v1/models", "/v1/modelsx", &parameters));
    assert_false(dk_pattern_match("/v1/models", "/v1/models/", &parameters));
    assert_false(dk_pattern_match("/v1/models", "", &parameters));
}

static void test_segments_are_taken_whole(void **state)
{
    (void)state;
    struct dk_path_parameters parameters;
    assert_true(dk_pattern_match(infer, "/v2/models/gate.0/infer", &parameters));
    assert_string_equal(parameters.model, "gate.0");
    assert_string_equal(parameters.version, "");
    assert_true(dk_pattern_match(infer, "/v2/models/versions/versions/1/infer", &parameters));
    assert_string_equal(parameters.model, "versions");
    assert_string_equal(parameters.version, "1");
    assert_true(dk_pattern_match(unregister, "/v2/systemsharedmemory/unregister", &parameters));
    assert_string_equal(parameters.region, "");
    assert_true(dk_pattern_match(unregister, "/v2/systemsharedmemory/region/in/unregister", &parameters));
    assert_string_equal(parameters.region, "in");
    assert_string_equal(parameters.model, "");
}

static void test_c38_other_paths_do_not_match(void **state)
{
    (void)state;
    static const char *const paths[] = {
        "/v2/models//infer",
        "/v2/models/infer",
        "/v2/models/m/infer/",
        "/v2/models/m/x/infer",
        "/v2/models/m/versions/infer",
        "/v2/models/m/versions//infer",
        "/v2/models/m/versions/1/2/infer",
        "/v2/models/v2/models/m/infer",
        "/v2/models/m/inferx",
        "/v2/models/m",
    };
    struct dk_path_parameters parameters;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        assert_false(dk_pattern_match(infer, paths[i], &parameters));
    }
}

static void test_c38_names_that_no_model_has_are_not_found(void **state)
{
    (void)state;
    static const char *const names[] = {"a b", "a%2Fb", "..", ".", "\xc3\xa4", "a\"b", "a+b"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct dk_path_parameters parameters = {0};
        struct dk_error error;
        strcpy(parameters.model, names[i]);
        assert_int_equal(dk_path_parameters_check(&parameters, &error), DK_NOT_FOUND);
        assert_non_null(strstr(error.message, names[i]));
        memset(&parameters, 0, sizeof parameters);
        strcpy(parameters.region, names[i]);
        assert_int_equal(dk_path_parameters_check(&parameters, &error), DK_BAD_VALUE);
        assert_non_null(strstr(error.message, names[i]));
    }
}

static void test_c38_a_name_of_65_bytes_is_not_found(void **state)
{
    (void)state;
    char path[300] = "/v2/models/";
    struct dk_path_parameters parameters;
    struct dk_error error;
    memset(path + strlen(path), 'a', 64);
    strcat(path, "/infer");
    assert_true(dk_pattern_match(infer, path, &parameters));
    assert_int_equal(dk_path_parameters_check(&parameters, &error), DK_OK);
    memset(path, 0, sizeof path);
    strcpy(path, "/v2/models/");
    memset(path + strlen(path), 'a', 200);
    strcat(path, "/infer");
    assert_true(dk_pattern_match(infer, path, &parameters));
    assert_int_equal(strlen(parameters.model), sizeof parameters.model - 1);
    assert_int_equal(dk_path_parameters_check(&parameters, &error), DK_NOT_FOUND);
}

static void test_only_version_1_exists(void **state)
{
    (void)state;
    static const char *const versions[] = {"0", "2", "01", "1.0", "-1", "+1", "one", "18446744073709551617"};
    struct dk_path_parameters parameters = {.model = "m", .version = "1"};
    struct dk_error error;
    assert_int_equal(dk_path_parameters_check(&parameters, &error), DK_OK);
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        strcpy(parameters.version, versions[i]);
        assert_int_equal(dk_path_parameters_check(&parameters, &error), DK_NOT_FOUND);
        assert_non_null(strstr(error.message, versions[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_literal_paths_match_only_themselves),
        cmocka_unit_test(test_segments_are_taken_whole),
        cmocka_unit_test(test_c38_other_paths_do_not_match),
        cmocka_unit_test(test_c38_names_that_no_model_has_are_not_found),
        cmocka_unit_test(test_c38_a_name_of_65_bytes_is_not_found),
        cmocka_unit_test(test_only_version_1_exists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
