/* bench_kernels_shapes.h: router shapes of public Mixture-of-Experts models: [T, hidden] x [hidden, experts].
 */
#ifndef DK_BENCH_KERNELS_SHAPES_H
#define DK_BENCH_KERNELS_SHAPES_H

struct bench_shape {
    const char *models;
    unsigned k, n, layers; /* hidden size, experts, routers in the model: the chain's length */
};
static const struct bench_shape bench_shapes[] = {
    {"DeepSeek-V3/R1", 7168, 256, 58},       {"Kimi-K2", 7168, 384, 60},
    {"GLM-4.5, DeepSeek-V2", 5120, 160, 59}, {"DeepSeek-V4-Flash", 4096, 256, 43},
    {"Qwen3-235B-A22B", 4096, 128, 94},      {"MiniMax-M2", 3072, 256, 62},
    {"gpt-oss-120b", 2880, 128, 36},
};
enum { BENCH_SHAPE_COUNT = sizeof bench_shapes / sizeof bench_shapes[0] };

#endif
