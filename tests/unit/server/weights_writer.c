/* weights_writer.c: header and data, written beside the target and renamed over it. */
#include "tests/unit/server/weights_writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void write_raw_weights(const char *path, const char *header, const void *data, size_t bytes)
{
    char beside[256];
    unsigned char word[8];
    size_t length = strlen(header);
    snprintf(beside, sizeof beside, "%s.new", path);
    FILE *file = fopen(beside, "wb");
    assert_non_null(file);
    for (size_t i = 0; i < sizeof word; i++)
        word[i] = (unsigned char)((uint64_t)length >> (8 * i));
    assert_int_equal(fwrite(word, 1, sizeof word, file), sizeof word);
    assert_int_equal(fwrite(header, 1, length, file), length);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(rename(beside, path), 0);
}

void write_weights(const char *path, const struct test_tensor *tensors, size_t count)
{
    enum { HEADER_BYTES = 1 << 16 };
    size_t length = 1, bytes = 0, total = 0;
    for (size_t i = 0; i < count; i++)
        total += tensors[i].bytes;
    char *header = malloc(HEADER_BYTES), *data = malloc(total + 1);
    assert_non_null(header);
    assert_non_null(data);
    header[0] = '{';
    for (size_t i = 0; i < count; i++) {
        const struct test_tensor *tensor = &tensors[i];
        length += (size_t)snprintf(header + length, HEADER_BYTES - length,
                                   "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                                   i == 0 ? "" : ",", tensor->name, tensor->dtype, tensor->shape, bytes,
                                   bytes + tensor->bytes);
        assert_true(length < HEADER_BYTES - 1);
        memcpy(data + bytes, tensor->data, tensor->bytes);
        bytes += tensor->bytes;
    }
    memcpy(header + length, "}", 2);
    write_raw_weights(path, header, data, bytes);
    free(header);
    free(data);
}
