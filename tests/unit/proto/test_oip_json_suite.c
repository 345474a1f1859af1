/* test_oip_json_suite.c: the files of tests/conformance/json, whole and byte by byte, without HTTP. */
#include "tests/unit/proto/oip_parse.h"

#include <dirent.h>
#include <stdlib.h>

#include "proto/dtype.h"

enum { MAX_FILE_BYTES = 256 * 1024 };

static const struct dk_oip_tensor_spec outputs[] = {{.name = "logits", .dtype = DK_FP32, .row_length = 3}};
static const struct dk_oip_model model = {.name = "m",
                                          .platform = "decomposek",
                                          .input = {.name = "x", .dtype = DK_FP32, .row_length = 4},
                                          .outputs = outputs,
                                          .output_count = 1,
                                          .max_batch_size = 16};

struct largest {
    double value; /* by magnitude, of all numbers */
};

static dk_status keep_largest(void *context, const struct dk_json_tensor *tensor, uint64_t offset,
                              const double *values, size_t count, struct dk_error *error)
{
    (void)tensor;
    (void)offset;
    (void)error;
    struct largest *largest = context;
    for (size_t i = 0; i < count; i++) {
        double magnitude = values[i] < 0 ? -values[i] : values[i];
        largest->value = magnitude > largest->value ? magnitude : largest->value;
    }
    return DK_OK;
}

/* As the daemon judges a body. */
static dk_status judge(const char *body, size_t length, size_t part, struct dk_error *error)
{
    static struct dk_oip_request request;
    struct largest largest = {0};
    const struct dk_json_sink sink = {.context = &largest, .values = keep_largest};
    const struct dk_oip_framing framing = {.kind = DK_OIP_ALL_JSON};
    struct dk_json_reader *reader;
    assert_int_equal(dk_json_reader_new(dk_oip_paths, DK_OIP_PATH_COUNT, &sink, &reader), DK_OK);
    for (size_t at = 0; at < length; at += part) {
        (void)dk_json_reader_feed(reader, body + at, part < length - at ? part : length - at, error);
    }
    dk_status status = dk_oip_request_parse(reader, &request, error);
    dk_json_reader_free(reader);
    if (status == DK_OK) {
        status = dk_oip_request_check_binary(&request, &framing, length, error);
    }
    if (status == DK_OK) {
        status = dk_oip_request_check(&request, &model, error);
    }
    if (status == DK_OK && dk_dtype_overflows(request.inputs[0].dtype, largest.value)) {
        return dk_fail(error, DK_BAD_VALUE, "%g is too large", largest.value);
    }
    return status;
}

static size_t read_file(const char *path, char *out)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t length = fread(out, 1, MAX_FILE_BYTES, file);
    assert_true(feof(file) && !ferror(file));
    assert_int_equal(fclose(file), 0);
    return length;
}

/* Returns whether the file was judged as its folder says. */
static bool judge_file(const char *path, bool is_valid)
{
    static char body[MAX_FILE_BYTES];
    size_t length = read_file(path, body);
    struct dk_error whole = {0};
    struct dk_error split = {0};
    dk_status status = judge(body, length, MAX_FILE_BYTES, &whole);
    dk_status split_status = judge(body, length, 1, &split);
    bool is_right = is_valid ? status == DK_OK : dk_status_http(status) == 400 && whole.message[0] != '\0';
    bool is_same = status == split_status && strcmp(whole.message, split.message) == 0;
    if (!is_right || !is_same) {
        print_error("%s: %s: %s; byte by byte %s: %s\n", path, dk_status_name(status), whole.message,
                    dk_status_name(split_status), split.message);
    }
    return is_right && is_same;
}

static void judge_folder(const char *folder, bool is_valid, size_t at_least)
{
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    size_t count = 0;
    size_t wrong_count = 0;
    const struct dirent *entry;
    while ((entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] != '.') {
            char path[1024];
            (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            wrong_count += judge_file(path, is_valid) ? 0 : 1;
            count++;
        }
    }
    assert_int_equal(closedir(directory), 0);
    assert_int_equal(wrong_count, 0);
    assert_in_range(count, at_least, SIZE_MAX);
}

static void test_valid_files_are_accepted(void **state)
{
    (void)state;
    judge_folder(DK_JSON_SUITE "/valid", true, 48);
}

static void test_invalid_files_are_refused(void **state)
{
    (void)state;
    judge_folder(DK_JSON_SUITE "/invalid", false, 246);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid_files_are_accepted),
        cmocka_unit_test(test_invalid_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
