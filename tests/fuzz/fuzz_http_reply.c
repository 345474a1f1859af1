/* fuzz_http_reply.c: any bytes as the head of an answer: what is accepted lies inside, and does not depend on
 * what follows. */
#include <stdlib.h>
#include <string.h>

#include "client/http_reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dk_http_reply_head head, alone;
    if (dk_http_reply_parse((const char *)data, size, &head) != DK_HTTP_REPLY_COMPLETE)
        return 0;
    if (head.head_bytes < 4 || head.head_bytes > size || head.head_bytes > DK_HTTP_REPLY_MAX_HEAD ||
        head.status < 200 || head.status > 599 || head.inference_bytes > head.body_bytes ||
        memcmp(data + head.head_bytes - 4, "\r\n\r\n", 4) != 0)
        abort();
    /* In a buffer of its own, so that a read past the head is found. */
    char *copy = malloc(head.head_bytes);
    if (!copy)
        return 0;
    memcpy(copy, data, head.head_bytes);
    memset(&alone, 0, sizeof alone);
    if (dk_http_reply_parse(copy, head.head_bytes, &alone) != DK_HTTP_REPLY_COMPLETE ||
        alone.body_bytes != head.body_bytes || alone.status != head.status ||
        alone.kernel_ns != head.kernel_ns || alone.is_last != head.is_last)
        abort();
    free(copy);
    return 0;
}
