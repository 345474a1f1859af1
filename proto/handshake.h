/* handshake.h: the messages of the control socket of the native ring (UNIX, SOCK_SEQPACKET: one message is
 * one packet). Fixed layouts in the machine's byte order; every message starts with struct dk_shm_message.
 *
 *   client                                   server
 *   HELLO {ABI, wanted sizes}           ->
 *                                       <-   WELCOME {layout} + descriptors {memory, doorbell}
 *   (maps the memory, then) MAPPED      ->
 *                                       <-   STARTED: the memory is sealed, the ring is served
 *   OPEN_MODEL {name}                   ->
 *                                       <-   MODEL {id, n, k, type}
 *   ...                                      one answer to each request, in order; ERROR instead of it
 *   CLOSE                               ->
 *                                       <-   GOODBYE {OK}, then end of file
 *
 * GOODBYE comes unasked when the daemon stops (status UNAVAILABLE; accepted requests still complete, then end
 * of file) or drops the session (any other status, and the reason; nothing completes any more). After a
 * refused HELLO, an ERROR and end of file. */
#ifndef DK_PROTO_HANDSHAKE_H
#define DK_PROTO_HANDSHAKE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/gemm.h"
#include "proto/native_api.h"
#include "proto/ring.h"
#include "proto/status.h"

enum {
    DK_SHM_MAGIC = 0x48534B44, /* "DKSH" */
    DK_SHM_VERSION = 1,        /* of these messages; DK_RING_VERSION is that of the mapping */
    DK_SHM_NAME_BYTES = 72,    /* a model name and its NUL, zero-filled */
    DK_SHM_TEXT_BYTES = 384,   /* DK_MESSAGE_BYTES */
    DK_SHM_MAX_BYTES = 512,    /* no message is larger */
    DK_SHM_NO_MODEL = 0xFFFFFFFF
};

/* X(name, body struct, sender): values are ABI: append only. */
#define DK_SHM_KIND_MAP(X)                                                                                   \
    X(HELLO, dk_shm_hello, CLIENT)                                                                           \
    X(MAPPED, dk_shm_empty, CLIENT)                                                                          \
    X(OPEN_MODEL, dk_shm_open_model, CLIENT)                                                                 \
    X(LIST_MODEL, dk_shm_list_model, CLIENT)                                                                 \
    X(LOAD_MODEL, dk_shm_load_model, CLIENT)                                                                 \
    X(CLOSE, dk_shm_empty, CLIENT)                                                                           \
    X(WELCOME, dk_shm_welcome, SERVER)                                                                       \
    X(STARTED, dk_shm_empty, SERVER)                                                                         \
    X(MODEL, dk_shm_model, SERVER)                                                                           \
    X(ERROR, dk_shm_failure, SERVER)                                                                         \
    X(GOODBYE, dk_shm_failure, SERVER)
enum dk_shm_kind {
    DK_SHM_KIND_NONE,
#define DK_SHM_KIND_ENUM(name, body, sender) DK_SHM_##name,
    DK_SHM_KIND_MAP(DK_SHM_KIND_ENUM)
#undef DK_SHM_KIND_ENUM
        DK_SHM_KIND_COUNT
};
enum dk_shm_sender { DK_SHM_CLIENT, DK_SHM_SERVER };

/* The start of every message. */
struct dk_shm_message {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;
    uint32_t bytes; /* of the whole message, = the size of its struct */
    uint32_t reserved;
};

struct dk_shm_empty { /* MAPPED, STARTED, CLOSE */
    struct dk_shm_message message;
};

struct dk_shm_hello {
    struct dk_shm_message message;
    uint32_t ring_version;                                     /* DK_RING_VERSION */
    uint32_t header_bytes, submission_bytes, completion_bytes; /* sizeof of the client's structs */
    uint32_t entry_count;                                      /* a power of two, 1..DK_RING_MAX_ENTRIES */
    uint32_t reserved;
    uint64_t data_bytes; /* of the data area: all slots of the client together */
};

struct dk_shm_welcome { /* with two descriptors: the memory, then the doorbell */
    struct dk_shm_message message;
    uint64_t session_id;
    struct dk_ring_layout layout;
    uint32_t max_rows;        /* more rows than this are cut into several launches (--max-tokens) */
    uint32_t can_load_models; /* 1: LOAD_MODEL is allowed */
    uint32_t model_count;     /* for LIST_MODEL */
    uint32_t process_id;      /* of the daemon, as it sees itself */
    char server_version[16];
    char backend[16];
};

struct dk_shm_open_model {
    struct dk_shm_message message;
    char name[DK_SHM_NAME_BYTES];
};

/* Answered by MODEL with model_id DK_SHM_NO_MODEL, or ERROR NOT_FOUND beyond the last. */
struct dk_shm_list_model {
    struct dk_shm_message message;
    uint32_t index;
    uint32_t reserved;
};

/* Weights that lie in the data area; copied before the answer comes. The model belongs to this session and is
 * hidden from others; one of the same name pushed before is replaced and keeps its id. A pushed name hides a
 * model of the daemon's from this session. */
struct dk_shm_load_model {
    struct dk_shm_message message;
    char name[DK_SHM_NAME_BYTES];
    uint64_t n, k;
    uint64_t weights_offset; /* of dtype, [k, n] (layout kn) or [n, k] (nk) */
    uint64_t bias_offset;    /* fp32 [n]; when has_bias */
    uint32_t dtype;          /* dk_dtype: fp32, bf16 or fp16 */
    uint32_t layout;         /* dk_layout */
    uint32_t epilogue;       /* dk_epilogue */
    uint32_t has_bias;       /* 0 or 1 */
};

struct dk_shm_model {
    struct dk_shm_message message;
    uint32_t model_id; /* of this session, for submissions; stays valid across reloads */
    uint32_t dtype;    /* of the weights: the natural type of A */
    uint64_t n, k;
    uint64_t version;  /* 1, then + 1 by each reload */
    uint32_t epilogue; /* what DK_RING_MODEL_EPILOGUE stands for */
    uint32_t has_bias;
    uint32_t layout; /* as the weights were found */
    uint32_t reserved;
    char name[DK_SHM_NAME_BYTES];
};

struct dk_shm_failure { /* ERROR, GOODBYE */
    struct dk_shm_message message;
    uint32_t status; /* dk_status */
    uint32_t reserved;
    char text[DK_SHM_TEXT_BYTES]; /* NUL-terminated UTF-8 */
};

/* Any received message. */
union dk_shm_packet {
    struct dk_shm_message message;
    struct dk_shm_empty empty;
    struct dk_shm_hello hello;
    struct dk_shm_welcome welcome;
    struct dk_shm_open_model open_model;
    struct dk_shm_list_model list_model;
    struct dk_shm_load_model load_model;
    struct dk_shm_model model;
    struct dk_shm_failure failure;
    unsigned char bytes[DK_SHM_MAX_BYTES];
};

#define DK_SHM_SIZE(type, size) _Static_assert(sizeof(struct type) == (size), "ABI: bump DK_SHM_VERSION")
DK_SHM_SIZE(dk_shm_message, 16);
DK_SHM_SIZE(dk_shm_empty, 16);
DK_SHM_SIZE(dk_shm_hello, 48);
DK_SHM_SIZE(dk_shm_welcome, 120);
DK_SHM_SIZE(dk_shm_open_model, 88);
DK_SHM_SIZE(dk_shm_list_model, 24);
DK_SHM_SIZE(dk_shm_load_model, 136);
DK_SHM_SIZE(dk_shm_model, 136);
DK_SHM_SIZE(dk_shm_failure, 408);
_Static_assert(sizeof(union dk_shm_packet) == DK_SHM_MAX_BYTES, "no message is larger");
_Static_assert((int)DK_SHM_TEXT_BYTES == (int)DK_MESSAGE_BYTES, "a message fits");
_Static_assert((int)DK_SHM_NAME_BYTES > (int)DK_MODEL_NAME_BYTES, "a name fits");
#undef DK_SHM_SIZE

/* "HELLO"; "NONE" for an unknown value. */
const char *dk_shm_kind_name(uint32_t kind);
/* Zeroes the packet and writes its start; returns the bytes to send. */
size_t dk_shm_begin(union dk_shm_packet *packet, enum dk_shm_kind kind);
/* Checks what came as one packet of `length` bytes from `sender`: magic, version, kind, length, reserved
 * words, and that names and texts are terminated. DK_BAD_REQUEST or DK_UNSUPPORTED (version) with expected
 * and found. Values that need more than the message itself (models, memory) are the receiver's to check. */
dk_status dk_shm_check(const union dk_shm_packet *packet, size_t length, enum dk_shm_sender sender,
                       struct dk_error *error);
/* The wishes of a checked HELLO: sizes of the structs, entries, bytes. DK_UNSUPPORTED for another ABI,
 * DK_BAD_VALUE for sizes out of range; else the layout. */
dk_status dk_shm_hello_layout(const struct dk_shm_hello *hello, struct dk_ring_layout *out,
                              struct dk_error *error);

#endif
