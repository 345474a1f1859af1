/* weights_writer.h: small safetensors files for tests. */
#ifndef DK_TESTS_WEIGHTS_WRITER_H
#define DK_TESTS_WEIGHTS_WRITER_H

#include <stddef.h>

struct test_tensor {
    const char *name, *dtype, *shape; /* shape as JSON: "[2,3]" */
    const void *data;
    size_t bytes;
};

/* Writes `header` as is behind its length word, then `data`; replaces the file by rename. Fails the running
 * cmocka test when it cannot. */
void write_raw_weights(const char *path, const char *header, const void *data, size_t bytes);
void write_weights(const char *path, const struct test_tensor *tensors, size_t count);

#endif
