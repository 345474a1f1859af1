/* fuzz_inflate.c: any bytes as a compressed body: the split changes nothing, no byte is written beyond a
 * block. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/http_inflate.h"

enum { OUTPUT_MAX = 1 << 20 };

static void require(int condition, const char *text)
{
    if (!condition) {
        fprintf(stderr, "violated: %s\n", text);
        abort();
    }
}
#define REQUIRE(condition) require(condition, #condition)

struct result {
    size_t length;
    bool has_failed, is_complete;
    uint64_t hash;
};

static struct result run(enum dk_coding coding, const uint8_t *data, size_t size, size_t step, size_t block)
{
    struct dk_inflater *inflater;
    struct result result = {.hash = 1469598103934665603u};
    char *out = malloc(block);
    REQUIRE(out != NULL && dk_inflater_new(coding, &inflater, NULL) == DK_OK);
    size_t written = block;
    for (size_t offset = 0;
         !result.has_failed && result.length < OUTPUT_MAX && (offset < size || written == block);) {
        size_t piece = size - offset < step ? size - offset : step, consumed = 0;
        struct dk_error error;
        result.has_failed = dk_inflater_next(inflater, (const char *)data + offset, piece, &consumed, out,
                                             block, &written, &error) != DK_OK;
        if (!result.has_failed) {
            REQUIRE(consumed <= piece && written <= block);
            REQUIRE(consumed > 0 || written > 0 || piece == 0);
            offset += consumed;
            for (size_t i = 0; i < written; i++) {
                result.hash = (result.hash ^ (uint8_t)out[i]) * 1099511628211u;
            }
            result.length += written;
        }
    }
    result.is_complete = dk_inflater_is_complete(inflater);
    dk_inflater_free(inflater);
    free(out);
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    enum dk_coding coding = data[0] % 2 == 0 ? DK_CODING_GZIP : DK_CODING_DEFLATE;
    struct result whole = run(coding, data + 2, size - 2, size, 1000);
    struct result split = run(coding, data + 2, size - 2, data[1] % 64 + 1, 1000);
    if (whole.length < OUTPUT_MAX && split.length < OUTPUT_MAX && !whole.has_failed) {
        REQUIRE(!split.has_failed && whole.length == split.length && whole.hash == split.hash);
        REQUIRE(whole.is_complete == split.is_complete);
    }
    if (whole.length < OUTPUT_MAX && whole.has_failed) {
        REQUIRE(split.has_failed);
    }
    return 0;
}
