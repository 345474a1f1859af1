/* fuzz_safetensors.c: any bytes as a safetensors file. What is accepted must tile the data section exactly.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/safetensors.h"

static void require(int condition, const char *text)
{
    if (!condition) {
        fprintf(stderr, "violated: %s\n", text);
        abort();
    }
}
#define REQUIRE(condition) require(condition, #condition)

static void check_index(const struct dk_st_index *index, uint64_t file_bytes)
{
    uint64_t end = 0;
    REQUIRE(8 + index->header_bytes + index->data_bytes == file_bytes);
    for (size_t i = 0; i < index->tensor_count; i++) {
        const struct dk_st_tensor *tensor = &index->tensors[i];
        REQUIRE(tensor->begin == end && tensor->end >= tensor->begin && tensor->rank <= DK_ST_MAX_RANK);
        REQUIRE(tensor->file_offset == 8 + index->header_bytes + tensor->begin);
        REQUIRE(strlen(tensor->name) <= DK_ST_MAX_NAME_BYTES);
        REQUIRE(dk_st_index_find(index, tensor->name) == tensor);
        if (tensor->dtype >= 0) {
            uint64_t bytes = dk_dtype_bytes((dk_dtype)tensor->dtype);
            for (uint32_t d = 0; d < tensor->rank; d++) {
                bytes *= tensor->shape[d];
            }
            REQUIRE(bytes == tensor->end - tensor->begin);
        }
        end = tensor->end;
    }
    REQUIRE(end == index->data_bytes);
}

static void parse(const uint8_t *bytes, size_t available, uint64_t file_bytes)
{
    struct dk_st_index index;
    struct dk_error error = {0};
    uint8_t *copy = malloc(available == 0 ? 1 : available);
    REQUIRE(copy != NULL);
    memcpy(copy, bytes, available);
    if (dk_st_index_parse(copy, available, file_bytes, &index, &error) == DK_OK) {
        free(copy); /* the index owns all it needs */
        check_index(&index, file_bytes);
        dk_st_index_deinit(&index);
        return;
    }
    REQUIRE(error.status != DK_OK && error.message[0] != '\0');
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* As it is: length word, header, data. */
    parse(data, size, size);
    /* As a header alone with a right length word and a data section that is not mapped: the fuzzer need not
     * find the word, and big offsets can be right. */
    uint8_t *file = malloc(8 + size);
    REQUIRE(file != NULL);
    for (int i = 0; i < 8; i++) {
        file[i] = (uint8_t)((uint64_t)size >> (8 * i));
    }
    if (size > 0) {
        memcpy(file + 8, data, size);
    }
    static const uint64_t data_bytes[] = {0, 8, 3670016, UINT64_MAX / 2};
    for (size_t i = 0; i < sizeof data_bytes / sizeof data_bytes[0]; i++) {
        parse(file, 8 + size, 8 + size + data_bytes[i]);
    }
    free(file);
    return 0;
}
