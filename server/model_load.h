/* model_load.h: one spec -> one loaded version (private to models.c). */
#ifndef DK_SERVER_MODEL_LOAD_H
#define DK_SERVER_MODEL_LOAD_H

#include "server/models.h"

/* From the file at spec->path, or from `fd` (borrowed) unless it is -1. *out has one reference, version 0 and
 * metrics handles of "other". `spec` is borrowed. Messages start with the model's name. */
dk_status dk_model_load(struct dk_engine *engine, const struct dk_model_spec *spec, int fd,
                        struct dk_model **out, struct dk_error *error);
void dk_model_free(struct dk_model *model);

#endif
