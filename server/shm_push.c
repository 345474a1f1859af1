/* shm_push.c: weights that a client pushes from its memory, for its own session. */
#include "server/shm_private.h"

#include <stdlib.h>
#include <string.h>

#include "server/bell.h"
#include "server/daemon.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/model_load.h"
#include "server/models.h"
#include "server/shm_models.h"

/* The most that packed weights of this shape take: n padded to 64 columns, k to even, 4 bytes a number;
 * OpenBLAS wants a copy of its own. */
static uint64_t packed_bound(uint64_t n, uint64_t k, bool use_blas)
{
    uint64_t padded = (n + 63) / 64 * 64 * (k + 1) * sizeof(float);
    return (use_blas ? 2 : 1) * padded + n * sizeof(float);
}

static bool is_inside(uint64_t offset, uint64_t length, uint64_t size)
{
    return offset % DK_RING_ALIGN_BYTES == 0 && offset <= size && length <= size - offset;
}

static dk_status check(const struct dk_shm_client *client, const struct dk_shm_load_model *request,
                       struct dk_error *error)
{
    struct dk_gemm gemm = {.m = 1,
                           .n = request->n,
                           .k = request->k,
                           .a_dtype = DK_FP32,
                           .b_dtype = (dk_dtype)request->dtype,
                           .c_dtype = DK_FP32,
                           .b_layout = (dk_layout)request->layout,
                           .has_bias = request->has_bias != 0};
    struct dk_gemm_sizes sizes;
    uint64_t data_bytes = client->layout.data_bytes;
    if (!client->shm->daemon->config->shm_load_models) {
        return dk_fail(error, DK_FORBIDDEN, "pushing weights is switched off (--shm-load-models)");
    }
    if (!dk_model_name_is_valid(request->name, strlen(request->name))) {
        return dk_fail(error, DK_BAD_VALUE, "\"%.80s\" is no name of a model", request->name);
    }
    if (request->layout > DK_LAYOUT_NK || request->has_bias > 1 || request->epilogue >= DK_EPILOGUE_COUNT) {
        return dk_fail(error, DK_BAD_VALUE, "layout %u, has_bias %u or epilogue %u is unknown",
                       request->layout, request->has_bias, request->epilogue);
    }
    dk_status status = dk_gemm_check(&gemm, &sizes, error);
    if (status != DK_OK) {
        return status;
    }
    if (!is_inside(request->weights_offset, sizes.b_bytes, data_bytes) ||
        (request->has_bias != 0 && !is_inside(request->bias_offset, sizes.bias_bytes, data_bytes))) {
        return dk_fail(
            error, DK_BAD_VALUE,
            "weights of %zu bytes at %llu, bias of %zu at %llu: not on a border of %d in the %llu bytes "
            "of data",
            sizes.b_bytes, (unsigned long long)request->weights_offset, sizes.bias_bytes,
            (unsigned long long)request->bias_offset, DK_RING_ALIGN_BYTES, (unsigned long long)data_bytes);
    }
    return DK_OK;
}

/* Worker. The client may write to the weights meanwhile: then it gets what it wrote, which is numbers at
 * worst.
 */
static void make_model(struct dk_shm_client *client)
{
    const struct dk_shm_load_model *request = &client->request.load_model;
    const unsigned char *data = client->session.ring.data;
    struct dk_model *model = calloc(1, sizeof *model);
    if (model == NULL) {
        client->work_status = dk_fail(&client->work_error, DK_NO_MEMORY, "no memory for a model");
        return;
    }
    memcpy(model->name, request->name, strnlen(request->name, sizeof model->name - 1));
    model->n = request->n;
    model->k = request->k;
    model->dtype = (dk_dtype)request->dtype;
    model->layout = (dk_layout)request->layout;
    model->epilogue = (dk_epilogue)request->epilogue;
    model->has_bias = request->has_bias != 0;
    model->metrics_shape = DK_METRICS_SHAPE_OTHER;
    model->metrics_model = -1;
    model->reference_count = 1;
    const struct dk_weights_desc desc = {
        .n = model->n,
        .k = model->k,
        .dtype = model->dtype,
        .layout = model->layout,
        .data = data + request->weights_offset,
        .bias = model->has_bias ? (const float *)(const void *)(data + request->bias_offset) : NULL};
    client->work_status =
        dk_weights_new(client->shm->daemon->engine, &desc, &model->weights, &client->work_error);
    if (client->work_status == DK_OK &&
        dk_workspace_bytes(model->weights, 1) > client->shm->daemon->workspace_bytes) {
        client->work_status =
            dk_fail(&client->work_error, DK_TOO_LARGE,
                    "one row of [%llu,%llu] needs a workspace of %zu bytes, there are %zu",
                    (unsigned long long)model->k, (unsigned long long)model->n,
                    dk_workspace_bytes(model->weights, 1), client->shm->daemon->workspace_bytes);
    }
    if (client->work_status == DK_OK) {
        client->pushed = model;
    } else {
        dk_model_free(model);
    }
}

/* What the session holds, now that it is known; never more than was claimed for it before. */
static void settle_claim(struct dk_shm_client *client)
{
    uint64_t bytes = client->layout.mapping_bytes + dk_shm_models_pushed_bytes(client->session.models, NULL);
    struct dk_error error;
    if (dk_shm_claim(client, bytes, &error) != DK_OK) {
        dk_log(DK_LOG_ERROR, "shm_claim_failed", "reason=%s", error.message);
    }
}

static void after_make_model(struct dk_shm_client *client)
{
    dk_status status = client->work_status;
    uint32_t id = DK_SHM_NO_MODEL;
    struct dk_model *model = client->pushed;
    client->pushed = NULL;
    if (status == DK_OK) {
        status = dk_shm_models_push(client->session.models, model, &id, &client->work_error);
        if (status != DK_OK) {
            dk_model_release(model);
        }
    }
    settle_claim(client);
    if (status != DK_OK) {
        dk_shm_client_send_error(client, &client->work_error);
        return;
    }
    dk_bell_ring(client->shm->daemon->bell); /* a sleeping executor lets go of the version before */
    dk_shm_client_send_model(client, id, model);
}

void dk_shm_client_load_model(struct dk_shm_client *client, const struct dk_shm_load_model *request)
{
    struct dk_error error;
    dk_status status = check(client, request, &error);
    if (status == DK_OK) {
        uint64_t bound = packed_bound(request->n, request->k, client->shm->daemon->config->use_blas);
        status = dk_shm_claim(client, client->bytes + bound, &error);
    }
    if (status != DK_OK) {
        dk_shm_client_send_error(client, &error);
        return;
    }
    client->request.load_model = *request;
    dk_shm_client_work(client, make_model, after_make_model);
}
