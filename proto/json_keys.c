/* json_keys.c: stack of keys with a seeded hash table; removal in reverse order needs no tombstones. */
#include "proto/json_keys.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef unsigned __int128 uint128;

static uint64_t fold(uint64_t a, uint64_t b)
{
    uint128 product = (uint128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_key(uint64_t seed, uint32_t scope, const char *bytes, size_t length)
{
    /* Any odd constant with mixed bits; this is the fraction of the golden ratio. */
    const uint64_t multiplier = 0x9E3779B97F4A7C15U;
    uint64_t hash = fold(seed ^ length, multiplier) + scope;
    for (size_t i = 0; i < length; i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, length - i < 8 ? length - i : 8);
        hash = fold(hash ^ word ^ seed, multiplier) + (hash >> 1);
    }
    return fold(hash, multiplier);
}

void dk_json_keys_deinit(struct dk_json_keys *keys)
{
    free(keys->stack);
    free(keys->slots);
    free(keys->bytes);
    memset(keys, 0, sizeof *keys);
}

char *dk_json_keys_room(struct dk_json_keys *keys, size_t length)
{
    if (keys->byte_capacity - keys->byte_count < length + 1) {
        size_t capacity = (keys->byte_count + length + 1) * 2;
        char *bytes = realloc(keys->bytes, capacity);
        if (bytes == NULL) {
            return NULL;
        }
        keys->bytes = bytes;
        keys->byte_capacity = capacity;
    }
    return keys->bytes + keys->byte_count;
}

static void insert(struct dk_json_keys *keys, size_t index)
{
    size_t slot = keys->stack[index].hash & (keys->slot_count - 1);
    while (keys->slots[slot] != 0) {
        slot = (slot + 1) & (keys->slot_count - 1);
    }
    keys->slots[slot] = (uint32_t)index + 1;
}

static bool grow(struct dk_json_keys *keys)
{
    enum { FIRST_CAPACITY = 32 };
    size_t capacity = keys->capacity == 0 ? FIRST_CAPACITY : keys->capacity * 2;
    if (capacity >= UINT32_MAX / 4) {
        return false;
    }
    struct dk_json_key *stack = realloc(keys->stack, capacity * sizeof *stack);
    if (stack == NULL) {
        return false;
    }
    keys->stack = stack;
    uint32_t *slots = calloc(capacity * 2, sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    free(keys->slots);
    keys->slots = slots;
    keys->slot_count = capacity * 2;
    keys->capacity = capacity;
    /* In stack order, so that the last key is still the last inserted (see pop). */
    for (size_t i = 0; i < keys->count; i++) {
        insert(keys, i);
    }
    return true;
}

static bool contains(const struct dk_json_keys *keys, const struct dk_json_key *key)
{
    size_t slot = key->hash & (keys->slot_count - 1);
    for (; keys->slots[slot] != 0; slot = (slot + 1) & (keys->slot_count - 1)) {
        const struct dk_json_key *other = &keys->stack[keys->slots[slot] - 1];
        if (other->hash == key->hash && other->scope == key->scope && other->length == key->length &&
            memcmp(keys->bytes + other->offset, keys->bytes + key->offset, key->length) == 0) {
            return true;
        }
    }
    return false;
}

dk_status dk_json_keys_add(struct dk_json_keys *keys, uint32_t scope, size_t length)
{
    if (keys->count == keys->capacity && !grow(keys)) {
        return DK_NO_MEMORY;
    }
    struct dk_json_key key = {.offset = keys->byte_count, .length = length, .scope = scope};
    key.hash = hash_key(keys->seed, scope, keys->bytes + key.offset, length);
    if (contains(keys, &key)) {
        return DK_BAD_JSON;
    }
    keys->stack[keys->count] = key;
    insert(keys, keys->count++);
    keys->byte_count += length;
    return DK_OK;
}

void dk_json_keys_pop(struct dk_json_keys *keys, size_t count)
{
    while (keys->count > count) {
        const struct dk_json_key *key = &keys->stack[--keys->count];
        /* The last inserted key ends its probe sequence: emptying its slot cuts no other sequence. */
        size_t slot = key->hash & (keys->slot_count - 1);
        while (keys->slots[slot] != keys->count + 1) {
            slot = (slot + 1) & (keys->slot_count - 1);
        }
        keys->slots[slot] = 0;
        keys->byte_count = key->offset;
    }
}
