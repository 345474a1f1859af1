/* model_load.c: choosing the tensors of a model, checking them, and making resident weights of them. */
#include "server/model_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/weights_file.h"

/* "[256, 7168]" */
static const char *shape_text(const struct dk_st_tensor *tensor, char out[128])
{
    size_t length = (size_t)snprintf(out, 128, "[");
    for (uint32_t i = 0; i < tensor->rank && length < 100; i++)
        length += (size_t)snprintf(out + length, 128 - length, i == 0 ? "%llu" : ", %llu",
                                   (unsigned long long)tensor->shape[i]);
    (void)snprintf(out + length, 128 - length, "]");
    return out;
}

static bool is_float(const struct dk_st_tensor *tensor)
{
    return tensor->dtype >= 0 && dk_dtype_is_float((dk_dtype)tensor->dtype);
}

static bool is_matrix(const struct dk_st_tensor *tensor)
{
    return tensor->rank == 2 && is_float(tensor);
}

/* "'a' BF16 [256, 7168], 'b' F32 [256] and 3 more": the 2-D float ones only if `matrices_only`. */
static void list_tensors(const struct dk_st_index *index, bool matrices_only, char *out, size_t size)
{
    char shape[128];
    size_t length = 0, left_out = 0;
    out[0] = '\0';
    for (size_t i = 0; i < index->tensor_count; i++) {
        const struct dk_st_tensor *tensor = &index->tensors[i];
        if (matrices_only && !is_matrix(tensor))
            continue;
        char one[320];
        int needed = snprintf(one, sizeof one, "%s'%.100s' %s %s", length > 0 ? ", " : "", tensor->name,
                              tensor->dtype_name, shape_text(tensor, shape));
        if (left_out > 0 || length + (size_t)needed + 24 > size) {
            left_out++;
            continue;
        }
        memcpy(out + length, one, (size_t)needed + 1);
        length += (size_t)needed;
    }
    if (left_out > 0)
        (void)snprintf(out + length, size - length, " and %zu more", left_out);
    else if (length == 0)
        (void)snprintf(out, size, "none");
}

static dk_status find_named(const struct dk_st_index *index, const char *path, const char *name,
                            const struct dk_st_tensor **out, struct dk_error *error)
{
    char list[200];
    const struct dk_st_tensor *tensor = dk_st_index_find(index, name);
    if (tensor != NULL) {
        *out = tensor;
        return DK_OK;
    }
    list_tensors(index, false, list, sizeof list);
    return dk_fail(error, DK_BAD_FILE, "%.100s: tensor '%.64s' is not in the file; found %s", path, name,
                   list);
}

/* Without a name: the only 2-D tensor of a type we compute with. */
static dk_status find_only_matrix(const struct dk_st_index *index, const char *path,
                                  const struct dk_st_tensor **out, struct dk_error *error)
{
    char list[200];
    const struct dk_st_tensor *only = NULL;
    size_t count = 0;
    for (size_t i = 0; i < index->tensor_count; i++) {
        if (!is_matrix(&index->tensors[i]))
            continue;
        only = &index->tensors[i];
        count++;
    }
    if (count == 1) {
        *out = only;
        return DK_OK;
    }
    list_tensors(index, count > 0, list, sizeof list);
    if (count == 0)
        return dk_fail(error, DK_BAD_FILE, "%.100s: expected a 2-D tensor of F32, BF16 or F16; found %s",
                       path, list);
    return dk_fail(error, DK_BAD_FILE,
                   "%.100s: %zu 2-D float tensors are in the file, say which with tensor=; found %s", path,
                   count, list);
}

static dk_status check_matrix(const struct dk_model_spec *spec, const struct dk_st_tensor *tensor,
                              uint64_t *n, uint64_t *k, struct dk_error *error)
{
    char shape[128];
    if (tensor->rank != 2)
        return dk_fail(error, DK_BAD_SHAPE, "%.100s: tensor '%.100s': expected 2 dimensions, found shape %s",
                       spec->path, tensor->name, shape_text(tensor, shape));
    if (!is_float(tensor))
        return dk_fail(error, DK_BAD_DTYPE, "%.100s: tensor '%.100s': expected F32, BF16 or F16, found %s",
                       spec->path, tensor->name, tensor->dtype_name);
    bool is_nk = spec->layout == DK_LAYOUT_NK;
    uint64_t rows = tensor->shape[0], columns = tensor->shape[1];
    *n = is_nk ? rows : columns;
    *k = is_nk ? columns : rows;
    if (*n < 1 || *n > DK_MAX_N || *k < 1 || *k > DK_MAX_K)
        return dk_fail(error, DK_BAD_SHAPE,
                       "%.100s: tensor '%.100s' (layout %s): expected n 1..%d and k 1..%d, found shape %s",
                       spec->path, tensor->name, dk_layout_name(spec->layout), (int)DK_MAX_N, (int)DK_MAX_K,
                       shape_text(tensor, shape));
    return DK_OK;
}

static dk_status check_bias(const struct dk_model_spec *spec, const struct dk_st_tensor *bias, uint64_t n,
                            const char *matrix_name, struct dk_error *error)
{
    char shape[128];
    if (bias->rank != 1 || bias->shape[0] != n)
        return dk_fail(error, DK_BAD_SHAPE,
                       "%.100s: bias tensor '%.80s': expected shape [%llu] (n of '%.80s'), found %s",
                       spec->path, bias->name, (unsigned long long)n, matrix_name, shape_text(bias, shape));
    if (!is_float(bias))
        return dk_fail(error, DK_BAD_DTYPE,
                       "%.100s: bias tensor '%.100s': expected F32, BF16 or F16, found %s", spec->path,
                       bias->name, bias->dtype_name);
    return DK_OK;
}

/* The bytes of `tensor` in new memory; freed by the caller. */
static dk_status read_tensor(const struct dk_weights_file *file, const struct dk_st_tensor *tensor,
                             const char *path, void **out, struct dk_error *error)
{
    size_t size = (size_t)(tensor->end - tensor->begin);
    void *data = malloc(size);
    if (data == NULL)
        return dk_fail(error, DK_NO_MEMORY, "%.100s: tensor '%.100s': no memory for %zu bytes", path,
                       tensor->name, size);
    dk_status status = dk_weights_file_read(file, tensor, data, error);
    if (status == DK_OK)
        *out = data;
    else
        free(data);
    return status;
}

/* The bias widened to fp32 in new memory; *out stays NULL when the spec names none. */
static dk_status read_bias(const struct dk_weights_file *file, const struct dk_model_spec *spec,
                           const struct dk_st_tensor *matrix, uint64_t n, float **out, struct dk_error *error)
{
    const struct dk_st_tensor *bias = NULL;
    void *raw = NULL;
    if (spec->bias == NULL)
        return DK_OK;
    dk_status status = find_named(dk_weights_file_index(file), spec->path, spec->bias, &bias, error);
    if (status == DK_OK)
        status = check_bias(spec, bias, n, matrix->name, error);
    if (status == DK_OK)
        status = read_tensor(file, bias, spec->path, &raw, error);
    if (status != DK_OK)
        return status;
    float *widened = malloc((size_t)n * sizeof *widened);
    if (widened == NULL) {
        free(raw);
        return dk_fail(error, DK_NO_MEMORY, "%.100s: no memory for the bias", spec->path);
    }
    dk_convert_to_float(raw, (dk_dtype)bias->dtype, widened, (size_t)n);
    free(raw);
    *out = widened;
    return DK_OK;
}

static dk_status build_model(const struct dk_weights_file *file, struct dk_engine *engine,
                             const struct dk_model_spec *spec, struct dk_model *model, struct dk_error *error)
{
    const struct dk_st_index *index = dk_weights_file_index(file);
    const struct dk_st_tensor *matrix = NULL;
    void *data = NULL;
    float *bias = NULL;
    dk_status status = spec->tensor != NULL ? find_named(index, spec->path, spec->tensor, &matrix, error)
                                            : find_only_matrix(index, spec->path, &matrix, error);
    if (status == DK_OK)
        status = check_matrix(spec, matrix, &model->n, &model->k, error);
    if (status == DK_OK)
        status = read_bias(file, spec, matrix, model->n, &bias, error);
    if (status == DK_OK)
        status = read_tensor(file, matrix, spec->path, &data, error);
    if (status == DK_OK) {
        model->dtype = (dk_dtype)matrix->dtype;
        model->has_bias = bias != NULL;
        model->tensor_name = strdup(matrix->name); /* the index goes with the file */
        const struct dk_weights_desc desc = {model->n, model->k, model->dtype, spec->layout, data, bias};
        status = model->tensor_name == NULL ? dk_fail(error, DK_NO_MEMORY, "%.100s: no memory", spec->path)
                                            : dk_weights_new(engine, &desc, &model->weights, error);
    }
    free(data);
    free(bias);
    return status;
}

static dk_status copy_spec(const struct dk_model_spec *spec, struct dk_model *model, struct dk_error *error)
{
    (void)snprintf(model->name, sizeof model->name, "%s", spec->name);
    model->layout = spec->layout;
    model->epilogue = spec->epilogue;
    model->source_path = strdup(spec->path);
    model->bias_name = spec->bias != NULL ? strdup(spec->bias) : NULL;
    if (model->source_path == NULL || (spec->bias != NULL && model->bias_name == NULL))
        return dk_fail(error, DK_NO_MEMORY, "no memory");
    return DK_OK;
}

dk_status dk_model_load(struct dk_engine *engine, const struct dk_model_spec *spec, int fd,
                        struct dk_model **out, struct dk_error *error)
{
    struct dk_weights_file *file = NULL;
    struct dk_error inner = {0};
    struct dk_model *model = calloc(1, sizeof *model);
    if (model == NULL)
        return dk_fail(error, DK_NO_MEMORY, "model '%s': no memory", spec->name);
    model->reference_count = 1;
    model->is_upload = fd >= 0;
    dk_status status = copy_spec(spec, model, &inner);
    if (status == DK_OK)
        status = fd < 0 ? dk_weights_file_open(spec->path, &file, &inner)
                        : dk_weights_file_open_fd(fd, spec->path, &file, &inner);
    if (status == DK_OK)
        status = build_model(file, engine, spec, model, &inner);
    dk_weights_file_close(file);
    if (status == DK_OK) {
        *out = model;
        return DK_OK;
    }
    dk_model_free(model);
    return dk_fail(error, status, "model '%s': %s", spec->name, inner.message);
}

void dk_model_free(struct dk_model *model)
{
    if (model == NULL)
        return;
    dk_weights_free(model->weights);
    /* ours since the load; const for every reader */
    free((char *)model->source_path);
    free((char *)model->tensor_name);
    free((char *)model->bias_name);
    free(model);
}
