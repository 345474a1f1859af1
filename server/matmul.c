/* matmul.c: intake of a body, tensor by tensor; early refusals; the job at the end. */
#include "server/matmul.h"

#include <string.h>

#include "server/body_reader.h"
#include "server/daemon.h"
#include "server/http_target.h"
#include "server/job.h"
#include "server/models.h"

static dk_status find_model(struct dk_matmul *matmul, const char *name, struct dk_error *error)
{
    if (matmul->model == NULL) {
        matmul->model = dk_models_acquire(matmul->daemon->models, name);
    }
    return matmul->model != NULL ? DK_OK : dk_fail(error, DK_NOT_FOUND, "no model \"%s\"", name);
}

static dk_status parse_query(struct dk_matmul *matmul, const char *query, struct dk_error *error)
{
    char name[DK_TARGET_BYTES], value[DK_TARGET_BYTES];
    bool has_value;
    dk_status status;
    while (dk_query_next(&query, name, value, &has_value, &status, error)) {
        status = dk_matmul_request_set(&matmul->request, name, has_value ? value : NULL, error);
        if (status != DK_OK) {
            return status;
        }
    }
    return status;
}

static size_t raw_row_bytes(const struct dk_matmul *matmul)
{
    return matmul->model->k * dk_dtype_bytes(matmul->tensors[DK_NATIVE_X].dtype);
}

static dk_status check_raw_length(const struct dk_matmul *matmul, uint64_t length, struct dk_error *error)
{
    if (length % raw_row_bytes(matmul) == 0) {
        return DK_OK;
    }
    return dk_fail(
        error, DK_BAD_SHAPE,
        "the body has %llu bytes, not a multiple of %zu, one row of %llu %s numbers for model \"%s\"",
        (unsigned long long)length, raw_row_bytes(matmul), (unsigned long long)matmul->model->k,
        dk_dtype_name(matmul->tensors[DK_NATIVE_X].dtype, DK_DIALECT_NATIVE), matmul->model->name);
}

static dk_status begin_raw(struct dk_matmul *matmul, const char *query, uint64_t content_length,
                           struct dk_error *error)
{
    dk_status status = parse_query(matmul, query, error);
    if (status != DK_OK) {
        return status;
    }
    if (!matmul->request.has_model) {
        return dk_fail(error, DK_BAD_REQUEST, "a raw body needs the query parameter model");
    }
    status = find_model(matmul, matmul->request.model, error);
    if (status != DK_OK) {
        return status;
    }
    struct dk_intake *x = &matmul->tensors[DK_NATIVE_X];
    x->dtype = matmul->request.has_dtype ? matmul->request.dtype : matmul->model->dtype;
    x->is_present = true;
    if (!dk_dtype_is_float(x->dtype)) {
        return dk_fail(error, DK_BAD_DTYPE, "x cannot be %s", dk_dtype_name(x->dtype, DK_DIALECT_NATIVE));
    }
    return content_length != UINT64_MAX ? check_raw_length(matmul, content_length, error) : DK_OK;
}

dk_status dk_matmul_begin(struct dk_matmul *matmul, struct dk_daemon *daemon, bool is_raw, const char *query,
                          uint64_t content_length, struct dk_error *error)
{
    memset(matmul, 0, sizeof *matmul);
    for (int i = 0; i < DK_NATIVE_TENSOR_COUNT; i++) {
        matmul->tensors[i].name = dk_native_paths[i];
    }
    if (!dk_daemon_takes_work(daemon)) {
        return dk_fail(error, DK_UNAVAILABLE, "%s",
                       dk_daemon_get_state(daemon) == DK_DAEMON_LOADING ? "models are still being loaded"
                                                                        : "the daemon is stopping");
    }
    matmul->daemon = daemon;
    matmul->is_raw = is_raw;
    if (content_length != UINT64_MAX && content_length > daemon->max_body_bytes) {
        return dk_fail(error, DK_TOO_LARGE, "the body has %llu bytes, the limit is %llu",
                       (unsigned long long)content_length, (unsigned long long)daemon->max_body_bytes);
    }
    if (is_raw) {
        return begin_raw(matmul, query, content_length, error);
    }
    if (query[0] != '\0') {
        return dk_fail(error, DK_BAD_REQUEST,
                       "query parameters belong to raw bodies; put \"%.40s\" into the JSON body", query);
    }
    return dk_body_reader_acquire(daemon->readers, matmul, &matmul->reader, error);
}

/* What can be refused before the numbers are read: a wrong name would else cost the whole body. */
static dk_status check_early(struct dk_matmul *matmul, int tensor, struct dk_error *error)
{
    char name[DK_MODEL_NAME_BYTES + 1];
    if (tensor == DK_NATIVE_X &&
        dk_json_reader_peek_string(matmul->reader->json, "model", name, sizeof name)) {
        return find_model(matmul, name, error);
    }
    if ((tensor == DK_NATIVE_A || tensor == DK_NATIVE_B) && matmul->daemon->config->adhoc_max_bytes == 0) {
        return dk_fail(error, DK_FORBIDDEN,
                       "products without a model are switched off (--adhoc-max-bytes 0)");
    }
    return DK_OK;
}

static struct dk_matmul *owner_of(void *context)
{
    return ((struct dk_body_reader *)context)->owner;
}

static dk_status on_tensor_begin(void *context, const struct dk_json_tensor *tensor, struct dk_error *error)
{
    struct dk_matmul *matmul = owner_of(context);
    struct dk_intake *intake = &matmul->tensors[tensor->path_index];
    dk_status status = check_early(matmul, tensor->path_index, error);
    if (status != DK_OK) {
        return status;
    }
    intake->is_present = true;
    if (tensor->path_index == DK_NATIVE_BIAS) {
        intake->dtype = DK_FP32;
        return DK_OK;
    }
    char name[16];
    intake->is_double = !dk_json_reader_peek_string(matmul->reader->json, "dtype", name, sizeof name);
    if (intake->is_double ||
        (dk_dtype_parse(name, strlen(name), DK_DIALECT_NATIVE, &intake->dtype) == DK_OK &&
         dk_dtype_is_float(intake->dtype))) {
        return DK_OK;
    }
    return dk_fail(error, DK_BAD_DTYPE, "dtype \"%s\" cannot be computed with; bf16, fp16 and fp32 can",
                   name);
}

static dk_status on_tensor_values(void *context, const struct dk_json_tensor *tensor, uint64_t offset,
                                  const double *values, size_t count, struct dk_error *error)
{
    struct dk_matmul *matmul = owner_of(context);
    return dk_intake_values(&matmul->tensors[tensor->path_index], matmul->daemon->slabs, offset, values,
                            count, error);
}

static dk_status on_tensor_end(void *context, const struct dk_json_tensor *tensor, struct dk_error *error)
{
    (void)error;
    owner_of(context)->tensors[tensor->path_index].tensor = *tensor;
    return DK_OK;
}

const struct dk_json_sink dk_matmul_sink = {
    .begin = on_tensor_begin, .values = on_tensor_values, .end = on_tensor_end};

dk_status dk_matmul_feed(struct dk_matmul *matmul, const char *bytes, size_t length, struct dk_error *error)
{
    if (matmul->is_raw) {
        return dk_intake_bytes(&matmul->tensors[DK_NATIVE_X], matmul->daemon->slabs, bytes, length, error);
    }
    return dk_json_reader_feed(matmul->reader->json, bytes, length, error);
}

/* Shape of an ad hoc operand: two dimensions; one is taken as a row vector. */
static dk_status matrix_shape(const struct dk_intake *intake, uint64_t shape[2], struct dk_error *error)
{
    const struct dk_json_tensor *tensor = &intake->tensor;
    if (tensor->rank == 0 || tensor->rank > 2) {
        return dk_fail(error, DK_BAD_SHAPE, "\"%s\" has %u dimensions, expected 2", intake->name,
                       tensor->rank);
    }
    shape[0] = tensor->rank == 2 ? tensor->shape[0] : 1;
    shape[1] = tensor->shape[tensor->rank - 1];
    return DK_OK;
}

static dk_status describe_model_product(struct dk_matmul *matmul, struct dk_gemm *gemm,
                                        struct dk_error *error)
{
    const struct dk_intake *x = &matmul->tensors[DK_NATIVE_X];
    dk_status status = find_model(matmul, matmul->request.model, error);
    if (status != DK_OK) {
        return status;
    }
    if (matmul->tensors[DK_NATIVE_A].is_present || matmul->tensors[DK_NATIVE_B].is_present) {
        return dk_fail(error, DK_BAD_REQUEST, "a and b are for products without a model");
    }
    if (matmul->request.has_b_layout) {
        return dk_fail(error, DK_BAD_REQUEST, "b_layout is for products without a model");
    }
    if (!x->is_present) {
        return dk_fail(error, DK_BAD_REQUEST, "x is missing: the rows to multiply");
    }
    const struct dk_model *model = matmul->model;
    gemm->n = model->n;
    gemm->k = model->k;
    gemm->a_dtype = matmul->request.has_dtype ? matmul->request.dtype : model->dtype;
    gemm->b_dtype = model->dtype;
    gemm->b_layout = model->layout;
    gemm->epilogue = matmul->request.has_epilogue ? matmul->request.epilogue : model->epilogue;
    gemm->has_bias = model->has_bias || matmul->tensors[DK_NATIVE_BIAS].is_present;
    if (matmul->is_raw) {
        gemm->m = x->used_bytes / raw_row_bytes(matmul);
        return check_raw_length(matmul, x->used_bytes, error);
    }
    return dk_matmul_rows(&x->tensor, model->k, &gemm->m, error);
}

static dk_status describe_adhoc_product(struct dk_matmul *matmul, struct dk_gemm *gemm,
                                        struct dk_error *error)
{
    const struct dk_intake *a = &matmul->tensors[DK_NATIVE_A], *b = &matmul->tensors[DK_NATIVE_B];
    if (matmul->tensors[DK_NATIVE_X].is_present) {
        return dk_fail(error, DK_BAD_REQUEST, "model is missing: x is for a named model");
    }
    if (!a->is_present || !b->is_present) {
        return dk_fail(error, DK_BAD_REQUEST, "%s is missing; send model and x, or a and b",
                       a->is_present   ? "b"
                       : b->is_present ? "a"
                                       : "model");
    }
    uint64_t a_shape[2] = {0}, b_shape[2] = {0};
    dk_status status = matrix_shape(a, a_shape, error);
    if (status == DK_OK) {
        status = matrix_shape(b, b_shape, error);
    }
    if (status != DK_OK) {
        return status;
    }
    gemm->b_layout = matmul->request.has_b_layout ? matmul->request.b_layout : DK_LAYOUT_KN;
    bool is_kn = gemm->b_layout == DK_LAYOUT_KN;
    gemm->n = b_shape[is_kn ? 1 : 0];
    gemm->k = b_shape[is_kn ? 0 : 1];
    gemm->m = a->tensor.count == 0 && a->tensor.rank == 1 ? 0 : a_shape[0]; /* [] is no row at all */
    if (gemm->m > 0 && a_shape[1] != gemm->k) {
        return dk_fail(error, DK_BAD_SHAPE, "a has %llu columns, b (layout %s) wants %llu",
                       (unsigned long long)a_shape[1], dk_layout_name(gemm->b_layout),
                       (unsigned long long)gemm->k);
    }
    gemm->a_dtype = gemm->b_dtype = matmul->request.has_dtype ? matmul->request.dtype : DK_FP32;
    gemm->epilogue = matmul->request.has_epilogue ? matmul->request.epilogue : DK_EPILOGUE_NONE;
    gemm->has_bias = matmul->tensors[DK_NATIVE_BIAS].is_present;
    return DK_OK;
}

static dk_status make_job(struct dk_matmul *matmul, const struct dk_gemm *gemm, struct dk_error *error)
{
    struct dk_intake *a = &matmul->tensors[matmul->model != NULL ? DK_NATIVE_X : DK_NATIVE_A];
    struct dk_gemm_sizes sizes;
    bool a_is_double, b_is_double;
    dk_status status = dk_gemm_check(gemm, &sizes, error);
    if (status == DK_OK) {
        status = dk_intake_settle(a, gemm->a_dtype, &a_is_double, error);
    }
    if (status == DK_OK) {
        status = dk_intake_settle(&matmul->tensors[DK_NATIVE_B], gemm->b_dtype, &b_is_double, error);
    }
    if (status == DK_OK) {
        status = dk_job_acquire(matmul->daemon->jobs, &matmul->job, error);
    }
    if (status != DK_OK) {
        return status;
    }
    struct dk_job *job = matmul->job;
    job->gemm = *gemm;
    job->a = dk_intake_take(a, &job->slabs[DK_JOB_SLAB_A]);
    job->b = dk_intake_take(&matmul->tensors[DK_NATIVE_B], &job->slabs[DK_JOB_SLAB_B]);
    job->bias = dk_intake_take(&matmul->tensors[DK_NATIVE_BIAS], &job->slabs[DK_JOB_SLAB_BIAS]);
    job->a_is_double = a_is_double;
    job->b_is_double = b_is_double;
    job->model = matmul->model; /* takes the reference */
    matmul->model = NULL;
    return dk_job_place_c(job, matmul->daemon->slabs, a->used_bytes, sizes.c_bytes, error);
}

static dk_status check_bias(const struct dk_matmul *matmul, uint64_t n, struct dk_error *error)
{
    const struct dk_intake *bias = &matmul->tensors[DK_NATIVE_BIAS];
    if (!bias->is_present || (bias->tensor.rank == 1 && bias->tensor.count == n)) {
        return DK_OK;
    }
    return dk_fail(error, DK_BAD_SHAPE, "bias has %u dimensions and %llu numbers, expected 1 and %llu",
                   bias->tensor.rank, (unsigned long long)bias->tensor.count, (unsigned long long)n);
}

static dk_status parse_skeleton(struct dk_matmul *matmul, struct dk_error *error)
{
    const char *skeleton;
    size_t length;
    dk_status status = dk_json_reader_finish(matmul->reader->json, &skeleton, &length, error);
    if (status == DK_OK) {
        status = dk_matmul_request_parse(skeleton, length, &matmul->request, error);
    }
    dk_body_reader_release(matmul->daemon->readers, matmul->reader);
    matmul->reader = NULL;
    return status;
}

dk_status dk_matmul_finish(struct dk_matmul *matmul, struct dk_error *error)
{
    dk_status status = matmul->is_raw ? DK_OK : parse_skeleton(matmul, error);
    if (status != DK_OK) {
        return status;
    }
    struct dk_gemm gemm = {.c_dtype = matmul->request.has_out_dtype ? matmul->request.out_dtype : DK_FP32};
    status = matmul->request.has_model ? describe_model_product(matmul, &gemm, error)
                                       : describe_adhoc_product(matmul, &gemm, error);
    if (status == DK_OK) {
        status = check_bias(matmul, gemm.n, error);
    }
    return status == DK_OK ? make_job(matmul, &gemm, error) : status;
}

void dk_matmul_end(struct dk_matmul *matmul)
{
    struct dk_daemon *daemon = matmul->daemon;
    if (daemon == NULL) {
        return;
    }
    dk_body_reader_release(daemon->readers, matmul->reader);
    for (int i = 0; i < DK_NATIVE_TENSOR_COUNT; i++) {
        dk_intake_release(&matmul->tensors[i], daemon->slabs);
    }
    if (matmul->model != NULL) {
        dk_model_release(matmul->model);
    }
    dk_job_release(daemon->jobs, matmul->job);
    memset(matmul, 0, sizeof *matmul);
}
