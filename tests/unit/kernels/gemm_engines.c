/* gemm_engines.c: which engines a product suite runs on. */
#include <stdio.h>
#include <string.h>

#include "tests/unit/kernels/gemm_reference.h"

static dk_backend_kind parse_backend(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], "--backend") == 0) {
            return strcmp(argv[i + 1], "cuda") == 0 ? DK_BACKEND_CUDA : DK_BACKEND_CPU;
        }
    }
    return DK_BACKEND_CPU;
}

static void append(struct dk_engine_options options, struct dk_test_engines *out)
{
    struct dk_error error;
    const char *isa = options.cpu_isa ? options.cpu_isa : "cuda";
    if (dk_engine_new(&options, &out->engines[out->count], &error) != DK_OK) {
        fprintf(stderr, "# without %s: %s\n", isa, error.message);
        return;
    }
    snprintf(out->names[out->count], sizeof out->names[0], "%s x %u", isa, options.thread_count);
    out->count++;
}

uint32_t dk_test_engines_init(int argc, char **argv, bool is_every_thread_count, struct dk_test_engines *out)
{
    static const char *const isas[] = {"avx512", "avx2", "portable"};
    out->count = 0;
    if (parse_backend(argc, argv) == DK_BACKEND_CUDA) {
        append((struct dk_engine_options){.backend = DK_BACKEND_CUDA}, out);
        return out->count;
    }
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        for (uint32_t threads = 1; threads <= 3; threads++) {
            /* The best set meets every thread count, the others show that their bits are the same. */
            bool is_best = out->count < threads;
            if (threads == 2 || (is_every_thread_count && is_best)) {
                append((struct dk_engine_options){.backend = DK_BACKEND_CPU,
                                                  .cpu_isa = isas[i],
                                                  .thread_count = threads},
                       out);
            }
        }
    }
    return out->count;
}

void dk_test_engines_deinit(struct dk_test_engines *engines)
{
    for (uint32_t i = 0; i < engines->count; i++) {
        dk_engine_free(engines->engines[i]);
    }
    engines->count = 0;
}
