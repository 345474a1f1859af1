/* routers.c: names of tensors against the spellings of public checkpoints. */
#include "proto/routers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_cursor.h"
#include "proto/json_reader.h"
#include "proto/json_string.h"

enum { INDEX_LIMIT_BYTES = 256 * 1024 * 1024, NAME_SHOWN = 120, MAX_LAYER = 99999 };

/* What follows "layers.L."; the served name is "layers.L." + gate. */
static const struct {
    const char *suffix, *gate;
    enum dk_router_part part;
} spellings[] = {
    {"mlp.gate.weight", "mlp.gate", DK_ROUTER_WEIGHT},
    {"mlp.gate.bias", "mlp.gate", DK_ROUTER_LOGIT_BIAS},
    {"mlp.gate.e_score_correction_bias", "mlp.gate", DK_ROUTER_CORRECTION_BIAS},
    {"ffn.gate.weight", "ffn.gate", DK_ROUTER_WEIGHT},
    {"ffn.gate.bias", "ffn.gate", DK_ROUTER_CORRECTION_BIAS},
    {"block_sparse_moe.gate.weight", "block_sparse_moe.gate", DK_ROUTER_WEIGHT},
    {"block_sparse_moe.e_score_correction_bias", "block_sparse_moe.gate", DK_ROUTER_CORRECTION_BIAS},
    {"mlp.router.weight", "mlp.router", DK_ROUTER_WEIGHT},
    {"mlp.router.bias", "mlp.router", DK_ROUTER_LOGIT_BIAS},
};
enum { SPELLING_COUNT = sizeof spellings / sizeof spellings[0], NO_SPELLING = SPELLING_COUNT };

static const char *const part_names[DK_ROUTER_PART_COUNT] = {
#define DK_ROUTER_PART_NAME(id, name) [DK_ROUTER_##id] = (name),
    DK_ROUTER_PART_MAP(DK_ROUTER_PART_NAME)
#undef DK_ROUTER_PART_NAME
};

void dk_routers_deinit(struct dk_routers *routers)
{
    if (routers != NULL) {
        free(routers->routers);
        *routers = (struct dk_routers){0};
    }
}

/* Digits of a layer without leading zeros; NULL when there are none. */
static const char *parse_layer(const char *text, uint32_t *layer)
{
    uint32_t value = 0;
    const char *next = text;
    while (*next >= '0' && *next <= '9' && value <= MAX_LAYER) {
        value = value * 10 + (uint32_t)(*next++ - '0');
    }
    if (next == text || value > MAX_LAYER || (*text == '0' && next > text + 1)) {
        return NULL;
    }
    *layer = value;
    return next;
}

/* Index of the spelling, or NO_SPELLING. */
static size_t classify(const char *tensor, uint32_t *layer)
{
    static const char marker[] = "layers.";
    for (const char *at = strstr(tensor, marker); at != NULL; at = strstr(at + 1, marker)) {
        if (at != tensor && at[-1] != '.') {
            continue;
        }
        const char *next = parse_layer(at + sizeof marker - 1, layer);
        if (next == NULL || *next != '.') {
            continue;
        }
        for (size_t i = 0; i < SPELLING_COUNT; i++) {
            if (strcmp(next + 1, spellings[i].suffix) == 0) {
                return i;
            }
        }
    }
    return NO_SPELLING;
}

/* The router served as `name`, new if need be. NULL: no memory. */
static struct dk_router *find_or_append(struct dk_routers *routers, const char *name, uint32_t layer)
{
    for (size_t i = 0; i < routers->count; i++) {
        if (routers->routers[i].layer == layer && strcmp(routers->routers[i].name, name) == 0) {
            return &routers->routers[i];
        }
    }
    if (routers->count == routers->capacity) {
        size_t capacity = routers->capacity == 0 ? 64 : routers->capacity * 2;
        struct dk_router *grown = realloc(routers->routers, capacity * sizeof *grown);
        if (grown == NULL) {
            return NULL;
        }
        routers->routers = grown;
        routers->capacity = capacity;
    }
    struct dk_router *router = &routers->routers[routers->count++];
    *router = (struct dk_router){.layer = layer};
    (void)snprintf(router->name, sizeof router->name, "%s", name);
    return router;
}

static dk_status check_texts(const char *tensor, const char *file, struct dk_error *error)
{
    if (strlen(tensor) > DK_ROUTER_TEXT_BYTES) {
        return dk_fail(error, DK_BAD_FILE, "tensor \"%.*s...\": its name has %zu bytes; allowed are %d",
                       NAME_SHOWN, tensor, strlen(tensor), (int)DK_ROUTER_TEXT_BYTES);
    }
    /* A checkpoint comes from elsewhere: it must not make us open other files. */
    bool is_inside = strchr(file, '/') == NULL && strcmp(file, ".") != 0 && strcmp(file, "..") != 0;
    if (file[0] == '\0' || !is_inside || strlen(file) > DK_ROUTER_TEXT_BYTES) {
        return dk_fail(error, DK_BAD_FILE,
                       "tensor \"%.*s\": expected the name of a file in the same folder, found \"%.*s\"",
                       NAME_SHOWN, tensor, NAME_SHOWN, file);
    }
    return DK_OK;
}

dk_status dk_routers_add(struct dk_routers *routers, uint32_t layer_limit, const char *tensor,
                         const char *file, struct dk_error *error)
{
    uint32_t layer = 0;
    size_t spelling = classify(tensor, &layer);
    if (spelling == NO_SPELLING || layer >= layer_limit) {
        return DK_OK;
    }
    dk_status status = check_texts(tensor, file, error);
    if (status != DK_OK) {
        return status;
    }
    char name[DK_ROUTER_NAME_BYTES + 1];
    (void)snprintf(name, sizeof name, "layers.%u.%s", layer, spellings[spelling].gate);
    struct dk_router *router = find_or_append(routers, name, layer);
    if (router == NULL) {
        return dk_fail(error, DK_NO_MEMORY, "no memory for %zu routers", routers->count + 1);
    }
    if (routers->count > DK_MAX_ROUTERS) {
        return dk_fail(error, DK_TOO_LARGE, "tensor \"%.*s\": there are more than %d routers", NAME_SHOWN,
                       tensor, (int)DK_MAX_ROUTERS);
    }
    struct dk_router_tensor *part = &router->parts[spellings[spelling].part];
    if (part->name[0] != '\0') {
        return dk_fail(error, DK_BAD_FILE, "tensors \"%.*s\" and \"%.*s\" are both the %s of %s", NAME_SHOWN,
                       part->name, NAME_SHOWN, tensor, part_names[spellings[spelling].part], name);
    }
    (void)snprintf(part->name, sizeof part->name, "%s", tensor);
    (void)snprintf(part->file, sizeof part->file, "%s", file);
    return DK_OK;
}

/* One string of the skeleton, decoded into `out` of `size` bytes; false when it is no string or too long. */
static bool take_text(struct dk_json_cursor *cursor, char *out, size_t size)
{
    const char *raw;
    size_t length;
    struct dk_json_cursor start = *cursor;
    if (!dk_json_cursor_string(cursor, &raw, &length) || length >= size) {
        *cursor = start;
        return false;
    }
    out[dk_json_string_decode(raw, length, out)] = '\0';
    return true;
}

static dk_status add_weight_map(struct dk_routers *routers, uint32_t layer_limit,
                                struct dk_json_cursor *cursor, struct dk_error *error)
{
    char tensor[2048], file[2048];
    if (!dk_json_cursor_take(cursor, '{')) {
        return dk_fail(error, DK_BAD_FILE, "weight_map: expected an object");
    }
    if (dk_json_cursor_take(cursor, '}')) {
        return DK_OK;
    }
    dk_status status;
    do {
        if (!take_text(cursor, tensor, sizeof tensor)) {
            return dk_fail(error, DK_BAD_FILE, "weight_map: a tensor's name has 2048 bytes or more");
        }
        if (!dk_json_cursor_take(cursor, ':') || !take_text(cursor, file, sizeof file)) {
            return dk_fail(error, DK_BAD_FILE, "weight_map: \"%.*s\": expected the name of a file",
                           NAME_SHOWN, tensor);
        }
        status = dk_routers_add(routers, layer_limit, tensor, file, error);
    } while (status == DK_OK && dk_json_cursor_take(cursor, ','));
    return status;
}

static dk_status add_skeleton(struct dk_routers *routers, uint32_t layer_limit, const char *skeleton,
                              size_t length, struct dk_error *error)
{
    struct dk_json_cursor cursor = {skeleton, skeleton + length};
    const char *raw;
    size_t raw_length;
    if (!dk_json_cursor_take(&cursor, '{')) {
        return dk_fail(error, DK_BAD_FILE, "expected a JSON object");
    }
    while (dk_json_cursor_string(&cursor, &raw, &raw_length) && dk_json_cursor_take(&cursor, ':')) {
        if (raw_length == 10 && memcmp(raw, "weight_map", 10) == 0) {
            return add_weight_map(routers, layer_limit, &cursor, error);
        }
        (void)dk_json_cursor_skip(&cursor);
        (void)dk_json_cursor_take(&cursor, ',');
    }
    return dk_fail(error, DK_BAD_FILE, "there is no weight_map");
}

dk_status dk_routers_add_index(struct dk_routers *routers, uint32_t layer_limit, const char *text,
                               size_t length, struct dk_error *error)
{
    struct dk_json_reader *reader;
    if (dk_json_reader_new_sized(NULL, 0, NULL, INDEX_LIMIT_BYTES, &reader) != DK_OK) {
        return dk_fail(error, DK_NO_MEMORY, "no memory to read an index of %zu bytes", length);
    }
    const char *skeleton;
    size_t skeleton_length;
    struct dk_error json_error = {0};
    dk_status status = dk_json_reader_feed(reader, text, length, &json_error);
    if (status == DK_OK) {
        status = dk_json_reader_finish(reader, &skeleton, &skeleton_length, &json_error);
    }
    if (status == DK_OK) {
        status = add_skeleton(routers, layer_limit, skeleton, skeleton_length, error);
    } else {
        status = dk_fail(error, status == DK_NO_MEMORY ? status : DK_BAD_FILE, "%s", json_error.message);
    }
    dk_json_reader_free(reader);
    return status;
}

static int by_layer(const void *left, const void *right)
{
    const struct dk_router *a = left, *b = right;
    if (a->layer != b->layer) {
        return a->layer < b->layer ? -1 : 1;
    }
    return strcmp(a->name, b->name);
}

dk_status dk_routers_finish(struct dk_routers *routers, struct dk_error *error)
{
    if (routers->count == 0) {
        return dk_fail(error, DK_BAD_FILE, "no tensor has the name of a router");
    }
    qsort(routers->routers, routers->count, sizeof routers->routers[0], by_layer);
    for (size_t i = 0; i < routers->count; i++) {
        const struct dk_router *router = &routers->routers[i];
        for (int part = 0; part < DK_ROUTER_PART_COUNT; part++) {
            if (router->parts[DK_ROUTER_WEIGHT].name[0] == '\0' && router->parts[part].name[0] != '\0') {
                return dk_fail(error, DK_BAD_FILE, "tensor \"%.*s\" (%s) has no weight beside it", NAME_SHOWN,
                               router->parts[part].name, router->parts[part].file);
            }
        }
    }
    return DK_OK;
}
