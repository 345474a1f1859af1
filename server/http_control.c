/* http_control.c: model control over HTTP: GET, PUT and DELETE of one model, and the v2 repository routes. */
#include "server/http_control.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/json_reader.h"
#include "proto/oip_repository.h"
#include "server/daemon.h"
#include "server/http_reply.h"
#include "server/http_routes.h"
#include "server/model_control.h"
#include "server/models.h"

/* request->route_state of all routes here. Thread: the request's HTTP thread; `task` is lent to the loading
 * thread while the connection is suspended. */
struct control_request {
    struct dk_model_task task;
    struct dk_json_reader *reader; /* repository routes, from the first byte of a body on */
    bool holds_upload;             /* PUT: the one place for uploads */
    char tensor[DK_TARGET_BYTES], bias[DK_TARGET_BYTES]; /* PUT: what task.spec points to */
};

static dk_status check_allowed(const struct dk_http_request *request, struct dk_error *error)
{
    const struct dk_daemon *daemon = request->daemon;
    if (!daemon->config->allow_model_control) {
        return dk_fail(error, DK_FORBIDDEN, "model control is switched off (--allow-model-control)");
    }
    if (!dk_daemon_takes_work(daemon)) {
        return dk_fail(error, DK_UNAVAILABLE, "%s",
                       dk_daemon_get_state(daemon) == DK_DAEMON_LOADING ? "models are still being loaded"
                                                                        : "the daemon is stopping");
    }
    return DK_OK;
}

static dk_status new_state(struct dk_http_request *request, struct dk_error *error)
{
    struct control_request *control = calloc(1, sizeof *control);
    if (control == NULL) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for a change of models");
    }
    control->task.fd = -1;
    memcpy(control->task.name, request->parameters.model,
           strnlen(request->parameters.model, DK_MODEL_NAME_BYTES));
    request->route_state = control;
    return DK_OK;
}

void dk_control_end(struct dk_http_request *request)
{
    struct control_request *control = request->route_state;
    if (control == NULL) {
        return;
    }
    dk_model_release(control->task.model);
    dk_json_reader_free(control->reader);
    if (control->task.fd >= 0) {
        (void)close(control->task.fd);
    }
    if (control->holds_upload) {
        dk_model_upload_end(request->daemon->model_control);
    }
    free(control);
    request->route_state = NULL;
}

/* Thread: the loading one. The resumed connection comes back to the route's finish on its own thread. */
static void on_complete(struct dk_model_task *task)
{
    MHD_resume_connection(task->context);
}

static enum MHD_Result submit(struct dk_http_request *request, enum dk_model_change change)
{
    struct control_request *control = request->route_state;
    control->task.change = change;
    control->task.complete = on_complete;
    control->task.context = request->mhd;
    request->stage = DK_STAGE_WORK;
    /* Suspended before it can be completed: the loading thread may be faster than we are. */
    MHD_suspend_connection(request->mhd);
    struct dk_error error;
    if (dk_model_control_submit(request->daemon->model_control, &control->task, &error) != DK_OK) {
        control->task.error = error;
        MHD_resume_connection(request->mhd);
    }
    return MHD_YES;
}

/* --- repository routes ---------------------------------------------------------------------------------- */

dk_status dk_repository_begin(struct dk_http_request *request, struct dk_error *error)
{
    dk_status status = check_allowed(request, error);
    return status == DK_OK ? new_state(request, error) : status;
}

dk_status dk_repository_body(struct dk_http_request *request, const char *bytes, size_t length,
                             struct dk_error *error)
{
    struct control_request *control = request->route_state;
    if (control->reader == NULL && dk_json_reader_new(NULL, 0, NULL, &control->reader) != DK_OK) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for a JSON reader");
    }
    return dk_json_reader_feed(control->reader, bytes, length, error);
}

static dk_status finish_json(struct control_request *control, const char **skeleton, size_t *length,
                             struct dk_error *error)
{
    *skeleton = "";
    *length = 0;
    return control->reader == NULL ? DK_OK : dk_json_reader_finish(control->reader, skeleton, length, error);
}

static enum MHD_Result reply_index(struct dk_http_request *request, bool is_only_ready)
{
    struct dk_models_entry names[DK_MAX_MODELS];
    struct dk_oip_index_entry entries[DK_MAX_MODELS];
    size_t cursor = 0, count = 0;
    while (count < DK_MAX_MODELS && dk_models_next_entry(request->daemon->models, &cursor, &names[count])) {
        const struct dk_models_entry *entry = &names[count];
        if (is_only_ready && !entry->is_serving) {
            continue;
        }
        entries[count] =
            (struct dk_oip_index_entry){.name = entry->name,
                                        .state = entry->is_serving   ? DK_OIP_READY
                                                 : entry->is_loading ? DK_OIP_LOADING
                                                                     : DK_OIP_UNAVAILABLE,
                                        .reason = entry->is_serving || entry->is_loading ? "" : "unloaded"};
        count++;
    }
    struct dk_json_text text = {0};
    dk_oip_index(&text, entries, count);
    return dk_http_reply_text(request, MHD_HTTP_OK, DK_MEDIA_JSON, NULL, &text);
}

enum MHD_Result dk_repository_index(struct dk_http_request *request)
{
    struct dk_error error;
    const char *skeleton;
    size_t length;
    bool is_only_ready = false;
    dk_status status = finish_json(request->route_state, &skeleton, &length, &error);
    if (status == DK_OK) {
        status = dk_oip_index_request_parse(skeleton, length, &is_only_ready, &error);
    }
    return status == DK_OK ? reply_index(request, is_only_ready) : dk_http_reply_error(request, &error);
}

static enum MHD_Result reply_empty_object(struct dk_http_request *request)
{
    struct dk_json_text text = {0};
    dk_json_text_raw(&text, "{}\n"); /* the C++ client parses every answer */
    return dk_http_reply_text(request, MHD_HTTP_OK, DK_MEDIA_JSON, NULL, &text);
}

static enum MHD_Result change(struct dk_http_request *request, enum dk_model_change what,
                              dk_status (*parse)(const char *, size_t, struct dk_error *))
{
    struct control_request *control = request->route_state;
    if (request->stage == DK_STAGE_WORK) {
        return control->task.error.status == DK_OK ? reply_empty_object(request)
                                                   : dk_http_reply_error(request, &control->task.error);
    }
    struct dk_error error;
    const char *skeleton;
    size_t length;
    dk_status status = finish_json(control, &skeleton, &length, &error);
    if (status == DK_OK) {
        status = parse(skeleton, length, &error);
    }
    return status == DK_OK ? submit(request, what) : dk_http_reply_error(request, &error);
}

enum MHD_Result dk_repository_load(struct dk_http_request *request)
{
    return change(request, DK_MODEL_LOAD, dk_oip_load_request_parse);
}

enum MHD_Result dk_repository_unload(struct dk_http_request *request)
{
    return change(request, DK_MODEL_REMOVE, dk_oip_unload_request_parse);
}

/* --- /v1/models/{model} --------------------------------------------------------------------------------- */

static dk_status set_parameter(struct control_request *control, const char *name, const char *value,
                               unsigned *seen, struct dk_error *error)
{
    static const char *const names[] = {"tensor", "bias", "layout", "epilogue"};
    struct dk_model_spec *spec = &control->task.spec;
    size_t index = 0, length = strlen(value);
    while (index < 4 && strcmp(name, names[index]) != 0) {
        index++;
    }
    if (index == 4) {
        return dk_fail(error, DK_BAD_REQUEST,
                       "query parameter \"%.64s\" is unknown; expected tensor, bias, layout or epilogue",
                       name);
    }
    if ((*seen & 1u << index) != 0) {
        return dk_fail(error, DK_BAD_REQUEST, "query parameter \"%s\" stands there twice", name);
    }
    *seen |= 1u << index;
    if (index < 2 && length > 0) {
        memcpy(index == 0 ? control->tensor : control->bias, value, length + 1);
        *(index == 0 ? &spec->tensor : &spec->bias) = index == 0 ? control->tensor : control->bias;
        return DK_OK;
    }
    if ((index == 2 && dk_layout_parse(value, length, &spec->layout) == DK_OK) ||
        (index == 3 && dk_epilogue_parse(value, length, &spec->epilogue) == DK_OK)) {
        return DK_OK;
    }
    return dk_fail(error, DK_BAD_VALUE, "%s: \"%.64s\" is not allowed; expected %s", name, value,
                   index < 2    ? "the name of a tensor"
                   : index == 2 ? "nk or kn"
                                : "none, relu or sigmoid");
}

static dk_status parse_query(struct control_request *control, const char *query, struct dk_error *error)
{
    char name[DK_TARGET_BYTES], value[DK_TARGET_BYTES];
    bool has_value;
    unsigned seen = 0;
    dk_status status;
    control->task.spec = (struct dk_model_spec){
        .name = control->task.name, .path = "upload", .layout = DK_LAYOUT_NK, .epilogue = DK_EPILOGUE_NONE};
    while (dk_query_next(&query, name, value, &has_value, &status, error)) {
        status = set_parameter(control, name, has_value ? value : "", &seen, error);
        if (status != DK_OK) {
            return status;
        }
    }
    return status;
}

static dk_status check_media_type(const char *type, struct dk_error *error)
{
    size_t length = type != NULL ? strcspn(type, "; \t") : 0;
    static const char raw[] = DK_MEDIA_RAW;
    if (length == 0 || (length == sizeof raw - 1 && strncasecmp(type, raw, length) == 0)) {
        return DK_OK;
    }
    return dk_fail(error, DK_UNSUPPORTED_MEDIA,
                   "Content-Type \"%.80s\" is not supported; send a safetensors file as " DK_MEDIA_RAW, type);
}

static dk_status too_long(const struct dk_http_request *request, struct dk_error *error)
{
    return dk_fail(error, DK_TOO_LARGE, "the file has more than %llu bytes, the limit (--max-upload-bytes)",
                   (unsigned long long)request->daemon->config->max_upload_bytes);
}

/* The file lies in memory that no name leads to: gone with the request, whatever happens to it. */
static dk_status open_upload(struct dk_http_request *request, struct dk_error *error)
{
    struct control_request *control = request->route_state;
    if (!dk_model_upload_begin(request->daemon->model_control)) {
        return dk_fail(error, DK_BUSY, "another model is being uploaded; try again");
    }
    control->holds_upload = true;
    control->task.fd = memfd_create("dk-upload", MFD_CLOEXEC);
    return control->task.fd >= 0
               ? DK_OK
               : dk_fail(error, DK_NO_MEMORY, "no memory for an upload: %s", strerrordesc_np(errno));
}

static dk_status begin_put(struct dk_http_request *request, struct dk_error *error)
{
    dk_status status = check_media_type(request->head.content_type, error);
    if (status == DK_OK && request->head.has_content_length && request->head.coding == DK_CODING_IDENTITY &&
        request->head.content_length > request->daemon->config->max_upload_bytes) {
        status = too_long(request, error);
    }
    if (status == DK_OK) {
        status = parse_query(request->route_state, request->target.query, error);
    }
    return status == DK_OK ? open_upload(request, error) : status;
}

dk_status dk_model_begin(struct dk_http_request *request, struct dk_error *error)
{
    if (request->method == DK_METHOD_GET || request->method == DK_METHOD_HEAD) {
        return DK_OK;
    }
    dk_status status = check_allowed(request, error);
    if (status == DK_OK) {
        status = new_state(request, error);
    }
    if (status == DK_OK && request->method == DK_METHOD_PUT) {
        status = begin_put(request, error);
    }
    if (status != DK_OK) {
        dk_control_end(request);
    }
    return status;
}

static dk_status write_all(int fd, const char *bytes, size_t length, struct dk_error *error)
{
    while (length > 0) {
        ssize_t count = write(fd, bytes, length);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return dk_fail(error, DK_NO_MEMORY, "no memory for an upload: %s", strerrordesc_np(errno));
        }
        bytes += count;
        length -= (size_t)count;
    }
    return DK_OK;
}

dk_status dk_model_body(struct dk_http_request *request, const char *bytes, size_t length,
                        struct dk_error *error)
{
    struct control_request *control = request->route_state;
    if (control == NULL || control->task.fd < 0) { /* GET and DELETE take no body; what is sent is dropped */
        return request->plain_bytes <= DK_HTTP_DISCARD_BYTES
                   ? DK_OK
                   : dk_fail(error, DK_TOO_LARGE,
                             "%s takes no body here, and this one has more than %d bytes",
                             request->target.path, DK_HTTP_DISCARD_BYTES);
    }
    dk_status status = request->plain_bytes > request->daemon->config->max_upload_bytes
                           ? too_long(request, error)
                           : write_all(control->task.fd, bytes, length, error);
    if (status != DK_OK) {
        dk_control_end(request); /* the rest of the body is dropped: hold nothing meanwhile */
    }
    return status;
}

static enum MHD_Result reply_model(struct dk_http_request *request, unsigned http_status,
                                   const struct dk_model *model)
{
    struct dk_json_text text = {0};
    dk_admin_model_json(&text, model);
    dk_json_text_raw(&text, "\n");
    return dk_http_reply_text(request, http_status, DK_MEDIA_JSON, NULL, &text);
}

static enum MHD_Result show(struct dk_http_request *request)
{
    struct dk_error error;
    if (dk_daemon_get_state(request->daemon) == DK_DAEMON_LOADING) {
        (void)dk_fail(&error, DK_UNAVAILABLE, "models are still being loaded");
        return dk_http_reply_error(request, &error);
    }
    struct dk_model *model = dk_models_acquire(request->daemon->models, request->parameters.model);
    if (model == NULL) {
        (void)dk_fail(&error, DK_NOT_FOUND, "no model \"%s\"", request->parameters.model);
        return dk_http_reply_error(request, &error);
    }
    enum MHD_Result result = reply_model(request, MHD_HTTP_OK, model);
    dk_model_release(model);
    return result;
}

enum MHD_Result dk_model_finish(struct dk_http_request *request)
{
    struct control_request *control = request->route_state;
    if (control == NULL) {
        return show(request);
    }
    bool is_put = request->method == DK_METHOD_PUT;
    if (request->stage != DK_STAGE_WORK) {
        return submit(request, is_put ? DK_MODEL_PUT : DK_MODEL_REMOVE);
    }
    if (control->task.error.status != DK_OK) {
        return dk_http_reply_error(request, &control->task.error);
    }
    return is_put ? reply_model(request, control->task.is_new ? MHD_HTTP_CREATED : MHD_HTTP_OK,
                                control->task.model)
                  : reply_empty_object(request);
}
