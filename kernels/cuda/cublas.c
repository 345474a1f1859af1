/* cublas.c: plans and products of cuBLAS and cuBLASLt. */
#include "kernels/cuda/cublas.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cublas_library.h"

enum {
    LT_PLANS = 8,
    PLANS_PER_SLOT = LT_PLANS + 1, /* `cublas` first */
    MAX_SLOTS = 4096,
    SCRATCH_BYTES = 32 << 20, /* NVIDIA's advice for Hopper */
    SCRATCH_ALIGN = 256,
    POINTER_ALIGN = 16
};

static const char *const lt_names[LT_PLANS] = {"cublaslt_0", "cublaslt_1", "cublaslt_2", "cublaslt_3",
                                               "cublaslt_4", "cublaslt_5", "cublaslt_6", "cublaslt_7"};

/* What the heuristic said for one shape and bucket. */
struct slot {
    uint64_t n, k;
    size_t row_elements;
    dk_dtype dtype;
    uint32_t rows, algo_count;
    cublasLtMatmulAlgo_t algos[LT_PLANS];
};

enum state { UNTRIED, LOADED, MISSING };

struct dk_cublas {
    pthread_mutex_t mutex; /* everything below; calls of the handle, whose stream and workspace are its own */
    enum state state;
    struct dk_cublas_library library;
    cublasHandle_t handle;
    cublasLtHandle_t lt_handle;
    uint32_t slot_count;
    struct slot *slots[MAX_SLOTS]; /* never moved or freed before the end: plans name them by index */
};

struct dk_cublas *dk_cublas_new(void)
{
    struct dk_cublas *cublas = calloc(1, sizeof *cublas);
    if (cublas != NULL)
        (void)pthread_mutex_init(&cublas->mutex, NULL); /* default attributes: cannot fail on Linux */
    return cublas;
}

/* Mutex held. */
static bool load(struct dk_cublas *cublas)
{
    if (cublas->state != UNTRIED)
        return cublas->state == LOADED;
    cublas->state = MISSING;
    if (!dk_cublas_library_load(&cublas->library))
        return false;
    if (cublas->library.create(&cublas->handle) != CUBLAS_STATUS_SUCCESS)
        goto unload;
    if (cublas->library.lt_create(&cublas->lt_handle) != CUBLAS_STATUS_SUCCESS)
        goto destroy_handle;
    cublas->state = LOADED;
    return true;

destroy_handle:
    (void)cublas->library.destroy(cublas->handle);
unload:
    dk_cublas_library_unload(&cublas->library);
    return false;
}

void dk_cublas_free(struct dk_cublas *cublas)
{
    if (cublas == NULL)
        return;
    for (uint32_t i = 0; i < cublas->slot_count; i++)
        free(cublas->slots[i]);
    if (cublas->state == LOADED) {
        (void)cublas->library.lt_destroy(cublas->lt_handle);
        (void)cublas->library.destroy(cublas->handle);
        dk_cublas_library_unload(&cublas->library);
    }
    (void)pthread_mutex_destroy(&cublas->mutex);
    free(cublas);
}

static cudaDataType_t data_type(dk_dtype dtype)
{
    return dtype == DK_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

/* Descriptions of one product, as the libraries (column-major) see it: C^T[n,m] = W[n,k] * A^T[k,m]. */
struct lt_product {
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t w, a, c;
};

static bool describe(const struct dk_cublas_library *library, const struct dk_cublas_b *b, uint64_t m,
                     size_t a_row_elements, size_t c_row_elements, struct lt_product *out)
{
    const cublasOperation_t transposed = CUBLAS_OP_T;
    cudaDataType_t type = data_type(b->dtype);
    return library->desc_init(&out->product, sizeof out->product, CUBLAS_COMPUTE_32F, CUDA_R_32F) ==
               CUBLAS_STATUS_SUCCESS &&
           library->desc_set(&out->product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed) ==
               CUBLAS_STATUS_SUCCESS &&
           library->layout_init(&out->w, sizeof out->w, type, b->k, b->n, (int64_t)b->row_elements) ==
               CUBLAS_STATUS_SUCCESS &&
           library->layout_init(&out->a, sizeof out->a, type, b->k, m, (int64_t)a_row_elements) ==
               CUBLAS_STATUS_SUCCESS &&
           library->layout_init(&out->c, sizeof out->c, CUDA_R_32F, b->n, m, (int64_t)c_row_elements) ==
               CUBLAS_STATUS_SUCCESS;
}

static void ask_heuristic(const struct dk_cublas *cublas, const struct dk_cublas_b *b, struct slot *slot)
{
    const struct dk_cublas_library *library = &cublas->library;
    const uint64_t scratch_bytes = SCRATCH_BYTES;
    const uint32_t alignment = POINTER_ALIGN;
    struct lt_product product;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t results[LT_PLANS];
    int count = 0;
    if (!describe(library, b, slot->rows, b->k, b->n, &product) ||
        library->preference_init(&preference, sizeof preference) != CUBLAS_STATUS_SUCCESS ||
        library->preference_set(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &scratch_bytes,
                                sizeof scratch_bytes) != CUBLAS_STATUS_SUCCESS)
        return;
    static const cublasLtMatmulPreferenceAttributes_t pointers[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    for (size_t i = 0; i < sizeof pointers / sizeof pointers[0]; i++)
        if (library->preference_set(&preference, pointers[i], &alignment, sizeof alignment) !=
            CUBLAS_STATUS_SUCCESS)
            return;
    if (library->heuristic(cublas->lt_handle, &product.product, &product.w, &product.a, &product.c,
                           &product.c, &preference, LT_PLANS, results, &count) != CUBLAS_STATUS_SUCCESS)
        return;
    for (int i = 0; i < count && i < LT_PLANS; i++) {
        if (results[i].state != CUBLAS_STATUS_SUCCESS || results[i].workspaceSize > SCRATCH_BYTES)
            continue;
        slot->algos[slot->algo_count++] = results[i].algo;
    }
}

static bool is_slot_of(const struct slot *slot, const struct dk_cublas_b *b, uint32_t rows)
{
    return slot->n == b->n && slot->k == b->k && slot->row_elements == b->row_elements &&
           slot->dtype == b->dtype && slot->rows == rows;
}

/* Index of the slot, made when it is new; MAX_SLOTS when there is no room for one more. Mutex held. */
static uint32_t find_slot(struct dk_cublas *cublas, const struct dk_cublas_b *b, uint32_t rows)
{
    uint32_t i = 0;
    while (i < cublas->slot_count && !is_slot_of(cublas->slots[i], b, rows))
        i++;
    if (i < cublas->slot_count || i == MAX_SLOTS)
        return i;
    struct slot *slot = calloc(1, sizeof *slot);
    if (slot == NULL)
        return MAX_SLOTS;
    slot->n = b->n;
    slot->k = b->k;
    slot->row_elements = b->row_elements;
    slot->dtype = b->dtype;
    slot->rows = rows;
    ask_heuristic(cublas, b, slot);
    cublas->slots[i] = slot;
    cublas->slot_count++;
    return i;
}

/* Room for the product when it is not written to C directly; the scratch follows. */
static size_t product_bytes(uint64_t m, uint64_t n)
{
    size_t bytes = (size_t)(m * n) * sizeof(float);
    return (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
}

static struct dk_plan make_plan(const struct dk_cublas_b *b, uint32_t rows, size_t fallback_bytes,
                                const char *name, uint32_t backend_variant)
{
    /* `cublas` may have to step in for any of cuBLASLt's: all have its scratch. */
    size_t bytes = product_bytes(rows, b->n) + SCRATCH_BYTES;
    return (struct dk_plan){
        .variant = name,
        .bucket_rows = rows,
        .split_k = 1, /* what the libraries do inside is theirs */
        .chunk_k = (uint32_t)b->k,
        .tile_m = 1,
        .tile_n = 1,
        .backend_variant = backend_variant,
        .workspace_bytes = bytes > fallback_bytes ? bytes : fallback_bytes,
    };
}

uint32_t dk_cublas_candidates(struct dk_cublas *cublas, const struct dk_cublas_b *b, uint32_t rows,
                              size_t fallback_bytes, struct dk_plan *out, uint32_t capacity)
{
    if (b->dtype != DK_BF16 && b->dtype != DK_FP16)
        return 0;
    (void)pthread_mutex_lock(&cublas->mutex);
    uint32_t index = load(cublas) ? find_slot(cublas, b, rows) : MAX_SLOTS;
    (void)pthread_mutex_unlock(&cublas->mutex);
    if (index == MAX_SLOTS)
        return 0;
    const struct slot *slot = cublas->slots[index];
    uint32_t first = DK_CUDA_LIBRARY + index * PLANS_PER_SLOT;
    if (capacity > 0)
        out[0] = make_plan(b, rows, fallback_bytes, "cublas", first);
    for (uint32_t i = 0; i < slot->algo_count && i + 1 < capacity; i++)
        out[i + 1] = make_plan(b, rows, fallback_bytes, lt_names[i], first + 1 + i);
    return slot->algo_count + 1;
}

/* Where one product reads and writes. */
struct operands {
    float *d_product; /* rows product_row_elements apart */
    size_t product_row_elements;
    void *d_scratch;
};

static struct operands place(const struct dk_cublas_b *b, const struct dk_plan *plan,
                             const struct dk_call *call, bool is_direct)
{
    char *workspace = call->workspace;
    return (struct operands){
        .d_product = is_direct ? call->c : call->workspace,
        .product_row_elements = is_direct ? call->c_row_elements : b->n,
        .d_scratch = workspace + product_bytes(plan->bucket_rows, b->n),
    };
}

static bool is_aligned(const void *pointer)
{
    return (uintptr_t)pointer % POINTER_ALIGN == 0;
}

/* CUBLAS_STATUS_NOT_SUPPORTED when the algorithm was not chosen for such a call. */
static cublasStatus_t run_lt(struct dk_cublas *cublas, const struct dk_cublas_b *b,
                             const cublasLtMatmulAlgo_t *algo, const struct dk_call *call,
                             const struct operands *operands)
{
    const float one = 1.0f, zero = 0.0f;
    struct lt_product product;
    if (call->a_row_elements != b->k || operands->product_row_elements != b->n || !is_aligned(call->a) ||
        !is_aligned(operands->d_product) || !is_aligned(b->d_w) ||
        !describe(&cublas->library, b, call->m, call->a_row_elements, operands->product_row_elements,
                  &product))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return cublas->library.lt_matmul(cublas->lt_handle, &product.product, &one, b->d_w, &product.w, call->a,
                                     &product.a, &zero, operands->d_product, &product.c, operands->d_product,
                                     &product.c, algo, operands->d_scratch, SCRATCH_BYTES,
                                     (cudaStream_t)call->stream);
}

static cublasStatus_t run_gemm(struct dk_cublas *cublas, const struct dk_cublas_b *b,
                               const struct dk_call *call, const struct operands *operands)
{
    const float one = 1.0f, zero = 0.0f;
    const cudaDataType_t type = data_type(b->dtype);
    const struct dk_cublas_library *library = &cublas->library;
    (void)pthread_mutex_lock(&cublas->mutex);
    cublasStatus_t status = library->set_stream(cublas->handle, (cudaStream_t)call->stream);
    if (status == CUBLAS_STATUS_SUCCESS) /* after the stream, which resets it */
        status = library->set_workspace(cublas->handle, operands->d_scratch, SCRATCH_BYTES);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = library->gemm(cublas->handle, CUBLAS_OP_T, CUBLAS_OP_N, (int)b->n, (int)call->m, (int)b->k,
                               &one, b->d_w, type, (int)b->row_elements, call->a, type,
                               (int)call->a_row_elements, &zero, operands->d_product, CUDA_R_32F,
                               (int)operands->product_row_elements, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    (void)pthread_mutex_unlock(&cublas->mutex);
    return status;
}

bool dk_cublas_enqueue(struct dk_cublas *cublas, const struct dk_cublas_b *b, const struct dk_plan *plan,
                       const struct dk_call *call, bool is_direct)
{
    uint32_t index = plan->backend_variant - DK_CUDA_LIBRARY;
    const struct slot *slot = cublas->slots[index / PLANS_PER_SLOT];
    uint32_t algo = index % PLANS_PER_SLOT;
    struct operands operands = place(b, plan, call, is_direct);
    if (algo > 0 && run_lt(cublas, b, &slot->algos[algo - 1], call, &operands) == CUBLAS_STATUS_SUCCESS)
        return true;
    return run_gemm(cublas, b, call, &operands) == CUBLAS_STATUS_SUCCESS;
}
