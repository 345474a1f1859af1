/* ring_fixture.c: making the fixture, and the client's half of the ring. */
#include "tests/unit/server/ring_fixture.h"

#include <stdlib.h>
#include <string.h>

#include "server/clock.h"
#include "server/metrics.h"
#include "server/shm_models.h"

struct dk_model *ring_model_new(struct dk_engine *engine, const char *name, float factor)
{
    float b[RING_N * RING_K];
    struct dk_model *model = calloc(1, sizeof *model);
    for (int i = 0; i < RING_N * RING_K; i++) {
        b[i] = factor * (float)(i / RING_K + 1);
    }
    struct dk_weights_desc desc = {
        .n = RING_N, .k = RING_K, .dtype = DK_FP32, .layout = DK_LAYOUT_NK, .data = b};
    if (model == NULL || dk_weights_new(engine, &desc, &model->weights, NULL) != DK_OK) {
        free(model);
        return NULL;
    }
    strncpy(model->name, name, sizeof model->name - 1);
    model->n = RING_N;
    model->k = RING_K;
    model->reference_count = 1;
    model->metrics_shape = DK_METRICS_SHAPE_OTHER;
    model->metrics_model = -1;
    return model;
}

bool ring_fixture_init(struct ring_fixture *f)
{
    struct dk_engine_options options = {
        .backend = DK_BACKEND_CPU, .thread_count = 1, .max_tokens = RING_MAX_TOKENS};
    memset(f, 0, sizeof *f);
    if (dk_engine_new(&options, &f->engine, NULL) != DK_OK ||
        dk_ring_layout_make(RING_ENTRIES, RING_DATA_BYTES, &f->layout, NULL) != DK_OK) {
        return false;
    }
    f->mapping = aligned_alloc(4096, f->layout.mapping_bytes);
    f->launcher =
        (struct dk_launcher){.engine = f->engine, .max_tokens = RING_MAX_TOKENS, .workspace_bytes = 1 << 16};
    if (f->mapping == NULL ||
        dk_workspace_new(f->engine, f->launcher.workspace_bytes, &f->launcher.workspace, NULL) != DK_OK) {
        return false;
    }
    memset(f->mapping, 0, f->layout.mapping_bytes);
    dk_ring_format(f->mapping, &f->layout);
    f->now_ns = dk_clock_now_ns();
    struct dk_model *model = ring_model_new(f->engine, "m", 1);
    return model != NULL && dk_shm_session_init(&f->session, f->mapping, &f->layout, NULL, NULL) == DK_OK &&
           dk_shm_models_push(f->session.models, model, &f->model_id, NULL) == DK_OK;
}

void ring_fixture_deinit(struct ring_fixture *f)
{
    dk_shm_session_deinit(&f->session);
    dk_workspace_free(f->engine, f->launcher.workspace);
    dk_engine_free(f->engine);
    free(f->mapping);
}

struct dk_ring_submission ring_request(const struct ring_fixture *f, uint64_t user_data)
{
    return (struct dk_ring_submission){.user_data = user_data,
                                       .c_offset = 4096,
                                       .model_id = f->model_id,
                                       .rows = 1,
                                       .a_dtype = DK_FP32,
                                       .c_dtype = DK_FP32,
                                       .epilogue = DK_RING_MODEL_EPILOGUE};
}

void ring_put(struct ring_fixture *f, const struct dk_ring_submission *submission)
{
    f->session.ring.submissions[f->tail++ % RING_ENTRIES] = *submission;
}

void ring_publish(struct ring_fixture *f)
{
    dk_ring_publish_submissions(f->session.ring.header, f->tail);
}

bool ring_take(struct ring_fixture *f, struct dk_ring_completion *out)
{
    if (dk_ring_completion_tail(f->session.ring.header) == f->head) {
        return false;
    }
    *out = f->session.ring.completions[f->head++ % RING_ENTRIES];
    dk_ring_release_completions(f->session.ring.header, f->head);
    return true;
}

float *ring_floats(struct ring_fixture *f, uint64_t offset)
{
    return (float *)(void *)(f->session.ring.data + offset);
}
