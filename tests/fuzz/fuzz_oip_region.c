/* fuzz_oip_region.c: any bytes as the body of a shared-memory or repository request, and as texts of headers.
 * What is accepted must keep the promises of the headers of proto.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/oip.h"

static void require(int condition, const char *text)
{
    if (!condition) {
        fprintf(stderr, "violated: %s\n", text);
        abort();
    }
}
#define REQUIRE(condition) require(condition, #condition)

static void check_refusal(dk_status status, const struct dk_error *error)
{
    REQUIRE(error->status == status && error->message[0] != '\0');
    REQUIRE(dk_status_http(status) < 500 || status == DK_UNSUPPORTED);
}

static void check_system(const char *skeleton, size_t length)
{
    struct dk_oip_system_region region;
    struct dk_error error = {0};
    dk_status status = dk_oip_system_region_parse(skeleton, length, &region, &error);
    if (status != DK_OK) {
        check_refusal(status, &error);
        return;
    }
    const char *last_slash = strrchr(region.key, '/');
    REQUIRE(region.object == (last_slash == NULL ? region.key : last_slash + 1));
    REQUIRE(strspn(region.key, "/") == (size_t)(region.object - region.key));
    REQUIRE(region.object[0] != '\0' && strcmp(region.object, ".") != 0 && strcmp(region.object, "..") != 0);
    REQUIRE(region.byte_size > 0 && region.byte_size <= INT64_MAX);
    REQUIRE(region.offset <= (uint64_t)INT64_MAX - region.byte_size);
    const struct dk_oip_system_status listed = {"r", region.key, region.offset, region.byte_size};
    struct dk_json_text text = {0};
    dk_json_text_raw(&text, "{\"l\":");
    dk_oip_system_regions(&text, &listed, 1);
    dk_json_text_raw(&text, "}");
    struct dk_json_reader *reader;
    REQUIRE(dk_json_reader_new(NULL, 0, NULL, &reader) == DK_OK);
    REQUIRE(dk_json_reader_feed(reader, text.data, text.length, &error) == DK_OK);
    REQUIRE(dk_json_reader_finish(reader, &skeleton, &length, &error) == DK_OK);
    dk_json_reader_free(reader);
    dk_json_text_free(&text);
}

static void check_others(const char *skeleton, size_t length)
{
    struct dk_oip_cuda_region region;
    struct dk_error error = {0};
    bool is_only_ready;
    dk_status status = dk_oip_cuda_region_parse(skeleton, length, &region, &error);
    if (status == DK_OK) {
        REQUIRE(region.byte_size > 0 && region.byte_size <= INT64_MAX && region.device_id <= INT32_MAX);
    } else {
        check_refusal(status, &error);
    }
    status = dk_oip_index_request_parse(skeleton, length, &is_only_ready, &error);
    if (status != DK_OK) {
        check_refusal(status, &error);
    }
    status = dk_oip_load_request_parse(skeleton, length, &error);
    if (status != DK_OK) {
        check_refusal(status, &error);
    }
    status = dk_oip_unload_request_parse(skeleton, length, &error);
    if (status != DK_OK) {
        check_refusal(status, &error);
    }
}

static void check_texts(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct dk_error error = {0};
    enum dk_coding coding;
    REQUIRE(text != NULL);
    if (size > 0) {
        memcpy(text, data, size);
    }
    text[size] = '\0';
    dk_status status = dk_coding_parse(text, &coding, &error);
    REQUIRE(status == DK_OK ? coding < DK_CODING_COUNT : status == DK_UNSUPPORTED_MEDIA);
    REQUIRE(dk_coding_choose(text) < DK_CODING_COUNT);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dk_json_reader *reader;
    struct dk_error error;
    const char *skeleton;
    size_t length;
    check_texts(data, size);
    REQUIRE(dk_json_reader_new(NULL, 0, NULL, &reader) == DK_OK);
    (void)dk_json_reader_feed(reader, (const char *)data, size, &error);
    if (dk_json_reader_finish(reader, &skeleton, &length, &error) == DK_OK) {
        /* Without the NUL that follows it. */
        char *copy = malloc(length);
        REQUIRE(copy != NULL);
        memcpy(copy, skeleton, length);
        check_system(copy, length);
        check_others(copy, length);
        free(copy);
    }
    dk_json_reader_free(reader);
    return 0;
}
