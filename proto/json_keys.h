/* json_keys.h: the decoded keys of the objects that are open, to find duplicates in constant time each. */
#ifndef DK_PROTO_JSON_KEYS_H
#define DK_PROTO_JSON_KEYS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/status.h"

struct dk_json_key {
    uint64_t hash;
    size_t offset, length; /* in `bytes` */
    uint32_t scope;        /* depth of the object */
};

/* A stack of keys (the innermost object on top) with a hash table over it. Zero-initialise, set `seed`. */
struct dk_json_keys {
    struct dk_json_key *stack;
    size_t count, capacity;
    uint32_t *slots;   /* stack index + 1; 0: empty. Linear probing */
    size_t slot_count; /* a power of two */
    char *bytes;
    size_t byte_count, byte_capacity;
    uint64_t seed; /* makes collisions unpredictable to a client */
};

void dk_json_keys_deinit(struct dk_json_keys *keys);
/* Room for one decoded key of at most `length` bytes; write it there, then call add. NULL: no memory. */
char *dk_json_keys_room(struct dk_json_keys *keys, size_t length);
/* The `length` bytes written to the room become a key of the object at depth `scope`. DK_BAD_JSON when that
 * object has it already; DK_NO_MEMORY. No message. */
dk_status dk_json_keys_add(struct dk_json_keys *keys, uint32_t scope, size_t length);
/* Forget every key added since count was `count` (the object closed). */
void dk_json_keys_pop(struct dk_json_keys *keys, size_t count);

#endif
