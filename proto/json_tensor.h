/* json_tensor.h: one number array of a JSON body: brackets and numbers in, runs of doubles out to the sink.
 */
#ifndef DK_PROTO_JSON_TENSOR_H
#define DK_PROTO_JSON_TENSOR_H

#include "proto/json_input.h"
#include "proto/json_number.h"
#include "proto/json_reader.h"

/* Numbers per call of the sink: 4 KiB stay in the first-level cache. */
enum { DK_JSON_TENSOR_RUN = 512 };

enum dk_json_tensor_stage {
    DK_JSON_TENSOR_VALUE,
    DK_JSON_TENSOR_VALUE_OR_END,
    DK_JSON_TENSOR_COMMA_OR_END,
    DK_JSON_TENSOR_NUMBER, /* inside a token that the end of a feed cut */
    DK_JSON_TENSOR_DONE
};

struct dk_json_tensor_reader {
    const struct dk_json_sink *sink;
    const char *path;
    locale_t c_locale;
    struct dk_json_tensor tensor;
    enum dk_json_tensor_stage stage;
    uint32_t depth;                           /* open brackets */
    uint32_t known_levels;                    /* bit i: shape[i] is known */
    uint64_t counts[DK_JSON_MAX_TENSOR_RANK]; /* elements so far at each open level */
    uint64_t delivered;                       /* numbers given to the sink */
    size_t pending;                           /* numbers in `values` */
    struct dk_json_token token;
    double values[DK_JSON_TENSOR_RUN];
};

/* The opening bracket was consumed. `indices` are the values of the path's "[]". Calls sink->begin. */
dk_status dk_json_tensor_begin(struct dk_json_tensor_reader *reader, int path_index, const char *path,
                               const uint32_t indices[4], struct dk_error *error);
/* Consume until the closing bracket (stage becomes DONE, reader->tensor is complete, sink->end was called) or
 * the end of the input. */
dk_status dk_json_tensor_feed(struct dk_json_tensor_reader *reader, struct dk_json_input *input,
                              struct dk_error *error);

#endif
