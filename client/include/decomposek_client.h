/* decomposek_client.h: the C client of decomposekd: products over shared memory or HTTP, blocking or several
 * in flight.
 *
 *     struct dk_client *client;
 *     struct dk_client_model *gate;
 *     struct dk_error error;
 *     if (dk_client_open("unix:/run/decomposek/ring.sock", NULL, &client, &error) != DK_OK || ...)
 *         fprintf(stderr, "%s\n", error.message);
 *     dk_client_model_open(client, "gate", &gate, &error);
 *     struct dk_client_request request = {.rows = t, .a = x, .a_dtype = DK_BF16, .c = y, .c_dtype = DK_FP32};
 *     dk_client_infer(gate, &request, NULL, &error);
 *
 * Threads. A client, its models, buffers and requests belong to one thread at a time; nothing is locked. A
 * process may have as many clients as it has threads, each with a session of its own; they share nothing.
 * Fork. In a child process every call on a client of the parent fails with DK_UNSUPPORTED, except
 * dk_client_close and dk_client_model_close, which free the child's copy and leave the parent's session
 * alone. A child that lives on should close it. Buffers must not be touched in the child. Signals. No call
 * blocks, raises or handles a signal; waits go on after EINTR until their timeout. Locale. Nothing depends on
 * it. Errors. Functions return DK_OK or another status; `error` (may be NULL) then holds a sentence with the
 * offending value, and results are untouched. Statuses that any call on a client may return: DK_UNAVAILABLE
 * (the daemon is gone, drains, or ended the session: see dk_client_reconnect), DK_UNSUPPORTED (called after a
 * fork), DK_TIMEOUT, DK_NO_MEMORY. A daemon that breaks its own protocol is treated as gone. */
#ifndef DECOMPOSEK_CLIENT_H
#define DECOMPOSEK_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/dtype.h"
#include "proto/gemm.h"
#include "proto/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dk_client;       /* one connection: a shared-memory session, or a few HTTP connections */
struct dk_client_model; /* a name that was looked up; belongs to its client */

/* "0.1.0". Static. Thread: any. */
DK_API const char *dk_client_version(void);

/* --- connection ---------------------------------------------------------------------------------------- */

/* Zero-initialise, then set what differs from the defaults: 0 and NULL mean the default. */
struct dk_client_options {
    uint64_t data_bytes;   /* shared memory for operands and results; 0: 16 MiB. Rounded up to whole pages */
    uint32_t ring_entries; /* most requests in flight, 1..4096, rounded up to a power of two; 0: 64 */
    uint32_t timeout_ms;   /* of every call that sets none of its own, of open and reconnect; 0: 10,000 */
    uint32_t spin_us;      /* how long a wait looks before it sleeps; 0: 50. DK_CLIENT_NO_SPIN: not at all */
    bool is_reconnecting;  /* a call that finds the session lost reconnects first, see dk_client_reconnect */
    const char *api_key;   /* HTTP only: sent as `Authorization: Bearer KEY`; borrowed until return */
    uint64_t reserved[8]; /* must be 0, so that a program built for a later version is refused, not misread */
};
#define DK_CLIENT_NO_SPIN UINT32_MAX

/* Connect. `address` is one of
 *   unix:/path/of/ring.sock   shared memory, the daemon on this machine (--shm-socket)
 *   http://host:port          /v1 of a daemon anywhere; data_bytes and spin_us mean nothing then
 * DK_BAD_VALUE: an address or option that cannot be meant. DK_UNAVAILABLE: nothing listens there (a missing
 * socket too). DK_FORBIDDEN: the daemon does not serve this user. DK_UNAUTHORIZED: it wants another key.
 * DK_TOO_LARGE: data_bytes or ring_entries beyond what it grants. DK_BUSY: it has no session or memory left.
 * DK_UNSUPPORTED: it speaks another version of the ring, or this library was built without HTTP. DK_TIMEOUT.
 * `address` and `options` (may be NULL) are borrowed until return. Thread: any. */
DK_API dk_status dk_client_open(const char *address, const struct dk_client_options *options,
                                struct dk_client **out, struct dk_error *error);
/* Ends the session; requests in flight are abandoned, their `a` and `c` are not touched any more; models and
 * buffers are gone, memory of direct buffers is unmapped. NULL-safe. Never blocks on the daemon. */
DK_API void dk_client_close(struct dk_client *client);

/* Start a new session after the daemon restarted, with the same options. What was in flight has failed or
 * fails now: poll and wait report each such request once, with DK_UNAVAILABLE. Models stay open and are
 * looked up again; one that is gone or changed its n or k refuses requests from then on, with DK_NOT_FOUND or
 * DK_BAD_SHAPE; weights that were given with dk_client_load_model have to be given again. Buffers acquired
 * before stay readable and writable until they are released, but are ordinary memory: requests copy from and
 * to them. Also allowed while connected. Errors as of open; the client is then disconnected and may try
 * again. Over HTTP connections come and go by themselves, and a request that meets no daemon fails alone. */
DK_API dk_status dk_client_reconnect(struct dk_client *client, struct dk_error *error);

struct dk_client_info {
    const char *transport;  /* "shm" or "http"; static */
    bool is_connected;      /* as far as known without asking: false once a call has seen the loss */
    uint32_t ring_entries;  /* as granted */
    uint32_t in_flight;     /* submitted, not yet reported by poll or wait */
    uint64_t data_bytes;    /* as granted; 0 over HTTP */
    uint64_t session_count; /* 1, then + 1 by each reconnect that succeeded */
    uint64_t reserved[4];
};
DK_API void dk_client_get_info(const struct dk_client *client, struct dk_client_info *out);

/* --- models -------------------------------------------------------------------------------------------- */

enum { DK_CLIENT_NAME_BYTES = 64 };
struct dk_client_model_info {
    char name[DK_CLIENT_NAME_BYTES + 1];
    uint64_t n, k;        /* y[rows, n] = epilogue(x[rows, k] * W + bias) */
    dk_dtype dtype;       /* of the weights: the natural type of x */
    dk_epilogue epilogue; /* the model's own */
    bool has_bias;
    uint64_t version; /* as of the look-up; + 1 by each reload in the daemon */
    uint64_t reserved[4];
};
/* What the daemon serves. Writes up to `capacity` entries, and to *out_count how many there are. Blocks for a
 * round trip to the daemon's control thread. */
DK_API dk_status dk_client_list_models(struct dk_client *client, struct dk_client_model_info *out,
                                       size_t capacity, size_t *out_count, struct dk_error *error);
/* Look a model up. DK_NOT_FOUND, DK_BAD_VALUE (a name that none can have). Opening a name again gives a
 * second handle. Blocks for a round trip. */
DK_API dk_status dk_client_model_open(struct dk_client *client, const char *name,
                                      struct dk_client_model **out, struct dk_error *error);
/* NULL-safe. Requests in flight finish as usual. dk_client_close closes what is left. */
DK_API void dk_client_model_close(struct dk_client_model *model);
/* Valid until the model is closed; updated by reconnect. */
DK_API const struct dk_client_model_info *dk_client_model_get_info(const struct dk_client_model *model);

/* Weights that this process holds. */
struct dk_client_weights {
    uint64_t n, k;
    dk_dtype dtype;   /* fp32, bf16, fp16; kept at this width */
    dk_layout layout; /* DK_LAYOUT_NK: [n, k] as in a checkpoint; DK_LAYOUT_KN: [k, n] */
    dk_epilogue epilogue;
    const void *data;     /* dense row-major, any alignment; borrowed until return */
    const float *bias;    /* [n] or NULL; borrowed until return */
    uint64_t reserved[4]; /* must be 0 */
};
/* Give the daemon a model, so that it need not read a file. It belongs to this session: others do not see it,
 * it hides one of the daemon's of that name, replaces one given before (open handles follow, if n and k are
 * the same), and ends with the session. Weights and bias pass through the data area, where they need one free
 * piece. Blocks until the model serves or `timeout_ms` (0: the client's) is over; after DK_TIMEOUT that piece
 * stays taken until a reconnect. Shared memory only (HTTP: DK_UNSUPPORTED), and only where the daemon allows
 * it: DK_FORBIDDEN; DK_BAD_SHAPE, DK_BAD_DTYPE, DK_BAD_VALUE (the name); DK_TOO_LARGE (the data area, or the
 * daemon's cap); DK_BUSY (no space in the data area now). */
DK_API dk_status dk_client_load_model(struct dk_client *client, const char *name,
                                      const struct dk_client_weights *weights, uint32_t timeout_ms,
                                      struct dk_error *error);

/* --- requests ------------------------------------------------------------------------------------------ */

/* One product. Zero-initialise, then set. */
struct dk_client_request {
    uint64_t rows;        /* any number, 0 too; at most DK_MAX_M */
    const void *a;        /* [rows, k] of a_dtype, dense row-major; NULL allowed when rows is 0 */
    void *c;              /* [rows, n] of c_dtype, dense row-major; written only when the status is DK_OK */
    dk_dtype a_dtype;     /* fp32, bf16, fp16 */
    dk_dtype c_dtype;     /* fp32, bf16, fp16 */
    bool has_epilogue;    /* false: the model's own */
    dk_epilogue epilogue; /* used when has_epilogue */
    uint32_t timeout_ms;  /* from submission; 0: the client's */
    void *user_data;      /* comes back with the completion; never looked at */
    uint64_t reserved[8]; /* must be 0; routing (expert ids and weights instead of c) will use some */
};

/* Where the time went; nanoseconds. What the transport does not tell is 0. */
struct dk_client_timing {
    uint64_t queue_ns;  /* waiting in the daemon */
    uint64_t kernel_ns; /* inside the kernels */
    uint64_t server_ns; /* from taking the request to the completion */
    uint64_t
        round_trip_ns; /* from submit to the poll or wait that saw the completion, this process's clock */
};

/* Compute and wait. `a` and `c` may lie anywhere; those inside a buffer of dk_client_buffer_acquire are used
 * in place, others are copied. Over shared memory, rows that do not fit the free part of the data area are
 * sent in pieces (timing: sums). `timing` may be NULL. Other requests of this client may be in flight; their
 * completions are kept for poll and wait.
 * DK_BAD_SHAPE, DK_BAD_DTYPE, DK_BAD_VALUE (the request); DK_TOO_LARGE (one row is more than the data area);
 * DK_BUSY (ring or data area taken by requests in flight and acquired buffers, or the daemon is full: try
 * again); DK_DEVICE_FAILED, DK_INTERNAL (the daemon). After DK_TIMEOUT the daemon may still be computing: the
 * caller's memory is not touched any more, direct buffers see dk_client_buffer_release. */
DK_API dk_status dk_client_infer(struct dk_client_model *model, const struct dk_client_request *request,
                                 struct dk_client_timing *timing, struct dk_error *error);

/* Start a product; returns at once, never waits for the daemon. `a` is read before return unless it lies in a
 * buffer of dk_client_buffer_acquire; it and `c` must then stay as they are until the completion is reported.
 * `request` itself is borrowed until return. Errors as of infer, all found here: a request that is refused
 * has no completion. DK_BUSY: ring_entries requests are in flight, or no space in the data area; poll or
 * wait, then try again. DK_TOO_LARGE: more than the data area (nothing is cut into pieces here). */
DK_API dk_status dk_client_submit(struct dk_client_model *model, const struct dk_client_request *request,
                                  struct dk_error *error);

struct dk_client_completion {
    void *user_data;
    dk_status status;    /* DK_OK: c holds the result; else c is unchanged, or undefined in a direct buffer */
    const char *message; /* why; valid until the next call on this client. NULL when DK_OK */
    struct dk_client_timing timing;
    uint64_t reserved[2];
};
/* Take up to `capacity` completions that are there, in the order the daemon finished them; 0 when there are
 * none. Never waits. A request past its timeout completes here with DK_TIMEOUT, all requests of a lost
 * session with DK_UNAVAILABLE. */
DK_API size_t dk_client_poll(struct dk_client *client, struct dk_client_completion *out, size_t capacity);
/* As poll, but waits until there is at least one or `timeout_ms` (0: the client's) is over: DK_TIMEOUT, and
 * the requests stay in flight. DK_BAD_REQUEST when nothing is in flight. DK_OK: *out_count >= 1, also when
 * what completed are failures. Spins for spin_us, then sleeps. A dead daemon is noticed within about 20 ms.
 */
DK_API dk_status dk_client_wait(struct dk_client *client, uint32_t timeout_ms,
                                struct dk_client_completion *out, size_t capacity, size_t *out_count,
                                struct dk_error *error);

/* --- direct buffers ------------------------------------------------------------------------------------ */

/* Memory inside the session's data area, aligned to 64 bytes, contents undefined: operands written there and
 * results read there are not copied by anyone on a CPU backend. Over HTTP: ordinary memory. DK_BUSY: no such
 * piece is free now; DK_TOO_LARGE: more than the data area; DK_BAD_VALUE: 0 bytes. Sizes are rounded up to a
 * power of two: an area holds two buffers of 5 MiB only when it has 16 MiB. */
DK_API dk_status dk_client_buffer_acquire(struct dk_client *client, size_t bytes, void **out,
                                          struct dk_error *error);
/* NULL-safe; `buffer` as acquire gave it, else nothing happens. The daemon may still write there when a
 * request on it timed out or is in flight; the space is then handed out again only after that ended. */
DK_API void dk_client_buffer_release(struct dk_client *client, void *buffer);

#ifdef __cplusplus
}
#endif
#endif
