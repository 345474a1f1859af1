/* exp.h: the exponential of scores and epilogues: few instructions, the same bits on every instruction set.
 */
#ifndef DK_KERNELS_CPU_EXP_H
#define DK_KERNELS_CPU_EXP_H

#include <stdint.h>
#include <string.h>

/* 2^exponent for -126 <= exponent <= 127. */
static inline float dk_power_of_two(int32_t exponent)
{
    uint32_t bits = (uint32_t)(exponent + 127) << 23;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* exp(y) for -104 <= y <= 0 (NaN gives NaN): 2^n * exp(r), |r| <= ln2/2, by its series to r^7/7!
 * (remainder under 2^-26). Plain products and sums only, so that every compiler target rounds alike. */
static inline float dk_exp_of_negative(float y)
{
    const float log2_e = 0x1.715476p+0f, ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
    const float round_magic = 0x1.8p+23f; /* adding it leaves the rounded integer in the low bits */
    float shifted = y * log2_e + round_magic;
    uint32_t shifted_bits;
    memcpy(&shifted_bits, &shifted, sizeof shifted_bits);
    int32_t n = (int32_t)(shifted_bits & 0x3ffu) - ((shifted_bits & 0x200u) ? 0x400 : 0);
    float whole = shifted - round_magic;
    float r = (y - whole * ln2_high) - whole * ln2_low;
    float series = 1.0f / 5040;
    series = series * r + 1.0f / 720;
    series = series * r + 1.0f / 120;
    series = series * r + 1.0f / 24;
    series = series * r + 1.0f / 6;
    series = series * r + 0.5f;
    float tail = series * r * r + r;
    /* Two factors: the product may be subnormal though neither factor is. */
    int32_t half = n / 2;
    half = half < -126 ? -126 : half; /* only a NaN's n can be out of range */
    int32_t rest = n - half;
    rest = rest < -126 ? -126 : rest > 127 ? 127 : rest;
    half = half > 127 ? 127 : half;
    return (1.0f + tail) * dk_power_of_two(half) * dk_power_of_two(rest);
}

#endif
