/* infer.c: framing, intake of the one tensor, shared memory, the job at the end. */
#include "server/infer.h"

#include <string.h>

#include "server/body_reader.h"
#include "server/daemon.h"
#include "server/job.h"
#include "server/models.h"
#include "server/regions.h"
#include "server/slab.h"

void dk_infer_model_init(struct dk_infer_model *out, const struct dk_daemon *daemon,
                         const struct dk_model *model)
{
    out->output = (struct dk_oip_tensor_spec){.name = "logits", .dtype = DK_FP32, .row_length = model->n};
    out->oip = (struct dk_oip_model){
        .name = model->name,
        .platform = "decomposek",
        .input = {.name = "x", .dtype = model->dtype, .row_length = model->k},
        .outputs = &out->output,
        .output_count = 1,
        .max_batch_size = dk_engine_get_info(daemon->engine)->max_tokens,
    };
}

static dk_status check_lengths(const struct dk_infer *infer, struct dk_error *error)
{
    if (infer->plain_length > infer->daemon->max_body_bytes) {
        return dk_fail(error, DK_TOO_LARGE, "the body has %llu bytes, the limit is %llu",
                       (unsigned long long)infer->plain_length,
                       (unsigned long long)infer->daemon->max_body_bytes);
    }
    return dk_oip_framing_check(&infer->framing, infer->plain_length, error);
}

static dk_status parse_raw(struct dk_infer *infer, uint64_t body_bytes, struct dk_error *error)
{
    dk_status status = dk_oip_request_init_raw(&infer->request, &infer->described.oip, body_bytes, error);
    infer->is_parsed = status == DK_OK;
    return status;
}

dk_status dk_infer_begin(struct dk_infer *infer, struct dk_daemon *daemon, const char *model_name,
                         const char *json_length, uint64_t plain_length, struct dk_error *error)
{
    memset(infer, 0, sizeof *infer);
    infer->x.name = "x";
    if (!dk_daemon_takes_work(daemon)) {
        return dk_fail(error, DK_UNAVAILABLE, "%s",
                       dk_daemon_get_state(daemon) == DK_DAEMON_LOADING ? "models are still being loaded"
                                                                        : "the daemon is stopping");
    }
    infer->daemon = daemon;
    infer->plain_length = plain_length;
    infer->model = dk_models_acquire(daemon->models, model_name);
    if (infer->model == NULL) {
        return dk_fail(error, DK_NOT_FOUND, "no model \"%s\"", model_name);
    }
    dk_infer_model_init(&infer->described, daemon, infer->model);
    dk_status status = dk_oip_framing_parse(json_length, &infer->framing, error);
    if (status == DK_OK && plain_length != UINT64_MAX) {
        status = check_lengths(infer, error);
    }
    if (status != DK_OK) {
        return status;
    }
    if (infer->framing.kind != DK_OIP_RAW) {
        return dk_body_reader_acquire(daemon->infer_readers, infer, &infer->reader, error);
    }
    infer->x.dtype = infer->model->dtype;
    infer->x.announced_bytes = plain_length != UINT64_MAX ? (size_t)plain_length : 0;
    return plain_length != UINT64_MAX ? parse_raw(infer, plain_length, error) : DK_OK;
}

static struct dk_infer *owner_of(void *context)
{
    return ((struct dk_body_reader *)context)->owner;
}

/* Only the first input can be x; whether there may be others is for dk_oip_request_check to say. */
static dk_status on_tensor_begin(void *context, const struct dk_json_tensor *tensor, struct dk_error *error)
{
    (void)error;
    struct dk_infer *infer = owner_of(context);
    if (tensor->indices[0] == 0) {
        infer->x.is_present = true;
        infer->x.is_double = !dk_oip_peek_datatype(infer->reader->json, 0, &infer->x.dtype) ||
                             !dk_dtype_is_float(infer->x.dtype);
    }
    return DK_OK;
}

static dk_status on_tensor_values(void *context, const struct dk_json_tensor *tensor, uint64_t offset,
                                  const double *values, size_t count, struct dk_error *error)
{
    struct dk_infer *infer = owner_of(context);
    if (tensor->indices[0] != 0) {
        return DK_OK;
    }
    return dk_intake_values(&infer->x, infer->daemon->slabs, offset, values, count, error);
}

const struct dk_json_sink dk_infer_sink = {.begin = on_tensor_begin, .values = on_tensor_values};

/* The JSON part is complete. */
static dk_status parse(struct dk_infer *infer, struct dk_error *error)
{
    dk_status status = dk_oip_request_parse(infer->reader->json, &infer->request, error);
    dk_body_reader_release(infer->daemon->infer_readers, infer->reader);
    infer->reader = NULL;
    if (status == DK_OK) {
        status = dk_oip_request_check(&infer->request, &infer->described.oip, error);
    }
    if (status == DK_OK && infer->plain_length != UINT64_MAX) {
        status = dk_oip_request_check_binary(&infer->request, &infer->framing, infer->plain_length, error);
    }
    if (status == DK_OK && infer->request.inputs[0].source == DK_OIP_SOURCE_BINARY) {
        infer->x.dtype = infer->request.inputs[0].dtype;
        infer->x.announced_bytes = infer->request.inputs[0].bytes;
    }
    infer->is_parsed = status == DK_OK;
    return status;
}

/* Bytes behind the JSON part, `body_bytes` of the body including them. */
static dk_status feed_binary(struct dk_infer *infer, const char *bytes, size_t length, struct dk_error *error)
{
    bool is_raw = infer->framing.kind == DK_OIP_RAW;
    if (!is_raw && infer->body_bytes - infer->framing.json_bytes > infer->request.binary_bytes) {
        return dk_oip_request_check_binary(&infer->request, &infer->framing, infer->body_bytes, error);
    }
    return dk_intake_bytes(&infer->x, infer->daemon->slabs, bytes, length, error);
}

dk_status dk_infer_feed(struct dk_infer *infer, const char *bytes, size_t length, struct dk_error *error)
{
    uint64_t fed_bytes = infer->body_bytes;
    infer->body_bytes += length;
    if (infer->body_bytes > infer->daemon->max_body_bytes) {
        return dk_fail(error, DK_TOO_LARGE, "the body has more than %llu bytes, the limit",
                       (unsigned long long)infer->daemon->max_body_bytes);
    }
    if (infer->framing.kind == DK_OIP_ALL_JSON) {
        return dk_json_reader_feed(infer->reader->json, bytes, length, error);
    }
    size_t json_bytes = 0;
    if (infer->framing.kind == DK_OIP_SPLIT && !infer->is_parsed) {
        uint64_t left = infer->framing.json_bytes - fed_bytes;
        json_bytes = left < length ? (size_t)left : length;
        dk_status status = dk_json_reader_feed(infer->reader->json, bytes, json_bytes, error);
        if (status == DK_OK && json_bytes == left) {
            status = parse(infer, error);
        }
        if (status != DK_OK) {
            return status;
        }
    }
    return json_bytes < length ? feed_binary(infer, bytes + json_bytes, length - json_bytes, error) : DK_OK;
}

static dk_status acquire_region(struct dk_infer *infer, const struct dk_oip_shared_memory *memory,
                                struct dk_region **out, struct dk_error *error)
{
    if (infer->daemon->regions == NULL) {
        return dk_fail(error, DK_FORBIDDEN,
                       "shared memory of clients is switched off (--allow-client-shm switches it on)");
    }
    return dk_regions_acquire(infer->daemon->regions, memory->region, memory->offset, memory->byte_size, out,
                              error);
}

static dk_status acquire_regions(struct dk_infer *infer, struct dk_error *error)
{
    const struct dk_oip_input *input = &infer->request.inputs[0];
    dk_status status = DK_OK;
    if (infer->framing.kind != DK_OIP_RAW && input->source == DK_OIP_SOURCE_SHARED_MEMORY) {
        status = acquire_region(infer, &input->shared_memory, &infer->x_region, error);
    }
    if (status == DK_OK && infer->request.outputs[0].kind == DK_OIP_OUTPUT_SHARED_MEMORY) {
        status = acquire_region(infer, &infer->request.outputs[0].shared_memory, &infer->y_region, error);
    }
    if (status == DK_OK && infer->x_region != NULL && input->bytes > 0) {
        infer->x.dtype = input->dtype;
        status = dk_slab_acquire(infer->daemon->slabs, input->bytes, &infer->x.slab, error);
        infer->x.used_bytes = status == DK_OK ? input->bytes : 0;
    }
    return status;
}

/* Priority 1 is the highest, as the protocol has it; none and 2 are the middle. */
static enum dk_job_level level_of(uint64_t priority)
{
    return priority == 1 ? DK_JOB_HIGH : priority <= 2 ? DK_JOB_NORMAL : DK_JOB_LOW;
}

static uint64_t deadline_of(uint64_t arrived_ns, uint64_t timeout_us)
{
    if (timeout_us == 0 || timeout_us > (UINT64_MAX - arrived_ns) / 1000u) {
        return 0;
    }
    return arrived_ns + timeout_us * 1000u;
}

static dk_status make_job(struct dk_infer *infer, uint64_t arrived_ns, struct dk_error *error)
{
    const struct dk_model *model = infer->model;
    const struct dk_oip_request *request = &infer->request;
    struct dk_gemm gemm = {.m = request->rows,
                           .n = model->n,
                           .k = model->k,
                           .a_dtype = request->inputs[0].dtype,
                           .b_dtype = model->dtype,
                           .c_dtype = request->outputs[0].dtype,
                           .b_layout = model->layout,
                           .epilogue = model->epilogue,
                           .has_bias = model->has_bias};
    struct dk_gemm_sizes sizes;
    bool is_double;
    dk_status status = dk_gemm_check(&gemm, &sizes, error);
    if (status == DK_OK) {
        status = dk_intake_settle(&infer->x, gemm.a_dtype, &is_double, error);
    }
    if (status == DK_OK) {
        status = dk_job_acquire(infer->daemon->jobs, &infer->job, error);
    }
    if (status != DK_OK) {
        return status;
    }
    struct dk_job *job = infer->job;
    job->gemm = gemm;
    job->a = dk_intake_take(&infer->x, &job->slabs[DK_JOB_SLAB_A]);
    job->a_is_double = is_double;
    job->model = infer->model; /* takes the reference */
    infer->model = NULL;
    job->level = level_of(request->priority);
    job->deadline_ns = deadline_of(arrived_ns, request->timeout_us);
    return dk_job_place_c(job, infer->daemon->slabs, infer->x.used_bytes, sizes.c_bytes, error);
}

dk_status dk_infer_finish(struct dk_infer *infer, uint64_t arrived_ns, struct dk_error *error)
{
    dk_status status = dk_oip_framing_check(&infer->framing, infer->body_bytes, error);
    infer->plain_length = infer->body_bytes;
    if (status == DK_OK && !infer->is_parsed) {
        status = infer->framing.kind == DK_OIP_RAW ? parse_raw(infer, infer->body_bytes, error)
                                                   : parse(infer, error);
    } else if (status == DK_OK && infer->framing.kind == DK_OIP_SPLIT) {
        status = dk_oip_request_check_binary(&infer->request, &infer->framing, infer->body_bytes, error);
    }
    if (status == DK_OK) {
        status = acquire_regions(infer, error);
    }
    return status == DK_OK ? make_job(infer, arrived_ns, error) : status;
}

/* One turn of `total` bytes, from *copied on. */
static size_t turn_of(uint64_t total, uint64_t copied)
{
    return (size_t)(total - copied < DK_INFER_TURN_BYTES ? total - copied : DK_INFER_TURN_BYTES);
}

dk_status dk_infer_load(struct dk_infer *infer, bool *is_done, struct dk_error *error)
{
    const struct dk_oip_input *input = &infer->request.inputs[0];
    uint64_t total = infer->x_region != NULL ? input->bytes : 0;
    size_t length = turn_of(total, infer->copied_bytes);
    dk_status status = DK_OK;
    if (length > 0) {
        status = dk_region_read(infer->x_region, input->shared_memory.offset + infer->copied_bytes,
                                (unsigned char *)infer->job->a + infer->copied_bytes, length, error);
    }
    infer->copied_bytes += length;
    *is_done = infer->copied_bytes == total;
    if (status == DK_OK && *is_done) {
        infer->copied_bytes = 0;
        if (infer->x_region != NULL) {
            dk_region_release(infer->daemon->regions, infer->x_region);
            infer->x_region = NULL;
        }
    }
    return status;
}

dk_status dk_infer_store(struct dk_infer *infer, bool *is_done, struct dk_error *error)
{
    const struct dk_oip_requested_output *output = &infer->request.outputs[0];
    uint64_t total = infer->y_region != NULL ? output->bytes : 0;
    size_t length = turn_of(total, infer->copied_bytes);
    dk_status status = DK_OK;
    if (length > 0) {
        status = dk_region_write(infer->y_region, output->shared_memory.offset + infer->copied_bytes,
                                 (const unsigned char *)infer->job->c + infer->copied_bytes, length, error);
    }
    infer->copied_bytes += length;
    *is_done = infer->copied_bytes == total;
    return status;
}

void dk_infer_end(struct dk_infer *infer)
{
    struct dk_daemon *daemon = infer->daemon;
    if (daemon == NULL) {
        return;
    }
    dk_body_reader_release(daemon->infer_readers, infer->reader);
    infer->reader = NULL;
    dk_intake_release(&infer->x, daemon->slabs);
    dk_region_release(daemon->regions, infer->x_region);
    dk_region_release(daemon->regions, infer->y_region);
    infer->x_region = infer->y_region = NULL;
    dk_model_release(infer->model);
    infer->model = NULL;
    dk_job_release(daemon->jobs, infer->job);
    infer->job = NULL;
    infer->daemon = NULL;
}
