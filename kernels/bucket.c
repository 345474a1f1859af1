/* bucket.c: m -> bucket by counting leading zeros. */
#include "kernels/bucket.h"

#include <assert.h>

/* ceil(log2(value)), value >= 1 */
static uint32_t log2_ceil(uint64_t value)
{
    return value <= 1 ? 0 : 64u - (uint32_t)__builtin_clzll(value - 1);
}

uint32_t dk_bucket_count(uint32_t max_tokens)
{
    assert(max_tokens >= 1 && max_tokens <= DK_BUCKET_MAX_TOKENS);
    return log2_ceil(max_tokens) + 1;
}

uint32_t dk_bucket_rows(uint32_t index)
{
    assert(index < 32);
    return UINT32_C(1) << index;
}

uint32_t dk_bucket_index(uint64_t m, uint32_t bucket_count)
{
    if (m == 0) {
        return UINT32_MAX;
    }
    uint32_t index = log2_ceil(m);
    return index < bucket_count ? index : UINT32_MAX;
}
