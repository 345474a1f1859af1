/* fuzz_traceparent.c: any bytes as a traceparent header: what is taken is 32 hex digits that stood in it. */
#include <stdlib.h>
#include <string.h>

#include "server/traceparent.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dk_trace trace;
    char id[DK_TRACE_ID_TEXT_BYTES];
    if (!dk_traceparent_parse((const char *)data, size, &trace)) {
        if ((trace.high | trace.low) != 0)
            abort();
        return 0;
    }
    dk_trace_write(&trace, id);
    if (size < 55 || memcmp(id, data + 3, 32) != 0 || strspn(id, "0123456789abcdef") != 32)
        abort();
    return 0;
}
