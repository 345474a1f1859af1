/* area.c: blocks of power-of-two sizes; a free block joins its buddy at once. */
#include "client/area.h"

#include <assert.h>
#include <stdlib.h>

#define NONE UINT32_MAX
/* Bounds the bookkeeping to about a megabyte: larger areas get larger smallest blocks. */
enum { MIN_UNIT_BYTES = 256, MAX_UNITS = 1 << 16 };

enum unit_state { UNIT_INTERIOR, UNIT_FREE, UNIT_TAKEN, UNIT_GIVEN /* by its taker, but still in use */ };

struct dk_area_unit { /* meaningful for the first unit of a block */
    uint8_t state, order;
    uint16_t user_count;
    uint32_t next, previous; /* among the free blocks of this order */
};

static void push_free(struct dk_area *area, uint32_t index, uint8_t order)
{
    uint32_t head = area->heads[order];
    area->units[index] = (struct dk_area_unit){UNIT_FREE, order, 0, head, NONE};
    if (head != NONE)
        area->units[head].previous = index;
    area->heads[order] = index;
}

static void remove_free(struct dk_area *area, uint32_t index)
{
    struct dk_area_unit *unit = &area->units[index];
    if (unit->previous != NONE)
        area->units[unit->previous].next = unit->next;
    else
        area->heads[unit->order] = unit->next;
    if (unit->next != NONE)
        area->units[unit->next].previous = unit->previous;
    unit->state = UNIT_INTERIOR;
}

dk_status dk_area_init(struct dk_area *area, size_t bytes, struct dk_error *error)
{
    size_t unit_bytes = MIN_UNIT_BYTES;
    while (bytes / unit_bytes > MAX_UNITS)
        unit_bytes *= 2;
    uint32_t count = (uint32_t)(bytes / unit_bytes);
    if (count == 0)
        return dk_fail(error, DK_BAD_VALUE, "a data area of %zu bytes is too small", bytes);
    struct dk_area_unit *units = calloc(count, sizeof *units);
    if (!units)
        return dk_fail(error, DK_NO_MEMORY, "no memory for the bookkeeping of %zu bytes", bytes);
    *area = (struct dk_area){.unit_bytes = unit_bytes, .unit_count = count, .units = units};
    for (int order = 0; order < DK_AREA_ORDERS; order++)
        area->heads[order] = NONE;
    /* Cut a size that is no power of two into aligned blocks, largest first. */
    for (uint32_t index = 0; index < count;) {
        uint8_t order = 0;
        while (index % (2U << order) == 0 && count - index >= (2U << order))
            order++;
        push_free(area, index, order);
        index += 1U << order;
    }
    return DK_OK;
}

void dk_area_deinit(struct dk_area *area)
{
    free(area->units);
    *area = (struct dk_area){0};
}

bool dk_area_take(struct dk_area *area, size_t bytes, size_t *out_offset)
{
    assert(bytes > 0);
    uint8_t order = 0;
    while (order < DK_AREA_ORDERS && bytes > area->unit_bytes << order)
        order++;
    uint8_t from = order;
    while (from < DK_AREA_ORDERS && area->heads[from] == NONE)
        from++;
    if (from >= DK_AREA_ORDERS)
        return false;
    uint32_t index = area->heads[from];
    remove_free(area, index);
    while (from > order) { /* the upper half stays free */
        from--;
        push_free(area, index + (1U << from), from);
    }
    area->units[index] = (struct dk_area_unit){UNIT_TAKEN, order, 0, NONE, NONE};
    *out_offset = index * area->unit_bytes;
    return true;
}

static void join(struct dk_area *area, uint32_t index, uint8_t order)
{
    for (;;) {
        uint32_t buddy = index ^ (1U << order);
        if (buddy >= area->unit_count || area->units[buddy].state != UNIT_FREE ||
            area->units[buddy].order != order)
            break;
        remove_free(area, buddy);
        area->units[index].state = UNIT_INTERIOR;
        index &= ~(1U << order);
        order++;
    }
    push_free(area, index, order);
}

static struct dk_area_unit *unit_at(const struct dk_area *area, size_t offset)
{
    assert(offset % area->unit_bytes == 0 && offset / area->unit_bytes < area->unit_count);
    return &area->units[offset / area->unit_bytes];
}

void dk_area_give(struct dk_area *area, size_t offset)
{
    struct dk_area_unit *unit = unit_at(area, offset);
    assert(unit->state == UNIT_TAKEN);
    unit->state = UNIT_GIVEN;
    if (unit->user_count == 0)
        join(area, (uint32_t)(offset / area->unit_bytes), unit->order);
}

void dk_area_use(struct dk_area *area, size_t offset)
{
    struct dk_area_unit *unit = unit_at(area, offset);
    assert(unit->state == UNIT_TAKEN && unit->user_count < UINT16_MAX);
    unit->user_count++;
}

void dk_area_unuse(struct dk_area *area, size_t offset)
{
    struct dk_area_unit *unit = unit_at(area, offset);
    assert(unit->user_count > 0);
    if (--unit->user_count == 0 && unit->state == UNIT_GIVEN)
        join(area, (uint32_t)(offset / area->unit_bytes), unit->order);
}

bool dk_area_find(const struct dk_area *area, size_t offset, size_t bytes, size_t *out_offset)
{
    size_t index = offset / area->unit_bytes;
    if (index >= area->unit_count)
        return false;
    for (uint8_t order = 0; order < 32; order++) {
        size_t first = index & ~(((size_t)1 << order) - 1);
        const struct dk_area_unit *unit = &area->units[first];
        if (unit->state == UNIT_INTERIOR || unit->order != order)
            continue;
        size_t begin = first * area->unit_bytes, size = area->unit_bytes << order;
        if (unit->state != UNIT_TAKEN || bytes > size - (offset - begin))
            return false;
        *out_offset = begin;
        return true;
    }
    return false;
}

bool dk_area_is_taken(const struct dk_area *area, size_t offset)
{
    return offset % area->unit_bytes == 0 && offset / area->unit_bytes < area->unit_count &&
           area->units[offset / area->unit_bytes].state == UNIT_TAKEN;
}

size_t dk_area_largest_free(const struct dk_area *area)
{
    for (int order = DK_AREA_ORDERS - 1; order >= 0; order--)
        if (area->heads[order] != NONE)
            return area->unit_bytes << order;
    return 0;
}

size_t dk_area_largest(const struct dk_area *area)
{
    size_t units = 1;
    while (units <= area->unit_count / 2)
        units *= 2;
    return units * area->unit_bytes;
}
