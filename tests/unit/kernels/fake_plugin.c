/* fake_plugin.c: stands in for the CUDA plugin; FAKE_* definitions choose what is wrong with it. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/backend.h"

#ifdef FAKE_NEEDS_DRIVER
int cuInit(unsigned flags); /* from a library that is not there at run time */
#endif

#ifndef FAKE_ABI
#define FAKE_ABI DK_BACKEND_ABI
#endif

static dk_status fake_open(const struct dk_engine_options *options, struct dk_backend_device **out,
                           struct dk_error *error)
{
#ifdef FAKE_NO_DEVICE
    (void)out;
    snprintf(error->message, sizeof error->message, "no CUDA device %d", options->device_index);
    return error->status = DK_UNAVAILABLE;
#else
    (void)error;
#ifdef FAKE_NEEDS_DRIVER
    cuInit(0);
#endif
    struct dk_backend_device *device = calloc(1, sizeof *device);
    snprintf(device->info.backend, sizeof device->info.backend, "cuda");
    snprintf(device->info.reason, sizeof device->info.reason, "cuda: fake device %d, %u tokens",
             options->device_index, options->max_tokens);
    *out = device;
    return DK_OK;
#endif
}

static void fake_close(struct dk_backend_device *device)
{
    free(device);
}

static const struct dk_backend backend = {
    .abi = FAKE_ABI, .name = "cuda", .open = fake_open, .close = fake_close};

#ifdef FAKE_NO_ENTRY
#define ENTRY other_name
#else
#define ENTRY dk_cuda_plugin
#endif
DK_API const struct dk_backend *ENTRY(void);
const struct dk_backend *ENTRY(void)
{
    return &backend;
}
