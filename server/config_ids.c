/* config_ids.c: a list of user or group ids. */
#include "server/config_options.h"

#include <string.h>

bool dk_config_parse_ids(const char *text, struct dk_id_list *out)
{
    struct dk_id_list list = {0};
    if (strcmp(text, "any") == 0) {
        out->is_any = true;
        out->count = 0;
        return true;
    }
    for (const char *at = text;; at++) {
        uint64_t id = 0;
        const char *start = at;
        for (; *at >= '0' && *at <= '9'; at++) {
            id = id * 10 + (uint64_t)(*at - '0');
            if (id >= UINT32_MAX) { /* all bits set means "none" to the kernel */
                return false;
            }
        }
        if (at == start || list.count == DK_MAX_IDS || (*at != ',' && *at != '\0')) {
            return false;
        }
        list.ids[list.count++] = (uint32_t)id;
        if (*at == '\0') {
            *out = list;
            return true;
        }
    }
}
