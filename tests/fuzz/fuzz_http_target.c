/* fuzz_http_target.c: any bytes as a request target: decoding, the patterns of routes, names, the query. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/native_api.h"
#include "proto/utf8.h"
#include "server/http_pattern.h"
#include "server/http_target.h"

static void require(int condition, const char *text)
{
    if (!condition) {
        fprintf(stderr, "violated: %s\n", text);
        abort();
    }
}
#define REQUIRE(condition) require(condition, #condition)

static const char *const patterns[] = {"/",
                                       "/v1/matmul",
                                       "/v1/models/{model}",
                                       "/v2/models/{model}[/versions/{version}]",
                                       "/v2/models/{model}[/versions/{version}]/infer",
                                       "/v2/systemsharedmemory[/region/{region}]/unregister"};

static void check_text(const char *text)
{
    for (size_t i = 0, length = strlen(text), step; i < length; i += step) {
        step = dk_utf8_sequence(text + i, length - i);
        REQUIRE(step > 0 && (unsigned char)text[i] >= 0x20 && text[i] != 0x7f);
    }
}

/* What passes the check is a name and nothing else. */
static void check_parameters(const struct dk_path_parameters *parameters)
{
    const char *texts[] = {parameters->model, parameters->region};
    REQUIRE(strlen(parameters->version) <= 1);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        REQUIRE(texts[i][0] == '\0' || dk_model_name_is_valid(texts[i], strlen(texts[i])));
        REQUIRE(strchr(texts[i], '/') == NULL && strchr(texts[i], '%') == NULL &&
                strcmp(texts[i], "..") != 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct dk_target target;
    struct dk_error error;
    char *raw = malloc(size + 1);
    REQUIRE(raw != NULL);
    memcpy(raw, data, size);
    raw[size] = '\0';
    if (dk_target_parse(raw, &target, &error) == DK_OK) {
        check_text(target.path);
        for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
            struct dk_path_parameters parameters;
            if (dk_pattern_match(patterns[i], target.path, &parameters) &&
                dk_path_parameters_check(&parameters, &error) == DK_OK) {
                check_parameters(&parameters);
            }
        }
        char name[DK_TARGET_BYTES], value[DK_TARGET_BYTES];
        const char *cursor = target.query;
        bool has_value;
        dk_status status;
        while (dk_query_next(&cursor, name, value, &has_value, &status, &error)) {
            check_text(name);
        }
    }
    free(raw);
    return 0;
}
