/* json_path.h: declared tensor paths ("x", "inputs[].data") compiled to steps. */
#ifndef DK_PROTO_JSON_PATH_H
#define DK_PROTO_JSON_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DK_JSON_MAX_PATHS = 32, DK_JSON_MAX_STEPS = 8 };

/* One step from a container to a value in it: a member by key, or any element of an array. */
struct dk_json_step {
    const char *key; /* NULL: any element */
    size_t length;
};

struct dk_json_path {
    const char *text;
    size_t step_count;
    struct dk_json_step steps[DK_JSON_MAX_STEPS];
};

/* `text` is borrowed for the life of the path. Paths are written by us: a bad one is a bug (assert). */
void dk_json_path_compile(const char *text, struct dk_json_path *out);
/* Does step number `index` lead to member `key` (NULL: to an element)? */
bool dk_json_path_matches(const struct dk_json_path *path, size_t index, const char *key, size_t length);

#endif
