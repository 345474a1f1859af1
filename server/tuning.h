/* tuning.h: when the daemon measures plans, and where it keeps them. */
#ifndef DK_SERVER_TUNING_H
#define DK_SERVER_TUNING_H

#include <stddef.h>

#include "server/config.h"

struct dk_daemon;
struct dk_tuning; /* a thread that measures while the daemon serves */

/* Path for dk_engine_options.plan_cache_path: config.plan_cache, else the default place, written to `out`;
 * NULL for no cache. With tuning on, the default folder is made. What is in the way is logged once. */
const char *dk_tuning_cache_path(const struct dk_config *config, char *out, size_t size);
/* Log what the engine found in its plan cache. */
void dk_tuning_log_cache(const struct dk_engine_info *info, const char *path);

/* --tune startup: measure what the cache does not know, for every model; else nothing. A failure is logged
 * and leaves plans that serve. Ends early when the daemon closes. Thread: the loading thread, before the
 * executor. */
void dk_tuning_run(struct dk_daemon *daemon);
/* --tune background: start measuring, for the cache only; *out stays NULL in other modes. */
dk_status dk_tuning_new(struct dk_daemon *daemon, struct dk_tuning **out, struct dk_error *error);
void dk_tuning_free(struct dk_tuning *tuning); /* NULL-safe; waits for the bucket being measured */

#endif
