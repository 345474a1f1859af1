/* oip_repository.h: bodies of the model-repository extension: index, load, unload. */
#ifndef DK_PROTO_OIP_REPOSITORY_H
#define DK_PROTO_OIP_REPOSITORY_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/json_writer.h"
#include "proto/status.h"

/* X(name, text) */
#define DK_OIP_STATE_MAP(X)                                                                                  \
    X(READY, "READY")                                                                                        \
    X(LOADING, "LOADING")                                                                                    \
    X(UNLOADING, "UNLOADING")                                                                                \
    X(UNAVAILABLE, "UNAVAILABLE")

enum dk_oip_state {
#define DK_OIP_STATE_ENUM(name, text) DK_OIP_##name,
    DK_OIP_STATE_MAP(DK_OIP_STATE_ENUM)
#undef DK_OIP_STATE_ENUM
};

struct dk_oip_index_entry {
    const char *name;
    enum dk_oip_state state;
    const char *reason; /* "" when there is none */
};

/* [{"name","version":"1","state","reason"}] */
void dk_oip_index(struct dk_json_text *text, const struct dk_oip_index_entry *entries, size_t count);

/* Bodies may be empty (`length` 0), else `skeleton` comes from dk_json_reader_finish. Members the protocol
 * does not name are ignored. DK_BAD_REQUEST for a wrong type. */

/* POST /v2/repository/index: {"ready"?: bool}; false when absent. */
dk_status dk_oip_index_request_parse(const char *skeleton, size_t length, bool *is_only_ready,
                                     struct dk_error *error);
/* POST /v2/repository/models/{m}/load: {"parameters"?: {...}}. A `config` or `file:<path>` override is
 * DK_UNSUPPORTED: models come from this server's own files. */
dk_status dk_oip_load_request_parse(const char *skeleton, size_t length, struct dk_error *error);
/* POST /v2/repository/models/{m}/unload: {"parameters"?: {"unload_dependents"?: bool}}; accepted, without
 * meaning here: no model depends on another. */
dk_status dk_oip_unload_request_parse(const char *skeleton, size_t length, struct dk_error *error);

#endif
