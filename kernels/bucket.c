/* bucket.c: m -> bucket by a search in the table of bounds. */
#include "kernels/bucket.h"

#include <assert.h>

#include "kernels/backend.h"

/* A CUDA plan's time is a staircase in m: tiles times chunks fill a device once or twice. Bounds lie so that
 * no step between neighbours is high: half octaves, quarters where whole waves of blocks end (1,024 to
 * 4,096). */
static const uint32_t bounds[] = {1,    2,    4,    8,    16,   32,    48,    64,    96,    128,  192,
                                  256,  384,  512,  768,  1024, 1280,  1536,  1792,  2048,  2304, 2560,
                                  3072, 3584, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 65536};
enum { COUNT = sizeof bounds / sizeof bounds[0] };
_Static_assert((int)COUNT == (int)DK_MAX_BUCKETS, "every backend has a plan for each bucket");

static uint32_t find(uint64_t m)
{
    uint32_t low = 0, high = COUNT; /* bounds before low are too small, from high on they hold m */
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (bounds[middle] < m)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t dk_bucket_count(uint32_t max_tokens)
{
    assert(max_tokens >= 1 && max_tokens <= DK_BUCKET_MAX_TOKENS);
    return find(max_tokens) + 1;
}

uint32_t dk_bucket_rows(uint32_t index)
{
    assert(index < COUNT);
    return bounds[index];
}

uint32_t dk_bucket_index(uint64_t m, uint32_t bucket_count)
{
    if (m == 0) {
        return UINT32_MAX;
    }
    uint32_t index = find(m);
    return index < bucket_count ? index : UINT32_MAX;
}
