/* gemm.c: names of epilogues and layouts, and the checked sizes of one product. */
#include "proto/gemm.h"

#include <string.h>

static const char *const epilogue_names[DK_EPILOGUE_COUNT] = {
#define DK_EPILOGUE_NAME(name, text) [DK_EPILOGUE_##name] = (text),
    DK_EPILOGUE_MAP(DK_EPILOGUE_NAME)
#undef DK_EPILOGUE_NAME
};

static const char *const layout_names[] = {[DK_LAYOUT_KN] = "kn", [DK_LAYOUT_NK] = "nk"};
enum { LAYOUT_COUNT = sizeof layout_names / sizeof layout_names[0] };

/* Index of `text` in `names`, or `count`. */
static size_t find_name(const char *const *names, size_t count, const char *text, size_t length)
{
    size_t i = 0;
    while (i < count && (strlen(names[i]) != length || memcmp(names[i], text, length) != 0)) {
        i++;
    }
    return i;
}

const char *dk_epilogue_name(dk_epilogue epilogue)
{
    unsigned index = (unsigned)epilogue;
    return index < DK_EPILOGUE_COUNT ? epilogue_names[index] : "unknown";
}

dk_status dk_epilogue_parse(const char *text, size_t length, dk_epilogue *out)
{
    size_t index = find_name(epilogue_names, DK_EPILOGUE_COUNT, text, length);
    if (index == DK_EPILOGUE_COUNT) {
        return DK_BAD_VALUE;
    }
    *out = (dk_epilogue)index;
    return DK_OK;
}

const char *dk_layout_name(dk_layout layout)
{
    unsigned index = (unsigned)layout;
    return index < LAYOUT_COUNT ? layout_names[index] : "unknown";
}

dk_status dk_layout_parse(const char *text, size_t length, dk_layout *out)
{
    size_t index = find_name(layout_names, LAYOUT_COUNT, text, length);
    if (index == LAYOUT_COUNT) {
        return DK_BAD_VALUE;
    }
    *out = (dk_layout)index;
    return DK_OK;
}

bool dk_size_mul(size_t a, size_t b, size_t *out)
{
    size_t product;
    if (__builtin_mul_overflow(a, b, &product)) {
        return false;
    }
    *out = product;
    return true;
}

bool dk_size_add(size_t a, size_t b, size_t *out)
{
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum)) {
        return false;
    }
    *out = sum;
    return true;
}

static dk_status check_extent(const char *name, uint64_t value, uint64_t low, uint64_t high,
                              struct dk_error *error)
{
    if (value < low || value > high) {
        return dk_fail(error, DK_BAD_SHAPE, "%s is %llu; allowed are %llu to %llu", name,
                       (unsigned long long)value, (unsigned long long)low, (unsigned long long)high);
    }
    return DK_OK;
}

static dk_status check_float(const char *name, dk_dtype dtype, struct dk_error *error)
{
    if (dk_dtype_is_float(dtype)) {
        return DK_OK;
    }
    if ((unsigned)dtype < DK_DTYPE_COUNT) {
        return dk_fail(error, DK_BAD_DTYPE, "the type of %s is %s; expected fp32, bf16 or fp16", name,
                       dk_dtype_name(dtype, DK_DIALECT_NATIVE));
    }
    return dk_fail(error, DK_BAD_DTYPE, "the type of %s is number %d; expected fp32, bf16 or fp16", name,
                   (int)dtype);
}

static bool matrix_bytes(uint64_t rows, uint64_t columns, dk_dtype dtype, size_t *out)
{
    size_t count;
    return dk_size_mul((size_t)rows, (size_t)columns, &count) &&
           dk_size_mul(count, dk_dtype_bytes(dtype), out);
}

dk_status dk_gemm_check(const struct dk_gemm *gemm, struct dk_gemm_sizes *out, struct dk_error *error)
{
    dk_status status = check_extent("m", gemm->m, 0, DK_MAX_M, error);
    if (status == DK_OK) {
        status = check_extent("n", gemm->n, 1, DK_MAX_N, error);
    }
    if (status == DK_OK) {
        status = check_extent("k", gemm->k, 1, DK_MAX_K, error);
    }
    if (status == DK_OK) {
        status = check_float("a", gemm->a_dtype, error);
    }
    if (status == DK_OK) {
        status = check_float("b", gemm->b_dtype, error);
    }
    if (status == DK_OK) {
        status = check_float("c", gemm->c_dtype, error);
    }
    if (status != DK_OK) {
        return status;
    }
    if ((unsigned)gemm->b_layout >= LAYOUT_COUNT || (unsigned)gemm->epilogue >= DK_EPILOGUE_COUNT) {
        return dk_fail(error, DK_BAD_VALUE, "layout %d or epilogue %d is unknown", (int)gemm->b_layout,
                       (int)gemm->epilogue);
    }
    struct dk_gemm_sizes sizes = {0};
    if (!matrix_bytes(gemm->m, gemm->k, gemm->a_dtype, &sizes.a_bytes) ||
        !matrix_bytes(gemm->k, gemm->n, gemm->b_dtype, &sizes.b_bytes) ||
        !matrix_bytes(gemm->m, gemm->n, gemm->c_dtype, &sizes.c_bytes)) {
        return dk_fail(error, DK_BAD_SHAPE, "m=%llu n=%llu k=%llu overflows the address space",
                       (unsigned long long)gemm->m, (unsigned long long)gemm->n, (unsigned long long)gemm->k);
    }
    sizes.bias_bytes = gemm->has_bias ? (size_t)gemm->n * sizeof(float) : 0;
    *out = sizes;
    return DK_OK;
}
