/* random.h: a seeded generator whose values are the same bits on every machine. */
#ifndef DK_CLIENT_RANDOM_H
#define DK_CLIENT_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* xoshiro256**, its state filled by SplitMix64. Plain data: copy it to fork the sequence. */
struct dk_random {
    uint64_t state[4];
};

/* `stream` separates sequences of one seed (one per tensor, say): equal (seed, stream) give equal values. */
void dk_random_init(struct dk_random *random, uint64_t seed, uint64_t stream);
uint64_t dk_random_u64(struct dk_random *random);

/* About normal, mean 0, variance 1, inside [-6, 6]: the sum of twelve 16-bit uniforms, in integer arithmetic
 * and one exact scaling, because log() and cos() of two C libraries may differ in the last bit. */
double dk_random_normal(struct dk_random *random);
/* Fill `count` values with scale * normal. */
void dk_random_normal_fill(struct dk_random *random, double scale, double *out, size_t count);

#endif
