/* gemm_reference.c: making, running and judging products. */
#include "tests/unit/kernels/gemm_reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GUARD_BYTES = 256,
    POISON = 0xA5,
    CHECK_BUDGET = DK_TEST_IS_SLOW_BUILD ? 300000 : 1500000,
    PORTABLE_BUDGET = DK_TEST_IS_SLOW_BUILD ? 100000 : 1000000
};

static void *must_alloc(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (!memory) {
        fprintf(stderr, "out of memory: %zu bytes\n", bytes);
        abort();
    }
    return memory;
}

static uint32_t next_bits(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

/* Uniform in [0, 1). */
static float next_unit(uint64_t *state)
{
    return (float)(next_bits(state) & 0xffffffu) * 0x1p-24f;
}

static float next_value(enum dk_test_fill fill, uint64_t *state)
{
    switch (fill) {
    case DK_TEST_INTEGERS:
        return (float)(int32_t)(next_bits(state) % 17u) - 8.0f;
    case DK_TEST_POSITIVE:
        return 0.5f + 0.5f * next_unit(state);
    case DK_TEST_CANCELLING:
        return ldexpf(next_unit(state) - 0.5f, (int)(next_bits(state) % 20u) - 10);
    default:
        return 2.0f * next_unit(state) - 1.0f;
    }
}

static float rounded(float value, dk_dtype dtype)
{
    uint32_t narrow;
    dk_convert_from_float(&value, &narrow, dtype, 1);
    dk_convert_to_float(&narrow, dtype, &value, 1);
    return value;
}

/* In place, through the narrow type. */
static void round_all(float *values, dk_dtype dtype, size_t count)
{
    if (dtype != DK_FP32) {
        void *narrow = must_alloc(count * dk_dtype_bytes(dtype));
        dk_convert_from_float(values, narrow, dtype, count);
        dk_convert_to_float(narrow, dtype, values, count);
        free(narrow);
    }
}

/* a[2i+1] = a[2i] and b[2i+1] = -b[2i]: all but a rest of each pair cancels. */
static void make_values(struct dk_test_product *product)
{
    const struct dk_test_case *what = &product->what;
    uint64_t state = what->seed * UINT64_C(977) + 12345;
    bool is_pairing = what->fill == DK_TEST_CANCELLING;
    for (uint64_t i = 0; i < what->m * what->k; i++) {
        bool is_second = is_pairing && i % what->k % 2 == 1;
        product->a[i] =
            rounded(is_second ? product->a[i - 1] : next_value(what->fill, &state), what->a_dtype);
    }
    for (uint64_t i = 0; i < what->n * what->k; i++) {
        bool is_second = is_pairing && i % what->k % 2 == 1;
        float value = is_second ? -product->b_transposed[i - 1] * (1.0f + 0x1p-7f * (float)(i % 3 == 0))
                                : next_value(what->fill, &state);
        product->b_transposed[i] = value;
    }
    round_all(product->b_transposed, what->b_dtype, what->n * what->k);
    for (uint64_t j = 0; j < what->n; j++) {
        float value = next_value(what->fill == DK_TEST_INTEGERS ? what->fill : DK_TEST_RANDOM, &state);
        if (product->bias) {
            product->bias[j] = value;
        }
        if (product->call_bias) {
            product->call_bias[j] = -2 * value;
        }
    }
}

static size_t a_row_elements(const struct dk_test_product *product)
{
    return product->what.k + product->what.a_pad;
}

static unsigned char *a_data(const struct dk_test_product *product)
{
    return product->a_memory + product->what.a_offset;
}

/* Padding of A holds NaN: reading it shows. */
static void make_memory(struct dk_test_product *product)
{
    const struct dk_test_case *what = &product->what;
    size_t a_item = dk_dtype_bytes(what->a_dtype), b_item = dk_dtype_bytes(what->b_dtype);
    size_t a_bytes = what->m * a_row_elements(product) * a_item + what->a_offset;
    product->a_memory = must_alloc(a_bytes);
    memset(product->a_memory, 0xff, a_bytes);
    for (uint64_t row = 0; row < what->m; row++) {
        dk_convert_from_float(product->a + row * what->k,
                              a_data(product) + row * a_row_elements(product) * a_item, what->a_dtype,
                              what->k);
    }
    product->b_memory = must_alloc(what->n * what->k * b_item + what->b_offset);
    unsigned char *b = product->b_memory + what->b_offset;
    if (what->layout == DK_LAYOUT_NK) {
        dk_convert_from_float(product->b_transposed, b, what->b_dtype, what->n * what->k);
        return;
    }
    float *row = must_alloc(what->n * sizeof(float));
    for (uint64_t k = 0; k < what->k; k++) {
        for (uint64_t j = 0; j < what->n; j++) {
            row[j] = product->b_transposed[j * what->k + k];
        }
        dk_convert_from_float(row, b + k * what->n * b_item, what->b_dtype, what->n);
    }
    free(row);
}

struct dk_test_product *dk_test_product_new(const struct dk_test_case *what)
{
    struct dk_test_product *product = must_alloc(sizeof *product);
    *product = (struct dk_test_product){.what = *what};
    product->a = must_alloc(what->m * what->k * sizeof(float));
    product->b_transposed = must_alloc(what->n * what->k * sizeof(float));
    product->bias = what->has_bias ? must_alloc(what->n * sizeof(float)) : NULL;
    product->call_bias = what->has_call_bias ? must_alloc(what->n * sizeof(float)) : NULL;
    make_values(product);
    make_memory(product);
    return product;
}

void dk_test_product_free(struct dk_test_product *product)
{
    free(product->b_memory);
    free(product->a_memory);
    free(product->call_bias);
    free(product->bias);
    free(product->b_transposed);
    free(product->a);
    free(product);
}

void dk_test_product_set_a(struct dk_test_product *product, uint64_t row, uint64_t k, float value)
{
    size_t item = dk_dtype_bytes(product->what.a_dtype);
    product->a[row * product->what.k + k] = rounded(value, product->what.a_dtype);
    dk_convert_from_float(&value, a_data(product) + (row * a_row_elements(product) + k) * item,
                          product->what.a_dtype, 1);
}

struct dk_weights_desc dk_test_weights_desc(const struct dk_test_product *product)
{
    const struct dk_test_case *what = &product->what;
    return (struct dk_weights_desc){.n = what->n,
                                    .k = what->k,
                                    .dtype = what->b_dtype,
                                    .layout = what->layout,
                                    .data = product->b_memory + what->b_offset,
                                    .bias = product->bias};
}

struct dk_weights *dk_test_weights_new(const struct dk_test_product *product, struct dk_engine *engine)
{
    struct dk_weights_desc desc = dk_test_weights_desc(product);
    struct dk_weights *weights = NULL;
    struct dk_error error;
    if (dk_weights_new(engine, &desc, &weights, &error) != DK_OK) {
        fprintf(stderr, "weights refused: %s\n", error.message);
    }
    return weights;
}

static bool is_poison(const unsigned char *bytes, size_t count, const char *where)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != POISON) {
            fprintf(stderr, "byte %zu %s was written: 0x%02x\n", i, where, bytes[i]);
            return false;
        }
    }
    return true;
}

/* Host memory with guards on both sides, or the backend's own. */
struct workspace {
    unsigned char *guarded;
    void *pointer;
    size_t bytes;
};

static bool workspace_init(struct workspace *workspace, struct dk_engine *engine, size_t bytes)
{
    *workspace = (struct workspace){.bytes = bytes};
    if (strcmp(dk_engine_get_info(engine)->backend, "cpu") == 0) {
        workspace->guarded = must_alloc(bytes + 2 * GUARD_BYTES);
        memset(workspace->guarded, POISON, bytes + 2 * GUARD_BYTES);
        workspace->pointer = workspace->guarded + GUARD_BYTES;
        return true;
    }
    struct dk_error error;
    if (dk_workspace_new(engine, bytes, &workspace->pointer, &error) != DK_OK) {
        fprintf(stderr, "workspace of %zu bytes refused: %s\n", bytes, error.message);
        return false;
    }
    return true;
}

static bool workspace_deinit(struct workspace *workspace, struct dk_engine *engine)
{
    if (!workspace->guarded) {
        dk_workspace_free(engine, workspace->pointer);
        return true;
    }
    bool is_intact =
        is_poison(workspace->guarded, GUARD_BYTES, "before the workspace") &&
        is_poison(workspace->guarded + GUARD_BYTES + workspace->bytes, GUARD_BYTES, "behind the workspace");
    free(workspace->guarded);
    return is_intact;
}

/* Copies C out of its padded, guarded memory. */
static bool collect(const struct dk_test_case *what, const unsigned char *memory, uint64_t rows, void *c)
{
    size_t item = dk_dtype_bytes(what->c_dtype), row_bytes = what->n * item;
    const unsigned char *from = memory + GUARD_BYTES + what->c_offset;
    bool is_intact = is_poison(memory, GUARD_BYTES + what->c_offset, "before C");
    for (uint64_t row = 0; row < rows; row++) {
        memcpy((char *)c + row * row_bytes, from, row_bytes);
        is_intact = is_poison(from + row_bytes, what->c_pad * item, "between rows of C") && is_intact;
        from += row_bytes + what->c_pad * item;
    }
    return is_poison(from, GUARD_BYTES, "behind C") && is_intact;
}

bool dk_test_run_rows(const struct dk_test_product *product, struct dk_engine *engine,
                      const struct dk_weights *weights, uint64_t row0, uint64_t rows, void *c)
{
    const struct dk_test_case *what = &product->what;
    size_t c_bytes = rows * (what->n + what->c_pad) * dk_dtype_bytes(what->c_dtype);
    size_t c_memory_bytes = c_bytes + what->c_offset + 2 * GUARD_BYTES;
    struct workspace workspace;
    if (!workspace_init(&workspace, engine, dk_workspace_bytes(weights, rows))) {
        return false;
    }
    unsigned char *memory = must_alloc(c_memory_bytes);
    memset(memory, POISON, c_memory_bytes);
    struct dk_call call = {
        .m = rows,
        .a = a_data(product) + row0 * a_row_elements(product) * dk_dtype_bytes(what->a_dtype),
        .a_row_elements = a_row_elements(product),
        .a_dtype = what->a_dtype,
        .c = memory + GUARD_BYTES + what->c_offset,
        .c_row_elements = what->n + what->c_pad,
        .c_dtype = what->c_dtype,
        .epilogue = what->epilogue,
        .bias = product->call_bias,
        .workspace = workspace.pointer,
    };
    struct dk_error error;
    bool is_ok = dk_run_host(weights, &call, NULL, &error) == DK_OK;
    if (!is_ok) {
        fprintf(stderr, "run refused: %s\n", error.message);
    }
    is_ok = is_ok && collect(what, memory, rows, c);
    free(memory);
    return workspace_deinit(&workspace, engine) && is_ok;
}

/* What an element should be before the cast, and how far off the contract lets it be. */
struct expectation {
    double value, tolerance;
};

static struct expectation expect(const struct dk_test_product *product, const struct dk_plan *plan,
                                 uint64_t row, uint64_t column)
{
    const struct dk_test_case *what = &product->what;
    const float *a = product->a + row * what->k, *b = product->b_transposed + column * what->k;
    double sum = 0, magnitude = 0;
    for (uint64_t k = 0; k < what->k; k++) {
        double term = (double)a[k] * (double)b[k];
        sum += term;
        magnitude += fabs(term);
    }
    double steps = (double)((plan->chunk_k + 15) / 16 + plan->split_k);
    double tolerance = steps * 0x1p-23 * magnitude;
    const float *bias = product->call_bias ? product->call_bias : product->bias;
    if (bias) {
        sum += (double)bias[column];
        tolerance += 0x1p-24 * fabs(sum); /* the addition's own rounding */
    }
    if (what->epilogue == DK_EPILOGUE_RELU) {
        sum = sum > 0 ? sum : 0;
    } else if (what->epilogue == DK_EPILOGUE_SIGMOID) {
        sum = 1 / (1 + exp(-sum));
        tolerance = tolerance / 4 + 0x1p-21 * sum + 0x1p-148; /* its slope is at most 1/4 */
    }
    return (struct expectation){sum, tolerance};
}

/* Half a unit in the last place of the output type at `value`. */
static double output_rounding(double value, dk_dtype dtype)
{
    switch (dtype) {
    case DK_BF16:
        return fmax(fabs(value) * 0x1p-8, 0x1p-134);
    case DK_FP16:
        return fmax(fabs(value) * 0x1p-11, 0x1p-25);
    default:
        return fmax(fabs(value) * 0x1p-24, 0x1p-150);
    }
}

static bool is_element_right(const struct dk_test_product *product, const struct dk_plan *plan, uint64_t row,
                             uint64_t column, const void *element)
{
    const struct dk_test_case *what = &product->what;
    struct expectation wanted = expect(product, plan, row, column);
    float got;
    dk_convert_to_float(element, what->c_dtype, &got, 1);
    bool is_exact = what->fill == DK_TEST_INTEGERS && what->epilogue != DK_EPILOGUE_SIGMOID;
    double tolerance =
        wanted.tolerance + output_rounding(fabs(wanted.value) + wanted.tolerance, what->c_dtype);
    if (is_exact) {
        wanted.value = (double)rounded((float)wanted.value, what->c_dtype);
        tolerance = 0;
    }
    if (fabs((double)got - wanted.value) <= tolerance) { /* NaN compares false */
        return true;
    }
    fprintf(stderr, "m=%llu n=%llu k=%llu: C[%llu,%llu] is %.9g, should be %.17g +- %.3g (%s, S=%u)\n",
            (unsigned long long)what->m, (unsigned long long)what->n, (unsigned long long)what->k,
            (unsigned long long)row, (unsigned long long)column, (double)got, wanted.value, tolerance,
            plan->variant, plan->split_k);
    return false;
}

bool dk_test_check_rows(const struct dk_test_product *product, const struct dk_weights *weights,
                        uint64_t row0, uint64_t rows, const void *c)
{
    const struct dk_test_case *what = &product->what;
    const struct dk_plan *plan = dk_plan_get(weights, rows);
    uint64_t count = rows * what->n, step = count * what->k / CHECK_BUDGET + 1;
    size_t item = dk_dtype_bytes(what->c_dtype);
    for (uint64_t i = 0; i < count; i += step) {
        uint64_t at = i + step < count ? i : count - 1; /* the last element always */
        if (!is_element_right(product, plan, row0 + at / what->n, at % what->n,
                              (const char *)c + at * item)) {
            return false;
        }
    }
    return true;
}

uint64_t dk_test_affordable_rows(const struct dk_engine *engine, const struct dk_test_case *what,
                                 uint64_t rows)
{
    if (strcmp(dk_engine_get_info(engine)->isa, "portable") != 0) {
        return rows;
    }
    uint64_t padded_n = (what->n + 63) / 64 * 64; /* what it computes at most */
    uint64_t most = PORTABLE_BUDGET / (padded_n * what->k) + 1;
    return rows < most ? rows : most;
}

static bool passes_on(const struct dk_test_product *product, struct dk_engine *engine, void *c)
{
    uint64_t rows = dk_test_affordable_rows(engine, &product->what, product->what.m);
    struct dk_weights *weights = dk_test_weights_new(product, engine);
    bool is_right = weights && dk_test_run_rows(product, engine, weights, 0, rows, c) &&
                    dk_test_check_rows(product, weights, 0, rows, c);
    dk_weights_free(weights);
    return is_right;
}

bool dk_test_case_passes(const struct dk_test_case *what, struct dk_engine *const *engines, uint32_t count)
{
    struct dk_test_product *product = dk_test_product_new(what);
    void *c = must_alloc(what->m * what->n * dk_dtype_bytes(what->c_dtype));
    bool is_right = true;
    for (uint32_t i = 0; i < count && is_right; i++) {
        is_right = passes_on(product, engines[i], c);
        if (!is_right) {
            const struct dk_engine_info *info = dk_engine_get_info(engines[i]);
            fprintf(stderr, "on %s %s, %u threads\n", info->backend, info->isa, info->thread_count);
        }
    }
    free(c);
    dk_test_product_free(product);
    return is_right;
}
