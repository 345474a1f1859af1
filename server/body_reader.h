/* body_reader.h: a pool of JSON readers, so that a request pays no allocation of one (about 70 KiB each). */
#ifndef DK_SERVER_BODY_READER_H
#define DK_SERVER_BODY_READER_H

#include <stddef.h>

#include "proto/json_reader.h"

struct dk_body_reader {
    struct dk_json_reader *json;
    void *owner; /* of whom the sink's callbacks, which get this struct as context, are to think */
    struct dk_body_reader *next; /* private */
};

struct dk_body_readers;

/* `paths` and the functions of `sink` are kept; its context is ignored. At most `idle_max` unused readers are
 * held on to. DK_NO_MEMORY. */
dk_status dk_body_readers_new(const char *const *paths, size_t path_count, const struct dk_json_sink *sink,
                              size_t idle_max, struct dk_body_readers **out, struct dk_error *error);
void dk_body_readers_free(struct dk_body_readers *readers); /* NULL-safe; all must have been released */

/* A reset reader for `owner`. DK_NO_MEMORY. Thread: any. */
dk_status dk_body_reader_acquire(struct dk_body_readers *readers, void *owner, struct dk_body_reader **out,
                                 struct dk_error *error);
void dk_body_reader_release(struct dk_body_readers *readers, struct dk_body_reader *reader); /* NULL-safe */

#endif
