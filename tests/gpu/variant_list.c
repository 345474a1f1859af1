/* variant_list.c: see variant_list.h. */
#include "tests/gpu/variant_list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 256, K = 4096, LARGEST_BUCKET = 4096, CANDIDATES_MAX = 256, MODERATE_TOKENS = 256 };

void variant_options_parse(int argc, char **argv, struct variant_options *out)
{
    *out = (struct variant_options){.filter = ""};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0)
            out->is_quick = true;
        else if (strcmp(argv[i], "--one-wave") == 0)
            out->is_one_wave = true;
        else if (strcmp(argv[i], "--variant") == 0 && i + 1 < argc)
            out->filter = argv[++i];
    }
}

static void add(struct variant_list *list, const struct dk_plan *plan, const char *filter)
{
    bool is_library = strncmp(plan->variant, "cublas", strlen("cublas")) == 0;
    for (uint32_t i = 0; i < list->count; i++)
        if (strcmp(list->names[i], plan->variant) == 0)
            return;
    if (is_library || !strstr(plan->variant, filter) || list->count == VARIANT_LIST_MAX)
        return;
    snprintf(list->names[list->count], sizeof list->names[0], "%s", plan->variant);
    list->rows[list->count++] = plan->tile_m;
}

bool variant_list_init(struct variant_list *out, const struct variant_options *options)
{
    static struct dk_plan candidates[CANDIDATES_MAX];
    struct dk_engine_options engine_options = {.backend = DK_BACKEND_CUDA};
    struct dk_engine *engine = NULL;
    struct dk_weights *weights = NULL;
    struct dk_error error;
    out->count = 0;
    if (dk_engine_new(&engine_options, &engine, &error) != DK_OK) {
        fprintf(stderr, "# without cuda: %s\n", error.message);
        return false;
    }
    void *data = calloc((size_t)N * K, 2);
    struct dk_weights_desc desc = {.n = N, .k = K, .dtype = DK_BF16, .layout = DK_LAYOUT_NK, .data = data};
    if (data && dk_weights_new(engine, &desc, &weights, &error) == DK_OK)
        for (uint32_t rows = 1; rows <= LARGEST_BUCKET; rows *= 2) {
            uint32_t count = dk_plan_candidates(weights, rows, candidates, CANDIDATES_MAX);
            for (uint32_t i = 0; i < count && i < CANDIDATES_MAX; i++)
                add(out, &candidates[i], options->filter);
        }
    dk_weights_free(weights);
    dk_engine_free(engine);
    free(data);
    if (out->count == 0)
        fprintf(stderr, "no variant is called like '%s'\n", options->filter);
    return out->count > 0;
}

struct dk_engine *variant_engine_new(const char *name, bool is_dependent)
{
    return variant_engine_new_for(name, is_dependent, MODERATE_TOKENS);
}

struct dk_engine *variant_engine_new_for(const char *name, bool is_dependent, uint32_t max_tokens)
{
    struct dk_engine_options options = {.backend = DK_BACKEND_CUDA,
                                        .force_variant = name,
                                        .use_dependent_launch = is_dependent,
                                        .max_tokens = max_tokens};
    struct dk_engine *engine = NULL;
    struct dk_error error;
    if (dk_engine_new(&options, &engine, &error) != DK_OK)
        fail_msg("engine for %s: %s", name, error.message);
    return engine;
}
