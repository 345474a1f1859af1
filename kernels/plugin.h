/* plugin.h: finding and loading the CUDA backend at run time. */
#ifndef DK_KERNELS_PLUGIN_H
#define DK_KERNELS_PLUGIN_H

#include "kernels/backend.h"

#define DK_PLUGIN_FILE "libdecomposek_cuda.so"

/* Loads `path`, or when it is NULL the first DK_PLUGIN_FILE found beside the program or library that holds
 * this code (., ../lib, ../<libdir of the installation>), then on the loader's search path. DK_UNAVAILABLE
 * when there is none, it does not load, or it was built for another DK_BACKEND_ABI. A plugin that passed
 * stays loaded for good: CUDA libraries do not survive unloading. */
dk_status dk_plugin_load(const char *path, const struct dk_backend **out, struct dk_error *error);

#endif
