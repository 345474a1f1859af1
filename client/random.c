/* random.c: xoshiro256** and normal values made of integer sums. */
#include "client/random.h"

static uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

static uint64_t rotate_left(uint64_t value, int bits)
{
    return (value << bits) | (value >> (64 - bits));
}

void dk_random_init(struct dk_random *random, uint64_t seed, uint64_t stream)
{
    /* The stream goes through the mixer first: neighbouring (seed, stream) pairs must not share a start. */
    uint64_t mixed = stream;
    uint64_t state = seed ^ splitmix64(&mixed);
    for (int i = 0; i < 4; i++)
        random->state[i] = splitmix64(&state);
}

uint64_t dk_random_u64(struct dk_random *random)
{
    uint64_t *s = random->state;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double dk_random_normal(struct dk_random *random)
{
    int64_t sum = 0;
    for (int i = 0; i < 3; i++) {
        uint64_t bits = dk_random_u64(random);
        sum += (int64_t)((bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48));
    }
    /* 12 * 65535 / 2 is the mean of the sum, 65536^2 - 1 its variance. */
    return (double)(sum - 393210) * (1.0 / 65536.0);
}

void dk_random_normal_fill(struct dk_random *random, double scale, double *out, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = scale * dk_random_normal(random);
}
