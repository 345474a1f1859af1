/* infer_input.c: load or draw the rows of `infer`. */
#include "client/cli/infer_input.h"

#include <stdlib.h>
#include <string.h>

#include "client/file.h"
#include "client/npy.h"
#include "client/random.h"
#include "proto/gemm.h"

static const size_t max_input_bytes = (size_t)8 << 30;

static bool has_suffix(const char *text, const char *suffix)
{
    size_t a = strlen(text), b = strlen(suffix);
    return a >= b && strcmp(text + a - b, suffix) == 0;
}

/* Never asks malloc for nothing: an empty x is a valid pointer too. */
static void *allocate_rows(uint64_t rows, uint64_t k, dk_dtype dtype, struct dk_error *error)
{
    size_t items, bytes;
    void *x = NULL;
    if (dk_size_mul(rows, k, &items) && dk_size_mul(items, dk_dtype_bytes(dtype), &bytes))
        x = malloc(bytes > 0 ? bytes : 1);
    if (!x)
        dk_fail(error, DK_NO_MEMORY, "no memory for %llu rows of %llu values", (unsigned long long)rows,
                (unsigned long long)k);
    return x;
}

static dk_status check_row_count(uint64_t rows, struct dk_error *error)
{
    if (rows <= DK_INFER_MAX_ROWS)
        return DK_OK;
    return dk_fail(error, DK_TOO_LARGE, "the input has %llu rows; at most %d fit one request",
                   (unsigned long long)rows, DK_INFER_MAX_ROWS);
}

static dk_status take_npy(const void *bytes, size_t length, dk_dtype dtype, uint64_t k,
                          struct dk_infer_input *out, struct dk_error *error)
{
    struct dk_npy npy;
    dk_status status = dk_npy_parse(bytes, length, &npy, error);
    if (status != DK_OK)
        return status;
    bool is_empty_list = npy.rank == 1 && npy.cols == 0;
    if (npy.cols != k && !is_empty_list)
        return dk_fail(error, DK_BAD_SHAPE, "the input has %llu columns, the model's K is %llu",
                       (unsigned long long)npy.cols, (unsigned long long)k);
    if ((status = check_row_count(npy.rows, error)) != DK_OK)
        return status;
    void *x = allocate_rows(npy.rows, k, dtype, error);
    if (!x)
        return DK_NO_MEMORY;
    if ((status = dk_npy_convert(&npy, bytes, dtype, x, error)) != DK_OK) {
        free(x);
        return status;
    }
    *out = (struct dk_infer_input){.x = x, .rows = npy.rows};
    return DK_OK;
}

/* Takes `bytes` on success. */
static dk_status take_bare(void *bytes, size_t length, dk_dtype dtype, uint64_t k, struct dk_infer_input *out,
                           struct dk_error *error)
{
    size_t row_bytes = (size_t)k * dk_dtype_bytes(dtype);
    if (length % row_bytes != 0)
        return dk_fail(error, DK_BAD_SHAPE, "%zu bytes are not whole rows of %llu %s values (%zu bytes each)",
                       length, (unsigned long long)k, dk_dtype_name(dtype, DK_DIALECT_NATIVE), row_bytes);
    dk_status status = check_row_count(length / row_bytes, error);
    if (status == DK_OK)
        *out = (struct dk_infer_input){.x = bytes, .rows = length / row_bytes};
    return status;
}

dk_status dk_infer_input_load(const char *path, bool is_raw, dk_dtype dtype, uint64_t k,
                              struct dk_infer_input *out, struct dk_error *error)
{
    void *bytes;
    size_t length;
    dk_status status = dk_file_read(path, max_input_bytes, &bytes, &length, error);
    if (status != DK_OK)
        return status;
    bool is_npy = !is_raw && (has_suffix(path, ".npy") || dk_npy_has_magic(bytes, length));
    if (!is_npy) {
        status = take_bare(bytes, length, dtype, k, out, error);
        if (status == DK_OK)
            return DK_OK;
    } else {
        status = take_npy(bytes, length, dtype, k, out, error);
    }
    free(bytes);
    return status;
}

dk_status dk_infer_input_random(uint64_t seed, uint64_t rows, dk_dtype dtype, uint64_t k,
                                struct dk_infer_input *out, struct dk_error *error)
{
    unsigned char *x = allocate_rows(rows, k, dtype, error);
    if (!x)
        return DK_NO_MEMORY;
    struct dk_random random;
    dk_random_init(&random, seed, 0);
    double values[512];
    size_t chunk;
    for (uint64_t done = 0, count = rows * k; done < count; done += chunk) {
        chunk = count - done < 512 ? (size_t)(count - done) : 512;
        dk_random_normal_fill(&random, 1.0, values, chunk);
        dk_convert_from_double(values, x + done * dk_dtype_bytes(dtype), dtype, chunk);
    }
    *out = (struct dk_infer_input){.x = x, .rows = rows};
    return DK_OK;
}
