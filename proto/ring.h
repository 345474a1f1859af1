/* ring.h: the native ring: what lies in the memory that one client shares with the daemon, and every memory
 * ordering of both sides. One writer per word. Offsets are ABI: PROTOCOL.md holds the same table and a test
 * compares. Integers are in the machine's own byte order: both ends are on one machine. */
#ifndef DK_PROTO_RING_H
#define DK_PROTO_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/gemm.h"
#include "proto/status.h"

#define DK_RING_MAGIC UINT64_C(0x31474E49524B4444) /* "DDKRING1" */
enum {
    DK_RING_VERSION = 1, /* any change of a layout or of a meaning */
    DK_RING_LINE_BYTES = 64,
    DK_RING_HEADER_BYTES = 4096,
    DK_RING_MIN_ENTRIES = 1,
    DK_RING_MAX_ENTRIES = 4096,   /* a power of two */
    DK_RING_ALIGN_BYTES = 64,     /* of every offset into the data area */
    DK_RING_MODEL_EPILOGUE = 0xFF /* dk_ring_submission.epilogue: the model's own */
};

enum dk_ring_server_state {
    DK_RING_OPEN,    /* requests are taken */
    DK_RING_CLOSING, /* the daemon is stopping: new requests complete with DK_UNAVAILABLE */
    DK_RING_CLOSED   /* no further completion will come; the reason is on the socket */
};

/* The start of the mapping. Lines: constants | the client's words | the server's words, each word in the line
 * of the side that writes it, so that the two sides exchange a line only when it carries news. Indices run
 * freely and wrap at 2^32; entry i lies at i & (entry_count - 1).
 *
 * The rule that makes both rings safe without further words: a client has at most entry_count requests
 * between submitting one and releasing its completion. Then neither ring can overflow. The server drops a
 * session that breaks it. */
struct dk_ring_header {
    /* Constants, written by the server before the client sees the mapping. */
    uint64_t magic;
    uint32_t version;
    uint32_t entry_count;                                       /* of both rings */
    uint64_t submission_offset, completion_offset, data_offset; /* from the start of the mapping */
    uint64_t data_bytes;
    uint64_t mapping_bytes;
    uint32_t submission_bytes, completion_bytes; /* of one entry */

    /* Written by the client. */
    _Alignas(DK_RING_LINE_BYTES) _Atomic uint32_t submission_tail; /* entries submitted so far */
    uint32_t client_padding_0[15];
    _Alignas(DK_RING_LINE_BYTES) _Atomic uint32_t completion_head; /* completions released so far */
    _Atomic uint32_t client_waits; /* 1: wake me after the next completion. The futex word: the server, and
                                      only it beside the client, sets it back to 0 before it wakes */
    uint32_t client_padding_1[14];

    /* Written by the server. */
    _Alignas(DK_RING_LINE_BYTES) _Atomic uint32_t needs_wakeup; /* 1: ring the doorbell after submitting */
    uint32_t server_padding_0[15];
    _Alignas(DK_RING_LINE_BYTES) _Atomic uint32_t completion_tail; /* completions so far */
    _Atomic uint32_t server_state;                                 /* enum dk_ring_server_state */
    uint32_t server_padding_1[14];
};

/* One request: C[rows, n] = epilogue(A[rows, k] * B + bias), both dense row-major in the data area. */
struct dk_ring_submission {
    uint64_t user_data;    /* comes back in the completion */
    uint64_t a_offset;     /* from the start of the data area; a multiple of DK_RING_ALIGN_BYTES */
    uint64_t c_offset;     /* likewise; A and C must not overlap */
    uint32_t model_id;     /* from the handshake socket */
    uint32_t rows;         /* 0..DK_MAX_M; 0 completes at once */
    uint64_t submitted_ns; /* CLOCK_MONOTONIC; 0: not stamped (then queue_ns is 0 and no timeout applies) */
    uint32_t timeout_us;   /* after submitted_ns, looked at when the request is about to start; 0: none */
    uint8_t a_dtype, c_dtype; /* dk_dtype: fp32, bf16 or fp16 */
    uint8_t epilogue;         /* dk_epilogue, or DK_RING_MODEL_EPILOGUE */
    uint8_t flags;            /* must be 0 */
    uint64_t reserved[2];     /* must be 0 */
};

/* Its outcome. Completions of one session come in the order of submission. */
struct dk_ring_completion {
    uint64_t user_data;
    uint32_t status;               /* dk_status; DK_OK: C is complete */
    uint32_t detail;               /* enum dk_ring_detail: what was wrong */
    uint64_t queue_ns;             /* from submission to the start */
    uint64_t kernel_ns;            /* kernels alone, all pieces */
    uint32_t piece_count;          /* launches: 1 unless rows exceed --max-tokens or the workspace */
    uint32_t bucket_rows, split_k; /* the plan of the last piece; 0 when rows is 0 */
    uint32_t reserved_0;
    uint64_t model_version; /* 1, then + 1 by each reload */
    uint64_t reserved_1;
};

/* Why a request was refused. X(name, status, text). The order is ABI: append only. */
#define DK_RING_DETAIL_MAP(X)                                                                                \
    X(NONE, OK, "ok")                                                                                        \
    X(MODEL_ID, NOT_FOUND, "the model id was never opened in this session")                                  \
    X(MODEL_GONE, NOT_FOUND, "the model is not loaded any more, or has another shape now")                   \
    X(ROWS, BAD_SHAPE, "rows is above the limit")                                                            \
    X(A_DTYPE, BAD_DTYPE, "a_dtype is not fp32, bf16 or fp16")                                               \
    X(C_DTYPE, BAD_DTYPE, "c_dtype is not fp32, bf16 or fp16")                                               \
    X(EPILOGUE, BAD_VALUE, "epilogue is unknown")                                                            \
    X(RESERVED, BAD_VALUE, "flags and reserved must be 0")                                                   \
    X(A_ALIGNMENT, BAD_VALUE, "a_offset is not a multiple of 64")                                            \
    X(C_ALIGNMENT, BAD_VALUE, "c_offset is not a multiple of 64")                                            \
    X(A_RANGE, BAD_VALUE, "A does not lie in the data area")                                                 \
    X(C_RANGE, BAD_VALUE, "C does not lie in the data area")                                                 \
    X(OVERLAP, BAD_VALUE, "A and C overlap")                                                                 \
    X(EXPIRED, TIMEOUT, "timeout_us passed before the request could start")                                  \
    X(CLOSING, UNAVAILABLE, "the daemon is stopping")                                                        \
    X(COMPUTE, INTERNAL, "the product failed")
enum dk_ring_detail {
#define DK_RING_DETAIL_ENUM(name, status, text) DK_RING_DETAIL_##name,
    DK_RING_DETAIL_MAP(DK_RING_DETAIL_ENUM)
#undef DK_RING_DETAIL_ENUM
        DK_RING_DETAIL_COUNT
};

/* Both accept any value. dk_ring_detail_status is the status that goes with it; COMPUTE comes with the
 * product's own. Thread: any. */
const char *dk_ring_detail_text(uint32_t detail);
dk_status dk_ring_detail_status(uint32_t detail);

#define DK_RING_AT(type, member, offset)                                                                     \
    _Static_assert(offsetof(struct type, member) == (offset), "ABI: bump DK_RING_VERSION")
_Static_assert(sizeof(struct dk_ring_header) == 320, "ABI: bump DK_RING_VERSION");
DK_RING_AT(dk_ring_header, magic, 0);
DK_RING_AT(dk_ring_header, version, 8);
DK_RING_AT(dk_ring_header, entry_count, 12);
DK_RING_AT(dk_ring_header, submission_offset, 16);
DK_RING_AT(dk_ring_header, completion_offset, 24);
DK_RING_AT(dk_ring_header, data_offset, 32);
DK_RING_AT(dk_ring_header, data_bytes, 40);
DK_RING_AT(dk_ring_header, mapping_bytes, 48);
DK_RING_AT(dk_ring_header, submission_bytes, 56);
DK_RING_AT(dk_ring_header, completion_bytes, 60);
DK_RING_AT(dk_ring_header, submission_tail, 64);
DK_RING_AT(dk_ring_header, completion_head, 128);
DK_RING_AT(dk_ring_header, client_waits, 132);
DK_RING_AT(dk_ring_header, needs_wakeup, 192);
DK_RING_AT(dk_ring_header, completion_tail, 256);
DK_RING_AT(dk_ring_header, server_state, 260);
_Static_assert(sizeof(struct dk_ring_submission) == 64, "ABI: bump DK_RING_VERSION");
DK_RING_AT(dk_ring_submission, user_data, 0);
DK_RING_AT(dk_ring_submission, a_offset, 8);
DK_RING_AT(dk_ring_submission, c_offset, 16);
DK_RING_AT(dk_ring_submission, model_id, 24);
DK_RING_AT(dk_ring_submission, rows, 28);
DK_RING_AT(dk_ring_submission, submitted_ns, 32);
DK_RING_AT(dk_ring_submission, timeout_us, 40);
DK_RING_AT(dk_ring_submission, a_dtype, 44);
DK_RING_AT(dk_ring_submission, c_dtype, 45);
DK_RING_AT(dk_ring_submission, epilogue, 46);
DK_RING_AT(dk_ring_submission, flags, 47);
DK_RING_AT(dk_ring_submission, reserved, 48);
_Static_assert(sizeof(struct dk_ring_completion) == 64, "ABI: bump DK_RING_VERSION");
DK_RING_AT(dk_ring_completion, user_data, 0);
DK_RING_AT(dk_ring_completion, status, 8);
DK_RING_AT(dk_ring_completion, detail, 12);
DK_RING_AT(dk_ring_completion, queue_ns, 16);
DK_RING_AT(dk_ring_completion, kernel_ns, 24);
DK_RING_AT(dk_ring_completion, piece_count, 32);
DK_RING_AT(dk_ring_completion, bucket_rows, 36);
DK_RING_AT(dk_ring_completion, split_k, 40);
DK_RING_AT(dk_ring_completion, model_version, 48);
#undef DK_RING_AT

/* Where everything lies. Each side keeps its own copy: nothing is read from the shared one after the start.
 */
struct dk_ring_layout {
    uint32_t entry_count;
    uint64_t submission_offset, completion_offset, data_offset, data_bytes, mapping_bytes;
};
/* The one layout for `entry_count` entries and `data_bytes` of data (rounded up to whole pages).
 * DK_BAD_VALUE: no power of two up to DK_RING_MAX_ENTRIES, or bytes that overflow or are 0. */
dk_status dk_ring_layout_make(uint32_t entry_count, uint64_t data_bytes, struct dk_ring_layout *out,
                              struct dk_error *error);
/* Server: fills the header of a zeroed mapping. */
void dk_ring_format(void *mapping, const struct dk_ring_layout *layout);
/* Client: the header says what the client was told. DK_UNSUPPORTED names the first difference. */
dk_status dk_ring_check(const void *mapping, const struct dk_ring_layout *layout, struct dk_error *error);

/* Pointers into one mapping, for either side. */
struct dk_ring {
    struct dk_ring_header *header;
    struct dk_ring_submission *submissions;
    struct dk_ring_completion *completions;
    unsigned char *data;
    uint64_t data_bytes;
    uint32_t mask; /* entry_count - 1 */
};
static inline struct dk_ring dk_ring_at(void *mapping, const struct dk_ring_layout *layout)
{
    unsigned char *base = (unsigned char *)mapping;
    return (struct dk_ring){
        .header = (struct dk_ring_header *)mapping,
        .submissions = (struct dk_ring_submission *)(void *)(base + layout->submission_offset),
        .completions = (struct dk_ring_completion *)(void *)(base + layout->completion_offset),
        .data = base + layout->data_offset,
        .data_bytes = layout->data_bytes,
        .mask = layout->entry_count - 1,
    };
}

/* ---- Memory ordering, all of it. The side that waits and the side that wakes it play Dekker's pattern: each
 * stores its word, then loads the other's, all four sequentially consistent. So at least one of them sees the
 * other: the waiter does not sleep, or it is woken. A test explores every interleaving of exactly these
 * steps. */

/* -- Client, submitting. Fill submissions[tail & mask] for every new entry, publish once, then ask. */

static inline void dk_ring_publish_submissions(struct dk_ring_header *header, uint32_t tail)
{
    atomic_store(&header->submission_tail, tail);
}
/* After publishing: true when the doorbell (an eventfd) must be rung: write 1 to it. */
static inline bool dk_ring_server_needs_wakeup(const struct dk_ring_header *header)
{
    return atomic_load(&header->needs_wakeup) != 0;
}

/* -- Client, completing. Entries below the tail may be read; release them by moving the head. */

static inline uint32_t dk_ring_completion_tail(const struct dk_ring_header *header)
{
    return atomic_load(&header->completion_tail);
}
static inline void dk_ring_release_completions(struct dk_ring_header *header, uint32_t head)
{
    atomic_store_explicit(&header->completion_head, head, memory_order_release);
}
static inline enum dk_ring_server_state dk_ring_server_state(const struct dk_ring_header *header)
{
    return (enum dk_ring_server_state)atomic_load(&header->server_state);
}
/* Before sleeping: announce, look again, and only when true FUTEX_WAIT (shared, not private) while
 * header->client_waits is 1. Announce anew before every wait; one thread waits at a time. A wake-up may be
 * for nothing. It does not come when the daemon is killed: wait in slices and look at the socket. */
static inline bool dk_ring_announce_wait(struct dk_ring_header *header, uint32_t seen_tail)
{
    atomic_store(&header->client_waits, 1);
    return dk_ring_completion_tail(header) == seen_tail && dk_ring_server_state(header) != DK_RING_CLOSED;
}
static inline void dk_ring_end_wait(struct dk_ring_header *header)
{
    atomic_store_explicit(&header->client_waits, 0, memory_order_relaxed);
}

/* -- Server. Its indices are its own; what it loads here is checked before it is used. */

static inline uint32_t dk_ring_submission_tail(const struct dk_ring_header *header)
{
    return atomic_load(&header->submission_tail);
}
static inline uint32_t dk_ring_completion_head(const struct dk_ring_header *header)
{
    return atomic_load_explicit(&header->completion_head, memory_order_acquire);
}
/* One private copy, each word read once: the client may be writing to it this very moment. */
static inline void dk_ring_copy_submission(const struct dk_ring_submission *shared,
                                           struct dk_ring_submission *out)
{
    enum { WORDS = sizeof *out / sizeof(uint64_t) };
    const _Atomic uint64_t *from = (const _Atomic uint64_t *)(const void *)shared;
    union {
        uint64_t words[WORDS];
        struct dk_ring_submission submission;
    } copy;
    for (int i = 0; i < WORDS; i++) {
        copy.words[i] = atomic_load_explicit(&from[i], memory_order_relaxed);
    }
    *out = copy.submission;
}
static inline void dk_ring_publish_completions(struct dk_ring_header *header, uint32_t tail)
{
    atomic_store(&header->completion_tail, tail);
}
/* After publishing (or changing the state): true when the client sleeps; then FUTEX_WAKE one waiter of
 * header->client_waits. Taking the flag back makes a client between its announcement and FUTEX_WAIT return at
 * once, and pays for a wake-up once. */
static inline bool dk_ring_take_client_waits(struct dk_ring_header *header)
{
    return atomic_load(&header->client_waits) != 0 && atomic_exchange(&header->client_waits, 0) != 0;
}
/* Before sleeping: set it for every session, look at every tail again, sleep. */
static inline void dk_ring_set_needs_wakeup(struct dk_ring_header *header, bool needs_wakeup)
{
    atomic_store(&header->needs_wakeup, needs_wakeup);
}
static inline void dk_ring_set_server_state(struct dk_ring_header *header, enum dk_ring_server_state state)
{
    atomic_store(&header->server_state, (uint32_t)state);
}

#endif
