/* shm_request.c: every rule of a submission, in the order in which a client is told. */
#include "server/shm_request.h"

#include <stdbool.h>

#include "server/models.h"

/* [offset, offset + length) lies in [0, size); no sum that could wrap. */
static bool is_inside(uint64_t offset, uint64_t length, uint64_t size)
{
    return offset <= size && length <= size - offset;
}

static bool do_overlap(uint64_t a, uint64_t a_length, uint64_t b, uint64_t b_length)
{
    return a_length > 0 && b_length > 0 && a < b + b_length && b < a + a_length;
}

static enum dk_ring_detail check_fields(const struct dk_ring_submission *submission)
{
    if (submission->rows > DK_MAX_M) {
        return DK_RING_DETAIL_ROWS;
    }
    if (!dk_dtype_is_float(submission->a_dtype)) {
        return DK_RING_DETAIL_A_DTYPE;
    }
    if (!dk_dtype_is_float(submission->c_dtype)) {
        return DK_RING_DETAIL_C_DTYPE;
    }
    if (submission->epilogue >= DK_EPILOGUE_COUNT && submission->epilogue != DK_RING_MODEL_EPILOGUE) {
        return DK_RING_DETAIL_EPILOGUE;
    }
    if (submission->flags != 0 || submission->reserved[0] != 0 || submission->reserved[1] != 0) {
        return DK_RING_DETAIL_RESERVED;
    }
    if (submission->a_offset % DK_RING_ALIGN_BYTES != 0) {
        return DK_RING_DETAIL_A_ALIGNMENT;
    }
    return submission->c_offset % DK_RING_ALIGN_BYTES != 0 ? DK_RING_DETAIL_C_ALIGNMENT : DK_RING_DETAIL_NONE;
}

enum dk_ring_detail dk_shm_request_check(const struct dk_ring_submission *submission,
                                         const struct dk_model *model, const struct dk_ring *ring,
                                         struct dk_launch *out)
{
    enum dk_ring_detail detail = check_fields(submission);
    if (detail != DK_RING_DETAIL_NONE) {
        return detail;
    }
    /* At most 2^24 rows of 2^24 numbers of 4 bytes: far from 2^64. */
    dk_dtype a_dtype = (dk_dtype)submission->a_dtype, c_dtype = (dk_dtype)submission->c_dtype;
    uint64_t rows = submission->rows;
    uint64_t a_bytes = rows * model->k * dk_dtype_bytes(a_dtype);
    uint64_t c_bytes = rows * model->n * dk_dtype_bytes(c_dtype);
    if (!is_inside(submission->a_offset, a_bytes, ring->data_bytes)) {
        return DK_RING_DETAIL_A_RANGE;
    }
    if (!is_inside(submission->c_offset, c_bytes, ring->data_bytes)) {
        return DK_RING_DETAIL_C_RANGE;
    }
    if (do_overlap(submission->a_offset, a_bytes, submission->c_offset, c_bytes)) {
        return DK_RING_DETAIL_OVERLAP;
    }
    *out = (struct dk_launch){
        .weights = model->weights,
        .m = rows,
        .n = model->n,
        .k = model->k,
        .a = ring->data + submission->a_offset,
        .c = ring->data + submission->c_offset,
        .a_dtype = a_dtype,
        .c_dtype = c_dtype,
        .epilogue = submission->epilogue == DK_RING_MODEL_EPILOGUE ? model->epilogue
                                                                   : (dk_epilogue)submission->epilogue,
    };
    return DK_RING_DETAIL_NONE;
}
