/* route_reference.h: routing in binary64, written from the published formula by sorting, to hold backends
 * against. */
#ifndef DK_TESTS_ROUTE_REFERENCE_H
#define DK_TESTS_ROUTE_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/routing.h"

struct dk_route_reference {
    int32_t ids[DK_MAX_TOP_K];
    double weights[DK_MAX_TOP_K];
    /* The smallest difference that decided anything: which groups, which experts, in which order. */
    double margin;
};

/* Finite logits only. */
void dk_route_reference_row(const struct dk_routing *routing, const float *logits,
                            const float *correction_bias, struct dk_route_reference *out);

/* The rule of one row of the list of public models. */
struct dk_public_rule {
    const char *name;
    struct dk_routing routing;
};
extern const struct dk_public_rule dk_public_rules[];
extern const uint32_t dk_public_rule_count;

#endif
