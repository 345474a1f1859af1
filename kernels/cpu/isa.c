/* isa.c: which instruction set the micro-kernels use, best first. */
#include <string.h>

#include "kernels/cpu/micro.h"

static const struct dk_isa *const known[] = {
#ifdef DK_HAVE_X86_KERNELS
    &dk_isa_avx512, &dk_isa_avx2,
#endif
    &dk_isa_portable};
enum { KNOWN_COUNT = sizeof known / sizeof known[0] };

static bool is_name_of_any_build(const char *name)
{
    return strcmp(name, "avx512") == 0 || strcmp(name, "avx2") == 0 || strcmp(name, "portable") == 0;
}

dk_status dk_isa_find(const char *name, const struct dk_isa **out, struct dk_error *error)
{
    if (name && !is_name_of_any_build(name)) {
        return dk_fail(error, DK_BAD_VALUE, "cpu_isa \"%s\" is not one of avx512, avx2, portable", name);
    }
    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        if ((!name || strcmp(name, known[i]->name) == 0) && known[i]->is_supported()) {
            *out = known[i];
            return DK_OK;
        }
    }
    return dk_fail(error, DK_UNAVAILABLE, "cpu_isa \"%s\" is not supported by this machine or this build",
                   name ? name : "");
}
