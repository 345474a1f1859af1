/* tuning.c: tuning of the loaded models at startup or in the background. */
#include "server/tuning.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "server/daemon.h"
#include "server/log.h"
#include "server/models.h"

struct dk_tuning {
    struct dk_daemon *daemon;
    pthread_t thread;
    atomic_bool is_ending;
};

const char *dk_tuning_cache_path(const struct dk_config *config, char *out, size_t size)
{
    struct dk_error error;
    if (config->plan_cache != NULL)
        return strcmp(config->plan_cache, "off") == 0 ? NULL : config->plan_cache;
    if (!dk_plan_cache_default_path(out, size)) {
        if (config->tune != DK_TUNE_OFF)
            dk_log(DK_LOG_WARN, "plan_cache_off", "reason=%s",
                   "neither HOME nor XDG_CACHE_HOME names a folder; --plan-cache names a file");
        return NULL;
    }
    if (config->tune != DK_TUNE_OFF && dk_plan_cache_make_folder(out, &error) != DK_OK) {
        dk_log(DK_LOG_WARN, "plan_cache_off", "reason=%s", error.message);
        return NULL;
    }
    return out;
}

void dk_tuning_log_cache(const struct dk_engine_info *info, const char *path)
{
    if (path == NULL)
        return;
    if (info->plan_cache_warning[0] != '\0')
        dk_log(DK_LOG_WARN, "plan_cache_ignored", "path=%s reason=%s plans=%u", path,
               info->plan_cache_warning, info->cached_plan_count);
    else if (info->cached_plan_count > 0)
        dk_log(DK_LOG_INFO, "plan_cache", "path=%s plans=%u", path, info->cached_plan_count);
}

/* For dk_tune_options.context: which model, and what ends it. */
struct progress {
    const struct dk_daemon *daemon;
    const atomic_bool *is_ending; /* NULL: only the daemon's state counts */
    const char *model;
};

static bool is_going_on(const struct progress *progress)
{
    return dk_daemon_get_state(progress->daemon) != DK_DAEMON_CLOSING &&
           (progress->is_ending == NULL || !atomic_load(progress->is_ending));
}

static bool log_bucket(void *context, const struct dk_tune_result *result)
{
    const struct progress *progress = context;
    const struct dk_plan *best = &result->candidates[result->best];
    dk_log(DK_LOG_INFO, "plan_tuned",
           "model=%s rows=%u variant=%s split_k=%u time_ns=%llu before=%s before_ns=%llu candidates=%u",
           progress->model, result->bucket_rows, best->variant, best->split_k,
           (unsigned long long)result->times_ns[result->best], result->candidates[result->before].variant,
           (unsigned long long)result->times_ns[result->before], result->candidate_count);
    return is_going_on(progress);
}

static void tune_model(struct progress *progress, struct dk_model *model, bool is_only_remembered)
{
    struct dk_error error;
    struct dk_tune_options options = {
        .is_only_remembered = is_only_remembered, .on_bucket = log_bucket, .context = progress};
    progress->model = model->name;
    dk_status status = dk_weights_tune(model->weights, &options, &error);
    if (status != DK_OK && status != DK_CANCELLED)
        dk_log(DK_LOG_WARN, "tuning_failed", "model=%s status=%s message=%s", model->name,
               dk_status_name(status), error.message);
}

static void tune_all(struct progress *progress, bool is_only_remembered)
{
    struct dk_models *models = progress->daemon->models;
    size_t cursor = 0;
    for (struct dk_model *model;
         is_going_on(progress) && (model = dk_models_next(models, &cursor)) != NULL;) {
        tune_model(progress, model, is_only_remembered);
        dk_model_release(model);
    }
}

/* Cached plans that cannot be used, before tuning finds others. */
static void log_unknown(const struct dk_model *model)
{
    struct dk_plan_origin origin = dk_plan_get_origin(model->weights);
    if (origin.unknown_count > 0)
        dk_log(DK_LOG_WARN, "plan_cache_unknown", "model=%s plans=%u reason=%s", model->name,
               origin.unknown_count, "this build and device offer no such plans");
}

static void log_tuned(const struct dk_model *model)
{
    struct dk_plan_origin origin = dk_plan_get_origin(model->weights);
    if (origin.tuned_count > 0)
        dk_log(DK_LOG_INFO, "plans_tuned", "model=%s plans=%u", model->name, origin.tuned_count);
}

static void log_models(const struct dk_daemon *daemon, void (*log_model)(const struct dk_model *model))
{
    size_t cursor = 0;
    for (struct dk_model *model; (model = dk_models_next(daemon->models, &cursor)) != NULL;) {
        log_model(model);
        dk_model_release(model);
    }
}

void dk_tuning_run(struct dk_daemon *daemon)
{
    struct progress progress = {.daemon = daemon};
    log_models(daemon, log_unknown);
    if (daemon->config->tune == DK_TUNE_STARTUP)
        tune_all(&progress, false);
    log_models(daemon, log_tuned);
    dk_models_size_workspace(daemon->models, daemon->config->tune == DK_TUNE_BACKGROUND);
}

static void *run_thread(void *argument)
{
    struct dk_tuning *tuning = argument;
    struct progress progress = {.daemon = tuning->daemon, .is_ending = &tuning->is_ending};
    tune_all(&progress, true);
    return NULL;
}

dk_status dk_tuning_new(struct dk_daemon *daemon, struct dk_tuning **out, struct dk_error *error)
{
    if (daemon->config->tune != DK_TUNE_BACKGROUND || daemon->config->check_only)
        return DK_OK;
    struct dk_tuning *tuning = calloc(1, sizeof *tuning);
    if (tuning == NULL)
        return dk_fail(error, DK_NO_MEMORY, "no memory for tuning");
    tuning->daemon = daemon;
    atomic_init(&tuning->is_ending, false);
    if (pthread_create(&tuning->thread, NULL, run_thread, tuning) != 0) {
        free(tuning);
        return dk_fail(error, DK_NO_MEMORY, "no thread for tuning");
    }
    *out = tuning;
    return DK_OK;
}

void dk_tuning_free(struct dk_tuning *tuning)
{
    if (tuning == NULL)
        return;
    atomic_store(&tuning->is_ending, true);
    (void)pthread_join(tuning->thread, NULL);
    free(tuning);
}
