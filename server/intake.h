/* intake.h: one tensor on its way from a request body into a slab. */
#ifndef DK_SERVER_INTAKE_H
#define DK_SERVER_INTAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/dtype.h"
#include "proto/json_reader.h"
#include "proto/status.h"

struct dk_slab;
struct dk_slabs;

/* Zero-initialise. The slab grows with what has arrived, not with what was announced. */
struct dk_intake {
    const char *name;     /* "x", "a", "b", "bias": for messages; static */
    struct dk_slab *slab; /* NULL until the first element */
    size_t used_bytes;
    size_t announced_bytes; /* once a tiny slab is full, go for so much at once, without steps; 0: unknown */
    bool is_present;
    bool is_double; /* elements are binary64, as the type was not known yet; else of `dtype` */
    dk_dtype dtype;
    struct dk_json_tensor tensor; /* shape, once complete */
};

/* Append numbers of a JSON body, rounded to `dtype` unless is_double. DK_BUSY, DK_TOO_LARGE, DK_BAD_VALUE. */
dk_status dk_intake_values(struct dk_intake *intake, struct dk_slabs *slabs, uint64_t offset,
                           const double *values, size_t count, struct dk_error *error);
/* Append bytes as they are. DK_BUSY, DK_TOO_LARGE. */
dk_status dk_intake_bytes(struct dk_intake *intake, struct dk_slabs *slabs, const char *bytes, size_t length,
                          struct dk_error *error);
/* Round binary64 elements to `dtype` in place. DK_BAD_VALUE. */
dk_status dk_intake_round(struct dk_intake *intake, dk_dtype dtype, struct dk_error *error);
/* Ready for a job: rounded, unless there is so much that it would keep the other connections of the HTTP
 * thread waiting: then *is_double, and the executor rounds. DK_BAD_VALUE. */
dk_status dk_intake_settle(struct dk_intake *intake, dk_dtype dtype, bool *is_double, struct dk_error *error);
/* Moves the slab to *slot; returns its data, NULL when there is none. */
void *dk_intake_take(struct dk_intake *intake, struct dk_slab **slot);
void dk_intake_release(struct dk_intake *intake, struct dk_slabs *slabs);

#endif
