/* gemm_reference.h: products with known inputs, an fp64 reference, and guards around what the library writes.
 * Uses decomposek.h only, so the same checks run on every backend. Failures are printed with the coordinate
 * of the first mismatch; functions answer true when all is right. */
#ifndef DK_TEST_GEMM_REFERENCE_H
#define DK_TEST_GEMM_REFERENCE_H

#include "decomposek.h"

/* Under a sanitizer everything is many times slower: suites thin out their grids, every behaviour stays. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DK_TEST_IS_SLOW_BUILD 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define DK_TEST_IS_SLOW_BUILD 1
#endif
#endif
#ifndef DK_TEST_IS_SLOW_BUILD
#define DK_TEST_IS_SLOW_BUILD 0
#endif

enum dk_test_fill {
    DK_TEST_INTEGERS,  /* small integers: every partial sum is exact, any order must give the same bits */
    DK_TEST_RANDOM,    /* uniform in [-1, 1) */
    DK_TEST_POSITIVE,  /* uniform in [0.5, 1): roundings do not cancel */
    DK_TEST_CANCELLING /* neighbours in k cancel almost, magnitudes over 2^20 */
};

struct dk_test_case {
    uint64_t m, n, k;
    dk_dtype a_dtype, b_dtype, c_dtype;
    dk_layout layout;
    dk_epilogue epilogue;
    bool has_bias;                       /* of the weights */
    bool has_call_bias;                  /* of the call; wins */
    size_t a_pad, c_pad;                 /* extra elements between rows */
    size_t a_offset, b_offset, c_offset; /* bytes off alignment */
    enum dk_test_fill fill;
    uint32_t seed;
};

struct dk_test_product {
    struct dk_test_case what;
    float *a;                           /* [m, k], values after rounding to a_dtype */
    float *b_transposed;                /* [n, k], after rounding to b_dtype */
    float *bias, *call_bias;            /* [n] or NULL */
    unsigned char *a_memory, *b_memory; /* as handed to the library, offsets and padding included */
};

/* Memory runs out: the program ends. */
struct dk_test_product *dk_test_product_new(const struct dk_test_case *what);
void dk_test_product_free(struct dk_test_product *product);
/* Write `value` into A (values and handed memory). */
void dk_test_product_set_a(struct dk_test_product *product, uint64_t row, uint64_t k, float value);

struct dk_weights *dk_test_weights_new(const struct dk_test_product *product, struct dk_engine *engine);
struct dk_weights_desc dk_test_weights_desc(const struct dk_test_product *product);

/* Computes rows [row0, row0+rows) into the dense c [rows, n] of c_dtype. Checks that padding, guard bytes
 * around C and (host memory only) around the workspace are untouched. */
bool dk_test_run_rows(const struct dk_test_product *product, struct dk_engine *engine,
                      const struct dk_weights *weights, uint64_t row0, uint64_t rows, void *c);
/* Compares with the fp64 reference: bit for bit for integers, else within the contract's bound for this plan.
 * Looks at every element when that is cheap, else at a spread of elements with the borders included. */
bool dk_test_check_rows(const struct dk_test_product *product, const struct dk_weights *weights,
                        uint64_t row0, uint64_t rows, const void *c);
/* Rows to run on this engine: all of `rows`, fewer on the portable one where that would take long. */
uint64_t dk_test_affordable_rows(const struct dk_engine *engine, const struct dk_test_case *what,
                                 uint64_t rows);
/* On each engine: weights, run the (affordable) rows, check, free. */
bool dk_test_case_passes(const struct dk_test_case *what, struct dk_engine *const *engines, uint32_t count);

/* The engines a suite runs on: CPU: every instruction set of this machine with 2 threads, the best one also
 * with 1 and 3 when `is_every_thread_count`; CUDA: one. Reads `--backend cpu|cuda` (default cpu). 0 and a
 * message when the backend cannot serve. */
enum { DK_TEST_MAX_ENGINES = 16 };
struct dk_test_engines {
    struct dk_engine *engines[DK_TEST_MAX_ENGINES];
    char names[DK_TEST_MAX_ENGINES][48];
    uint32_t count;
};
uint32_t dk_test_engines_init(int argc, char **argv, bool is_every_thread_count, struct dk_test_engines *out);
void dk_test_engines_deinit(struct dk_test_engines *engines);

#endif
