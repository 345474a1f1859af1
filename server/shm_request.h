/* shm_request.h: is this request one that can be computed without touching anything but its own rows? Pure.
 */
#ifndef DK_SERVER_SHM_REQUEST_H
#define DK_SERVER_SHM_REQUEST_H

#include "proto/ring.h"
#include "server/launch.h"

struct dk_model;

/* Checks a private copy against the model and the data area; on DK_RING_DETAIL_NONE the launch is filled (its
 * outcome zero), else untouched. */
enum dk_ring_detail dk_shm_request_check(const struct dk_ring_submission *submission,
                                         const struct dk_model *model, const struct dk_ring *ring,
                                         struct dk_launch *out);

#endif
