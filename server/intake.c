/* intake.c: appending to a slab that moves to the next size class when it is full. */
#include "server/intake.h"

#include <string.h>

#include "proto/gemm.h"
#include "server/rounding.h"
#include "server/slab.h"

/* Up to so many numbers are rounded by the HTTP thread: about 0.3 ms. */
enum { ROUND_INLINE_MAX = 256 * 1024 };

static dk_status make_room(struct dk_intake *intake, struct dk_slabs *slabs, size_t bytes,
                           struct dk_error *error)
{
    size_t needed;
    if (!dk_size_add(intake->used_bytes, bytes, &needed)) {
        return dk_fail(error, DK_TOO_LARGE, "\"%s\" is too large", intake->name);
    }
    if (intake->slab != NULL && needed <= intake->slab->bytes) {
        return DK_OK;
    }
    bool is_first_tiny = intake->slab == NULL && needed <= dk_slabs_tiny_bytes(slabs);
    if (!is_first_tiny && needed < intake->announced_bytes) {
        needed = intake->announced_bytes;
    }
    return dk_slab_grow(slabs, &intake->slab, intake->used_bytes, needed, error);
}

dk_status dk_intake_values(struct dk_intake *intake, struct dk_slabs *slabs, uint64_t offset,
                           const double *values, size_t count, struct dk_error *error)
{
    size_t item_bytes = intake->is_double ? sizeof(double) : dk_dtype_bytes(intake->dtype);
    size_t bytes = count * item_bytes; /* a run of values lies in memory already: no overflow */
    dk_status status = make_room(intake, slabs, bytes, error);
    if (status != DK_OK) {
        return status;
    }
    unsigned char *end = intake->slab->data + intake->used_bytes;
    if (intake->is_double) {
        memcpy(end, values, bytes);
    } else {
        status = dk_round_doubles(values, end, intake->dtype, count, intake->name, offset, error);
    }
    intake->used_bytes += bytes;
    return status;
}

dk_status dk_intake_bytes(struct dk_intake *intake, struct dk_slabs *slabs, const char *bytes, size_t length,
                          struct dk_error *error)
{
    dk_status status = make_room(intake, slabs, length, error);
    if (status == DK_OK) {
        memcpy(intake->slab->data + intake->used_bytes, bytes, length);
        intake->used_bytes += length;
    }
    return status;
}

dk_status dk_intake_round(struct dk_intake *intake, dk_dtype dtype, struct dk_error *error)
{
    if (!intake->is_double) {
        return DK_OK;
    }
    size_t count = intake->used_bytes / sizeof(double);
    dk_status status = DK_OK;
    if (count > 0) {
        status = dk_round_doubles((const double *)(const void *)intake->slab->data, intake->slab->data, dtype,
                                  count, intake->name, 0, error);
    }
    intake->is_double = false;
    intake->dtype = dtype;
    intake->used_bytes = count * dk_dtype_bytes(dtype);
    return status;
}

dk_status dk_intake_settle(struct dk_intake *intake, dk_dtype dtype, bool *is_double, struct dk_error *error)
{
    *is_double = intake->is_double && intake->used_bytes / sizeof(double) > ROUND_INLINE_MAX;
    return *is_double ? DK_OK : dk_intake_round(intake, dtype, error);
}

void *dk_intake_take(struct dk_intake *intake, struct dk_slab **slot)
{
    *slot = intake->slab;
    intake->slab = NULL;
    return *slot != NULL ? (*slot)->data : NULL;
}

void dk_intake_release(struct dk_intake *intake, struct dk_slabs *slabs)
{
    dk_slab_release(slabs, intake->slab);
    *intake = (struct dk_intake){.name = intake->name};
}
