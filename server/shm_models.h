/* shm_models.h: the models that one session has opened or pushed: an id stands for a name, and each request
 * runs with the version that serves under it at that moment. */
#ifndef DK_SERVER_SHM_MODELS_H
#define DK_SERVER_SHM_MODELS_H

#include <stdint.h>

#include "proto/ring.h"
#include "server/models.h"

enum { DK_SHM_MODELS_MAX = 256 }; /* of one session */

struct dk_shm_models; /* ids are appended by the control loop and looked up by the executor */

/* `registry` (the daemon's models) is kept; NULL: only pushed ones. DK_NO_MEMORY. */
dk_status dk_shm_models_new(struct dk_models *registry, struct dk_shm_models **out, struct dk_error *error);
void dk_shm_models_free(struct dk_shm_models *models); /* NULL-safe; releases every version */

/* The id of `name`, the same for the same name, and the version that serves now (acquired: release it).
 * DK_NOT_FOUND; DK_BUSY: too many names. Thread: control. */
dk_status dk_shm_models_open(struct dk_shm_models *models, const char *name, uint32_t *out_id,
                             struct dk_model **out_model, struct dk_error *error);
/* Serves `model` (takes the reference) under its name in this session; a version pushed before is replaced,
 * and the new one counts on from it. DK_BUSY: too many names; the reference stays the caller's. Thread:
 * control. */
dk_status dk_shm_models_push(struct dk_shm_models *models, struct dk_model *model, uint32_t *out_id,
                             struct dk_error *error);
/* Resident bytes of the pushed versions; of `name`'s alone when it is not NULL. Thread: control. */
uint64_t dk_shm_models_pushed_bytes(struct dk_shm_models *models, const char *name);

/* The serving version, valid until the next dk_shm_models_refresh; NULL with the reason. Takes no lock but
 * the first time after a refresh that found something new. Thread: executor. */
struct dk_model *dk_shm_models_get(struct dk_shm_models *models, uint32_t id,
                                   enum dk_ring_detail *out_detail);
/* Lets go of versions that a reload or a push has replaced. Thread: executor. */
void dk_shm_models_refresh(struct dk_shm_models *models);
/* Lets go of all of them. Thread: executor. */
void dk_shm_models_drop(struct dk_shm_models *models);

#endif
