/* rounding.c: conversion, then a scan of the result for infinities (the source has none). */
#include "server/rounding.h"

#include <string.h>

/* Index of the first infinity, or count. Exponent bits all set and the source finite: it overflowed. */
static size_t find_infinity(const void *data, dk_dtype dtype, size_t count)
{
    const unsigned char *bytes = data;
    uint32_t mask = dtype == DK_FP32 ? 0x7fffffffu : 0x7fffu;
    uint32_t infinity = dtype == DK_FP32 ? 0x7f800000u : dtype == DK_BF16 ? 0x7f80u : 0x7c00u;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        if (dtype == DK_FP32) {
            memcpy(&bits, bytes + i * sizeof bits, sizeof bits);
        } else {
            uint16_t half;
            memcpy(&half, bytes + i * sizeof half, sizeof half);
            bits = half;
        }
        if ((bits & mask) == infinity) {
            return i;
        }
    }
    return count;
}

dk_status dk_round_doubles(const double *src, void *dst, dk_dtype dtype, size_t count, const char *tensor,
                           uint64_t first_index, struct dk_error *error)
{
    dk_convert_from_double(src, dst, dtype, count);
    size_t index = find_infinity(dst, dtype, count);
    if (index < count) {
        unsigned long long number = first_index + index;
        return dk_fail(error, DK_BAD_VALUE, "number %llu of \"%s\" is too large for %s", number, tensor,
                       dk_dtype_name(dtype, DK_DIALECT_NATIVE));
    }
    return DK_OK;
}
