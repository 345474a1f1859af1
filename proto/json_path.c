/* json_path.c: compile and match the steps of a path. */
#include "proto/json_path.h"

#include <assert.h>
#include <string.h>

void dk_json_path_compile(const char *text, struct dk_json_path *out)
{
    size_t wildcard_count = 0;
    const char *p = text;
    *out = (struct dk_json_path){.text = text};
    while (*p != '\0') {
        assert(out->step_count < DK_JSON_MAX_STEPS);
        struct dk_json_step *step = &out->steps[out->step_count++];
        if (*p == '[') {
            assert(p[1] == ']');
            wildcard_count++;
            p += 2;
        } else {
            step->key = p;
            step->length = strcspn(p, ".[");
            assert(step->length > 0);
            p += step->length;
        }
        p += *p == '.' ? 1 : 0;
    }
    assert(out->step_count > 0 && wildcard_count <= 4);
    (void)wildcard_count; /* with NDEBUG nothing reads it */
}

bool dk_json_path_matches(const struct dk_json_path *path, size_t index, const char *key, size_t length)
{
    if (index >= path->step_count) {
        return false;
    }
    const struct dk_json_step *step = &path->steps[index];
    if (key == NULL || step->key == NULL) {
        return key == NULL && step->key == NULL;
    }
    return step->length == length && memcmp(step->key, key, length) == 0;
}
