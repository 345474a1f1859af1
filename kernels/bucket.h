/* bucket.h: the bounds of m: products with m in the same bucket share a plan. Pure. */
#ifndef DK_KERNELS_BUCKET_H
#define DK_KERNELS_BUCKET_H

#include <stdint.h>

enum { DK_BUCKET_DEFAULT_TOKENS = 4096, DK_BUCKET_MAX_TOKENS = 65536 };

/* Buckets needed for 1..max_tokens rows: 1, 2, 4, 8, 16, 32, then two to four an octave where the kernels'
 * times ask for them (bucket.c), up to the first that holds max_tokens. `max_tokens`
 * in 1..DK_BUCKET_MAX_TOKENS. */
uint32_t dk_bucket_count(uint32_t max_tokens);
/* Rows that bucket `index` holds. */
uint32_t dk_bucket_rows(uint32_t index);
/* Smallest bucket that holds `m` rows; UINT32_MAX when m is 0 or no bucket of `bucket_count` does. */
uint32_t dk_bucket_index(uint64_t m, uint32_t bucket_count);

#endif
