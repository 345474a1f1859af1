/* body_reader.c: a free list of JSON readers. */
#include "server/body_reader.h"

#include <pthread.h>
#include <stdlib.h>

struct pooled_reader {
    struct dk_body_reader reader;
    struct dk_json_sink sink; /* context: the reader above */
};

struct dk_body_readers {
    pthread_mutex_t mutex;
    const char *const *paths;
    size_t path_count, idle_count, idle_max;
    struct dk_json_sink sink;
    struct dk_body_reader *idle_head;
};

dk_status dk_body_readers_new(const char *const *paths, size_t path_count, const struct dk_json_sink *sink,
                              size_t idle_max, struct dk_body_readers **out, struct dk_error *error)
{
    struct dk_body_readers *readers = calloc(1, sizeof *readers);
    if (readers == NULL) {
        return dk_fail(error, DK_NO_MEMORY, "cannot allocate the pool of body readers");
    }
    (void)pthread_mutex_init(&readers->mutex, NULL);
    readers->paths = paths;
    readers->path_count = path_count;
    readers->sink = *sink;
    readers->idle_max = idle_max;
    *out = readers;
    return DK_OK;
}

static void destroy(struct dk_body_reader *reader)
{
    dk_json_reader_free(reader->json);
    free(reader); /* first member of struct pooled_reader */
}

void dk_body_readers_free(struct dk_body_readers *readers)
{
    if (readers == NULL) {
        return;
    }
    while (readers->idle_head != NULL) {
        struct dk_body_reader *reader = readers->idle_head;
        readers->idle_head = reader->next;
        destroy(reader);
    }
    (void)pthread_mutex_destroy(&readers->mutex);
    free(readers);
}

static struct dk_body_reader *create(struct dk_body_readers *readers)
{
    struct pooled_reader *pooled = calloc(1, sizeof *pooled);
    if (pooled == NULL) {
        return NULL;
    }
    pooled->sink = readers->sink;
    pooled->sink.context = &pooled->reader;
    if (dk_json_reader_new(readers->paths, readers->path_count, &pooled->sink, &pooled->reader.json) !=
        DK_OK) {
        free(pooled);
        return NULL;
    }
    return &pooled->reader;
}

dk_status dk_body_reader_acquire(struct dk_body_readers *readers, void *owner, struct dk_body_reader **out,
                                 struct dk_error *error)
{
    (void)pthread_mutex_lock(&readers->mutex);
    struct dk_body_reader *reader = readers->idle_head;
    if (reader != NULL) {
        readers->idle_head = reader->next;
        readers->idle_count--;
    }
    (void)pthread_mutex_unlock(&readers->mutex);
    if (reader == NULL) {
        reader = create(readers);
    }
    if (reader == NULL) {
        return dk_fail(error, DK_NO_MEMORY, "out of memory for another JSON body");
    }
    reader->owner = owner;
    *out = reader;
    return DK_OK;
}

void dk_body_reader_release(struct dk_body_readers *readers, struct dk_body_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    dk_json_reader_reset(reader->json);
    (void)pthread_mutex_lock(&readers->mutex);
    bool is_kept = readers->idle_count < readers->idle_max;
    if (is_kept) {
        reader->next = readers->idle_head;
        readers->idle_head = reader;
        readers->idle_count++;
    }
    (void)pthread_mutex_unlock(&readers->mutex);
    if (!is_kept) {
        destroy(reader);
    }
}
