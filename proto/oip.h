/* oip.h: all bodies of /v2, the Open Inference Protocol over HTTP, as its Triton and KServe clients speak it.
 */
#ifndef DK_PROTO_OIP_H
#define DK_PROTO_OIP_H

#include "proto/oip_coding.h"
#include "proto/oip_framing.h"
#include "proto/oip_model.h"
#include "proto/oip_region.h"
#include "proto/oip_reply.h"
#include "proto/oip_repository.h"
#include "proto/oip_request.h"
#include "proto/oip_stats.h"

#endif
