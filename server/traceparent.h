/* traceparent.h: the trace that a request belongs to, from the W3C header of that name. */
#ifndef DK_SERVER_TRACEPARENT_H
#define DK_SERVER_TRACEPARENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DK_TRACE_ID_BYTES = 16, DK_TRACE_ID_TEXT_BYTES = 2 * DK_TRACE_ID_BYTES + 1 };

/* All zero: no trace. Big-endian halves of the id. */
struct dk_trace {
    uint64_t high, low;
};

/* True when `text` (may be NULL) is a well-formed traceparent of a trace that is sampled, so that the id
 * leads somewhere; then *out is its trace id, else *out is zero. Any version but ff; what a later version
 * appends after another '-' is ignored. Pure. */
bool dk_traceparent_parse(const char *text, size_t length, struct dk_trace *out);
/* 32 lower-case hex digits and a NUL. */
void dk_trace_write(const struct dk_trace *trace, char out[DK_TRACE_ID_TEXT_BYTES]);

#endif
