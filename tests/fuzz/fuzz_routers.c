/* fuzz_routers.c: any bytes as an index of a checkpoint: refused with a reason, or routers that name files of
 * the same folder only. */
#include <stdlib.h>
#include <string.h>

#include "proto/routers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dk_routers routers = {0};
    struct dk_error error = {0};
    dk_status status = dk_routers_add_index(&routers, 1000, (const char *)data, size, &error);
    if (status == DK_OK) {
        status = dk_routers_finish(&routers, &error);
    }
    if (status != DK_OK && (error.status == DK_OK || error.message[0] == 0))
        abort(); /* a refusal without a reason */
    for (size_t i = 0; status == DK_OK && i < routers.count; i++) {
        for (int part = 0; part < DK_ROUTER_PART_COUNT; part++) {
            if (strchr(routers.routers[i].parts[part].file, '/') != NULL)
                abort();
        }
    }
    dk_routers_deinit(&routers);
    return 0;
}
