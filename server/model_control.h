/* model_control.h: changes of the served models that clients ask for, one after the other on a thread of
 * their own, so that nobody else waits for a load. */
#ifndef DK_SERVER_MODEL_CONTROL_H
#define DK_SERVER_MODEL_CONTROL_H

#include <stdbool.h>

#include "server/models.h"

enum dk_model_change { DK_MODEL_PUT, DK_MODEL_LOAD, DK_MODEL_REMOVE };

/* Owned by the asker until _submit succeeds, by the thread until `complete`, then the asker's again. */
struct dk_model_task {
    enum dk_model_change change;
    char name[DK_MODEL_NAME_BYTES + 1];
    struct dk_model_spec spec; /* PUT: borrowed strings */
    int fd;                    /* PUT: the file, borrowed */

    struct dk_error error;  /* outcome; status DK_OK */
    struct dk_model *model; /* PUT: what serves now, acquired: release it */
    bool is_new;            /* PUT: nobody served under the name */

    void (*complete)(struct dk_model_task *task); /* thread: the loading one; must not block */
    void *context;
    struct dk_model_task *next; /* private */
};

/* Waiting tasks; more are refused. */
enum { DK_MODEL_TASKS_MAX = 16 };

struct dk_model_control; /* thread-safe */

/* Both are kept; `metrics` may be NULL. DK_NO_MEMORY. */
dk_status dk_model_control_new(struct dk_models *models, struct dk_metrics *metrics,
                               struct dk_model_control **out, struct dk_error *error);
/* Finish what was submitted, refuse the rest, join. NULL-safe, idempotent. Thread: main. */
void dk_model_control_stop(struct dk_model_control *control);
void dk_model_control_free(struct dk_model_control *control); /* after _stop; NULL-safe */

/* DK_BUSY: too many wait; DK_UNAVAILABLE: stopped. */
dk_status dk_model_control_submit(struct dk_model_control *control, struct dk_model_task *task,
                                  struct dk_error *error);

/* One upload at a time holds memory: from _begin (false: another does) to _end. */
bool dk_model_upload_begin(struct dk_model_control *control);
void dk_model_upload_end(struct dk_model_control *control);

#endif
