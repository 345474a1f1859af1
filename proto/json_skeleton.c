/* json_skeleton.c: keep the text, follow the declared paths, refuse duplicate keys and deep nesting. */
#include "proto/json_skeleton.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_cursor.h"
#include "proto/json_input.h"
#include "proto/json_string.h"

void dk_json_skeleton_init(struct dk_json_skeleton *skeleton, const char *const *paths, size_t path_count,
                           size_t limit)
{
    assert(path_count <= DK_JSON_MAX_PATHS && limit <= SIZE_MAX / 4);
    memset(skeleton, 0, sizeof *skeleton);
    for (size_t i = 0; i < path_count; i++) {
        dk_json_path_compile(paths[i], &skeleton->paths[i]);
    }
    skeleton->path_count = path_count;
    skeleton->limit = limit;
    /* Address space randomisation is enough against a client that looks for collisions. */
    skeleton->keys.seed = (uint64_t)(uintptr_t)skeleton * 0xD1342543DE82EF95U;
}

void dk_json_skeleton_deinit(struct dk_json_skeleton *skeleton)
{
    dk_json_keys_deinit(&skeleton->keys);
    free(skeleton->text);
    skeleton->text = NULL;
}

void dk_json_skeleton_reset(struct dk_json_skeleton *skeleton)
{
    dk_json_keys_pop(&skeleton->keys, 0);
    skeleton->length = 0;
    skeleton->depth = 0;
}

static dk_status grow(struct dk_json_skeleton *skeleton, size_t needed, struct dk_error *error)
{
    enum { FIRST_CAPACITY = 1024 };
    size_t capacity = needed < FIRST_CAPACITY ? FIRST_CAPACITY : needed * 2;
    capacity =
        capacity > skeleton->limit + 1 && needed <= skeleton->limit + 1 ? skeleton->limit + 1 : capacity;
    char *text = realloc(skeleton->text, capacity);
    if (text == NULL) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for %zu bytes of JSON", capacity);
    }
    skeleton->text = text;
    skeleton->capacity = capacity;
    return DK_OK;
}

dk_status dk_json_skeleton_keep(struct dk_json_skeleton *skeleton, uint64_t at, const char *bytes,
                                size_t length, struct dk_error *error)
{
    size_t room = skeleton->limit - skeleton->length;
    if (length > room) {
        return dk_json_fail(error, at + room, DK_TOO_LARGE, "what is not a number array exceeds %zu bytes",
                            skeleton->limit);
    }
    size_t needed = skeleton->length + length + 1; /* and the NUL of the end */
    if (needed > skeleton->capacity) {
        dk_status status = grow(skeleton, needed, error);
        if (status != DK_OK) {
            return status;
        }
    }
    memcpy(skeleton->text + skeleton->length, bytes, length);
    skeleton->length += length;
    return DK_OK;
}

/* Which paths does the value behind `key` (NULL: the current element) of the top container lie on? */
static uint32_t match_paths(struct dk_json_skeleton *skeleton, const char *key, size_t length)
{
    uint32_t candidates = dk_json_skeleton_top(skeleton)->path_mask;
    uint32_t mask = 0;
    for (size_t i = 0; i < skeleton->path_count; i++) {
        if ((candidates >> i & 1U) != 0 &&
            dk_json_path_matches(&skeleton->paths[i], skeleton->depth - 1, key, length)) {
            mask |= 1U << i;
        }
    }
    return mask;
}

dk_status dk_json_skeleton_push(struct dk_json_skeleton *skeleton, bool is_object, uint64_t at,
                                struct dk_error *error)
{
    if (skeleton->depth == DK_JSON_MAX_DEPTH) {
        return dk_json_fail(error, at, DK_BAD_JSON, "nested deeper than %d", (int)DK_JSON_MAX_DEPTH);
    }
    uint32_t mask = skeleton->depth == 0 ? UINT32_MAX : skeleton->value_mask;
    skeleton->frames[skeleton->depth++] =
        (struct dk_json_frame){.is_object = is_object, .path_mask = mask, .key_count = skeleton->keys.count};
    if (!is_object) {
        skeleton->value_mask = match_paths(skeleton, NULL, 0);
    }
    return dk_json_skeleton_keep(skeleton, at, is_object ? "{" : "[", 1, error);
}

dk_status dk_json_skeleton_pop(struct dk_json_skeleton *skeleton, uint64_t at, struct dk_error *error)
{
    bool is_object = dk_json_skeleton_top(skeleton)->is_object;
    dk_json_keys_pop(&skeleton->keys, dk_json_skeleton_top(skeleton)->key_count);
    skeleton->depth--;
    return dk_json_skeleton_keep(skeleton, at, is_object ? "}" : "]", 1, error);
}

void dk_json_skeleton_next_element(struct dk_json_skeleton *skeleton)
{
    dk_json_skeleton_top(skeleton)->element++;
    skeleton->value_mask = match_paths(skeleton, NULL, 0);
}

dk_status dk_json_skeleton_end_key(struct dk_json_skeleton *skeleton, size_t raw_start, uint64_t at,
                                   struct dk_error *error)
{
    const char *raw = skeleton->text + raw_start;
    size_t raw_length = skeleton->length - 1 - raw_start;
    char *key = dk_json_keys_room(&skeleton->keys, raw_length);
    if (key == NULL) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for a key of %zu bytes", raw_length);
    }
    size_t length = dk_json_string_decode(raw, raw_length, key);
    skeleton->value_mask = match_paths(skeleton, key, length);
    dk_status status = dk_json_keys_add(&skeleton->keys, skeleton->depth, length);
    if (status == DK_BAD_JSON) {
        enum { QUOTED_BYTES = 80 };
        return dk_json_fail(error, at, status, "duplicate key \"%.*s\"%s",
                            (int)(length < QUOTED_BYTES ? length : QUOTED_BYTES), key,
                            length < QUOTED_BYTES ? "" : "...");
    }
    return status == DK_OK ? DK_OK : dk_fail(error, status, "no memory for %zu keys", skeleton->keys.count);
}

int dk_json_skeleton_complete_path(const struct dk_json_skeleton *skeleton, uint32_t indices[4])
{
    for (size_t i = 0; i < skeleton->path_count; i++) {
        const struct dk_json_path *path = &skeleton->paths[i];
        if ((skeleton->value_mask >> i & 1U) == 0 || path->step_count != skeleton->depth) {
            continue;
        }
        size_t wildcard = 0;
        memset(indices, 0, 4 * sizeof indices[0]);
        for (size_t j = 0; j < path->step_count; j++) {
            if (path->steps[j].key == NULL) {
                indices[wildcard++] = skeleton->frames[j].element;
            }
        }
        return (int)i;
    }
    return -1;
}

/* Does the raw (perhaps escaped) spelling mean `key`? */
static bool is_spelling_of(const char *raw, size_t raw_length, const char *key)
{
    enum { MAX_KEY = 64, MAX_EXPANSION = 6 }; /* \u0041 */
    char decoded[MAX_KEY * MAX_EXPANSION];
    if (raw_length > sizeof decoded) {
        return false;
    }
    size_t length = dk_json_string_decode(raw, raw_length, decoded);
    return length == strlen(key) && memcmp(decoded, key, length) == 0;
}

static bool copy_string(struct dk_json_cursor *cursor, char *out, size_t size)
{
    const char *raw;
    size_t raw_length;
    if (!dk_json_cursor_string(cursor, &raw, &raw_length)) {
        return false;
    }
    /* Each decoded byte has at most six raw ones. */
    char *text = raw_length / 6 < size ? malloc(raw_length + 1) : NULL;
    if (text == NULL) {
        return false;
    }
    size_t length = dk_json_string_decode(raw, raw_length, text);
    bool fits = length < size;
    if (fits) {
        memcpy(out, text, length);
        out[length] = '\0';
    }
    free(text);
    return fits;
}

bool dk_json_skeleton_peek_string(const struct dk_json_skeleton *skeleton, const char *key, char *out,
                                  size_t size)
{
    if (skeleton->length == 0) {
        return false;
    }
    struct dk_json_cursor cursor = {skeleton->text + 1, skeleton->text + skeleton->length};
    do {
        const char *raw;
        size_t raw_length;
        if (!dk_json_cursor_string(&cursor, &raw, &raw_length) || !dk_json_cursor_take(&cursor, ':')) {
            return false;
        }
        if (is_spelling_of(raw, raw_length, key)) {
            return copy_string(&cursor, out, size);
        }
    } while (dk_json_cursor_skip(&cursor) && dk_json_cursor_take(&cursor, ','));
    return false;
}
