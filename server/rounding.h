/* rounding.h: binary64 numbers of a JSON body -> the tensor's own type, once, with overflow named. */
#ifndef DK_SERVER_ROUNDING_H
#define DK_SERVER_ROUNDING_H

#include <stddef.h>
#include <stdint.h>

#include "proto/dtype.h"
#include "proto/status.h"

/* Rounds `count` finite doubles at `src` to `dtype` at `dst` (may be the same address). A value that
 * overflows the type is DK_BAD_VALUE naming `tensor`, the index (`first_index` + position) and the type; dst
 * is then undefined. */
dk_status dk_round_doubles(const double *src, void *dst, dk_dtype dtype, size_t count, const char *tensor,
                           uint64_t first_index, struct dk_error *error);

#endif
