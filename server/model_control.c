/* model_control.c: a short queue and the thread that empties it. */
#include "server/model_control.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "server/log.h"
#include "server/metrics.h"

struct dk_model_control {
    struct dk_models *models;
    struct dk_metrics *metrics; /* may be NULL */
    pthread_t thread;
    pthread_mutex_t mutex; /* the queue and the flags */
    pthread_cond_t has_work;
    struct dk_model_task *first, **last;
    unsigned count;
    bool is_stopping, is_joined;
    atomic_bool is_uploading;
};

static dk_status run(const struct dk_model_control *control, struct dk_model_task *task)
{
    switch (task->change) {
    case DK_MODEL_PUT:
        return dk_models_put(control->models, &task->spec, task->fd, &task->model, &task->is_new,
                             &task->error);
    case DK_MODEL_LOAD:
        return dk_models_load(control->models, task->name, &task->error);
    case DK_MODEL_REMOVE:
        break;
    }
    return dk_models_remove(control->models, task->name, &task->error);
}

static void finish(struct dk_model_control *control, struct dk_model_task *task)
{
    static const char *const names[] = {
        [DK_MODEL_PUT] = "put", [DK_MODEL_LOAD] = "load", [DK_MODEL_REMOVE] = "remove"};
    static struct dk_log_limit limiter;
    task->error.status = run(control, task);
    bool is_good = task->error.status == DK_OK;
    if (!is_good && dk_log_allow(&limiter, 10)) {
        dk_log(DK_LOG_WARN, "model_change_refused", "change=%s name=%s status=%s message=%s",
               names[task->change], task->name, dk_status_name(task->error.status), task->error.message);
    }
    if (control->metrics != NULL) {
        dk_metrics_add(control->metrics, is_good ? DK_METRIC_MODEL_CHANGES : DK_METRIC_MODEL_CHANGE_FAILURES,
                       1);
    }
    task->complete(task); /* not ours any more */
}

static struct dk_model_task *take(struct dk_model_control *control)
{
    (void)pthread_mutex_lock(&control->mutex);
    while (control->first == NULL && !control->is_stopping) {
        (void)pthread_cond_wait(&control->has_work, &control->mutex);
    }
    struct dk_model_task *task = control->first;
    if (task != NULL) {
        control->first = task->next;
        control->count--;
        if (control->first == NULL) {
            control->last = &control->first;
        }
    }
    (void)pthread_mutex_unlock(&control->mutex);
    return task;
}

static void *control_main(void *argument)
{
    struct dk_model_control *control = argument;
    (void)pthread_setname_np(pthread_self(), "dk-models");
    for (struct dk_model_task *task; (task = take(control)) != NULL;) {
        finish(control, task);
    }
    return NULL;
}

dk_status dk_model_control_new(struct dk_models *models, struct dk_metrics *metrics,
                               struct dk_model_control **out, struct dk_error *error)
{
    struct dk_model_control *control = calloc(1, sizeof *control);
    if (control == NULL) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for model control");
    }
    control->models = models;
    control->metrics = metrics;
    control->last = &control->first;
    (void)pthread_mutex_init(&control->mutex, NULL); /* need no resources on Linux: cannot fail */
    (void)pthread_cond_init(&control->has_work, NULL);
    if (pthread_create(&control->thread, NULL, control_main, control) != 0) {
        control->is_joined = true;
        dk_model_control_free(control);
        return dk_fail(error, DK_NO_MEMORY, "no thread for model control");
    }
    *out = control;
    return DK_OK;
}

void dk_model_control_stop(struct dk_model_control *control)
{
    if (control == NULL || control->is_joined) {
        return;
    }
    (void)pthread_mutex_lock(&control->mutex);
    control->is_stopping = true;
    (void)pthread_cond_signal(&control->has_work);
    (void)pthread_mutex_unlock(&control->mutex);
    (void)pthread_join(control->thread, NULL);
    control->is_joined = true;
}

void dk_model_control_free(struct dk_model_control *control)
{
    if (control == NULL) {
        return;
    }
    (void)pthread_cond_destroy(&control->has_work);
    (void)pthread_mutex_destroy(&control->mutex);
    free(control);
}

dk_status dk_model_control_submit(struct dk_model_control *control, struct dk_model_task *task,
                                  struct dk_error *error)
{
    dk_status status = DK_OK;
    task->next = NULL;
    (void)pthread_mutex_lock(&control->mutex);
    if (control->is_stopping) {
        status = dk_fail(error, DK_UNAVAILABLE, "the daemon is stopping");
    } else if (control->count == DK_MODEL_TASKS_MAX) {
        status = dk_fail(error, DK_BUSY, "%d changes of models wait, the limit; try again",
                         (int)DK_MODEL_TASKS_MAX);
    } else {
        *control->last = task;
        control->last = &task->next;
        control->count++;
        (void)pthread_cond_signal(&control->has_work);
    }
    (void)pthread_mutex_unlock(&control->mutex);
    return status;
}

bool dk_model_upload_begin(struct dk_model_control *control)
{
    return !atomic_exchange(&control->is_uploading, true);
}

void dk_model_upload_end(struct dk_model_control *control)
{
    atomic_store(&control->is_uploading, false);
}
