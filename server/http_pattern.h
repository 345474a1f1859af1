/* http_pattern.h: paths with named segments: "/v2/models/{model}[/versions/{version}]/infer", pure. */
#ifndef DK_SERVER_HTTP_PATTERN_H
#define DK_SERVER_HTTP_PATTERN_H

#include <stdbool.h>

#include "proto/status.h"
#include "server/http_target.h"

/* What the named segments of a pattern held, "" where the pattern has none (or an optional group was absent).
 * Untouched text of the decoded path: _check before use. A segment of more than 127 bytes is cut there. */
struct dk_path_parameters {
    char model[128], version[128], region[128];
};

/* True when `path` (decoded, see dk_target_parse) is what `pattern` describes; then *out is filled. A pattern
 * is literal text with "{model}", "{version}" and "{region}" each standing for one segment that is not empty,
 * and "[...]" for at most one group that may be absent. */
bool dk_pattern_match(const char *pattern, const char *path, struct dk_path_parameters *out);

/* DK_NOT_FOUND for a model name that none can have and for another version than 1 (the only one there is),
 * DK_BAD_VALUE for a region name outside [A-Za-z0-9._-]{1,64}; quotes the name. "" is fine. */
dk_status dk_path_parameters_check(const struct dk_path_parameters *parameters, struct dk_error *error);

#endif
