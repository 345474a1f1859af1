/* variant_list.h: every variant that this build and device offer, and engines that use nothing else. */
#ifndef DK_TEST_GPU_VARIANT_LIST_H
#define DK_TEST_GPU_VARIANT_LIST_H

#include "decomposek.h"

enum { VARIANT_LIST_MAX = 96 };
struct variant_list {
    char names[VARIANT_LIST_MAX][64];
    uint32_t rows[VARIANT_LIST_MAX]; /* most that one tile holds */
    uint32_t count;
};

/* Options of the programs: --variant TEXT (only names that contain it), --quick (few repeats, for
 * sanitizers), --one-wave (at most one tile of rows; why: probe_synccheck.cu). */
struct variant_options {
    const char *filter;
    bool is_quick, is_one_wave;
};
void variant_options_parse(int argc, char **argv, struct variant_options *out);

/* The product's own variants, the libraries' plans left out. False, with the reason on stderr, without CUDA.
 */
bool variant_list_init(struct variant_list *out, const struct variant_options *options);
/* Ends the test when it cannot be opened. */
struct dk_engine *variant_engine_new(const char *name, bool is_dependent);
/* The same for up to `max_tokens` rows. */
struct dk_engine *variant_engine_new_for(const char *name, bool is_dependent, uint32_t max_tokens);

#endif
