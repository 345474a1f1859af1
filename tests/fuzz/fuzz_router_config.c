/* fuzz_router_config.c: any bytes as a config.json: refused with a reason, or a rule that passes its check.
 */
#include <stdlib.h>

#include "proto/router_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dk_router_config config;
    struct dk_error error = {0};
    if (dk_router_config_parse((const char *)data, size, &config, &error) != DK_OK) {
        if (error.status == DK_OK || error.message[0] == 0)
            abort(); /* a refusal without a reason */
        return 0;
    }
    if (dk_routing_check(&config.routing, NULL) != DK_OK)
        abort();
    return 0;
}
