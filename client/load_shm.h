/* load_shm.h: shared memory for the load generator, over the public C client: a session per thread. */
#ifndef DK_CLIENT_LOAD_SHM_H
#define DK_CLIENT_LOAD_SHM_H

#include "client/load.h"
#include "decomposek_client.h"

struct dk_load_shm {
    const char *address; /* "unix:/path"; all pointers are kept */
    const char *model;
    uint64_t rows, n, k;
    dk_dtype dtype; /* of x */
    const void *x;  /* [rows, k] */
    double timeout_s;
    uint32_t spin_us; /* as dk_client_options.spin_us */
    bool is_copying;  /* x and y in ordinary memory; else in the session's data area, written once */
};
/* The transport; context: struct dk_load_shm. An open loop polls without sleeping when the next request is
 * due within 2 ms. */
extern const struct dk_load_transport dk_load_shm_transport;

/* One blocking product in a session of its own: y [rows, n] fp32. Errors as dk_client_open and
 * dk_client_infer. */
dk_status dk_load_shm_fetch(const struct dk_load_shm *shm, void *out, struct dk_error *error);

#endif
